package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

// Collection is the name of the collection with the lists, one document for each stream. No stream
// can have this name, because stream names have no dot.
const Collection = "brim.streams"

// How long a list may be used after it was read, and how long after its addition a generation
// may be written to. The difference allows for clocks that run at different speeds.
const (
	listTTL          = time.Second
	propagationDelay = 2 * listTTL
)

// A Generation is one collection of a stream.
type Generation struct {
	Collection string `bson:"collection" json:"collection"`
	Target     `bson:",inline"`
	State      State `bson:"state" json:"state"`
	// Was has the targets that the collection had before `brim recompress` or `brim migrate`.
	// Readings for them may be stored in it.
	Was []Target `bson:"was,omitempty" json:"-"`
	// Moving is set while its readings are moved into another generation. Then nothing is
	// written to it.
	Moving *Moving `bson:"moving,omitempty" json:"moving,omitempty"`
}

// Moving is the progress of moving a generation.
type Moving struct {
	Into string      `bson:"into" json:"into"` // collection of another generation
	UUID bson.Binary `bson:"uuid" json:"-"`    // of the collection that is moved
	As   Form        `bson:"as" json:"-"`
	// Released: no daemon has readings left for it, or will have any. Nothing is copied before.
	Released bool   `bson:"released" json:"-"`
	Done     string `bson:"done" json:"-"` // up to this sensor, all readings are copied
	// Deleted becomes Moved.Deleted.
	Deleted []string `bson:"deleted,omitempty" json:"-"`
}

// A Form has the settings of buckets into which a time series is moved. It stays the same for the
// whole move.
type Form struct {
	Seconds     int          `bson:"seconds"` // granularity
	Format      store.Format `bson:"format"`
	MaxReadings int          `bson:"max_readings"`
	MaxBytes    int          `bson:"max_bytes"`
	View        bool         `bson:"view"` // they are shown by the flat view, which cannot read compressed blocks
}

// A Moved is a former generation, whose readings are in another one.
type Moved struct {
	Collection string      `bson:"collection"`
	UUID       bson.Binary `bson:"uuid"`
	Into       string      `bson:"into"`
	Dropped    bool        `bson:"dropped"` // or it is about to be
	// Deleted has the sensors that were deleted while they were copied into a time series. Queries
	// skip their copies.
	Deleted []string `bson:"deleted,omitempty"`
}

// State is the state of a generation.
type State string

// The states.
const (
	Fresh State = "fresh" // not written to until all daemons read it
	Open  State = "open"  // may be written
)

// A List has a stream's generations, the oldest first.
type List struct {
	Stream      string       `bson:"_id"`
	Version     int64        `bson:"version"` // of the list; each change increments it
	Last        int          `bson:"last"`    // the highest number of a generation ever
	Generations []Generation `bson:"generations"`
	Moved       []Moved      `bson:"moved,omitempty"`

	gone map[string]bool // collections that do not exist
}

// find returns the index of the generation that fits a target; -1 if there is none.
func (l *List) find(t Target) int {
	return slices.IndexFunc(l.Generations, func(g Generation) bool { return g.Moving == nil && g.fits(t) })
}

// byCollection returns the index of the generation with a collection; -1 if there is none.
func (l *List) byCollection(collection string) int {
	return slices.IndexFunc(l.Generations, func(g Generation) bool { return g.Collection == collection })
}

// hidden returns the collections whose copies must be ignored in answers about the sensor: all of
// the list, because they are being moved or may be while the answer is read, and those that the
// sensor was deleted from.
func (l *List) hidden(sensor string) (out []string) {
	if len(l.Generations) > 1 {
		for i := range l.Generations {
			out = append(out, l.Generations[i].Collection)
		}
	}
	return append(out, l.deletedFrom(sensor)...)
}

// deletedFrom returns the collections from which copies of a sensor are left in a time series,
// although it was deleted.
func (l *List) deletedFrom(sensor string) (out []string) {
	for i := range l.Moved {
		if m := &l.Moved[i]; slices.Contains(m.Deleted, sensor) {
			out = append(out, m.Collection)
		}
	}
	return out
}

// Written returns the generation that a daemon with the target writes to; if there is none, the
// newest.
func (l *List) Written(t Target) Generation {
	if i := l.find(t); i >= 0 {
		return l.Generations[i]
	}
	return l.Generations[len(l.Generations)-1]
}

// fits reports whether readings for the target belong to the generation.
func (g *Generation) fits(t Target) bool {
	return slices.ContainsFunc(append([]Target{g.Target}, g.Was...), func(have Target) bool {
		return have.Storage == t.Storage && (have.Compressor == t.Compressor || have.Compressor == "" || t.Compressor == "")
	})
}

// isTarget reports whether a value of claim.Config.Places is a target, not the name of a collection, and
// the generation fits it.
func (g *Generation) isTarget(place string) bool {
	return strings.Contains(place, "/") && g.fits(parseTarget(place))
}

// Read returns a stream's list, nil if it has none yet.
func Read(ctx context.Context, db *mongo.Database, stream string) (*List, error) {
	var list List
	err := db.Collection(Collection).FindOne(ctx, bson.D{{Key: "_id", Value: stream}}).Decode(&list)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil //nolint:nilnil // there is none, and that is no error
	case err != nil:
		return nil, fmt.Errorf("read the generations of stream %q in collection %q: %w", stream, Collection, err)
	case len(list.Generations) == 0:
		return nil, fmt.Errorf("read the generations of stream %q in collection %q: its document lists none", stream, Collection)
	}
	return &list, nil
}

// registry changes one stream's list.
type registry struct {
	database *mongo.Database
	stream   string
	rollups  bool          // the stream has rollups, so it must stay in one collection
	pause    time.Duration // how long it takes until all daemons have read a change
}

// errConflict says that another daemon changed the list at the same time.
var errConflict = errors.New("another daemon has changed the list of the stream's collections at the same moment")

var errOlderDaemons = errors.New("the stream's storage or compressor is changed once all daemons are upgraded: a daemon of an earlier release, whose queries would not find the new collection, uses this stream, " +
	"or did until a few seconds ago")

// attempts is how often a change of the list is tried if other daemons also change it.
const attempts = 5

// ensure returns the list once it has a generation for each target that may be written.
func (r *registry) ensure(ctx context.Context, wanted []Target, mayAdd func() error) (list *List, err error) {
	for range attempts {
		if list, err = r.ensureOnce(ctx, wanted, mayAdd); !errors.Is(err, errConflict) {
			break
		}
	}
	return list, err
}

func (r *registry) ensureOnce(ctx context.Context, wanted []Target, mayAdd func() error) (*List, error) {
	if err := r.checkMaintenance(ctx); err != nil {
		return nil, err
	}
	list, err := Read(ctx, r.database, r.stream)
	if err == nil && list == nil {
		list, err = r.adoptCollections(ctx, wanted[0])
	}
	if err == nil {
		err = r.reconcile(ctx, list, wanted[0])
	}
	if err != nil {
		return nil, err
	}
	added := false
	for _, t := range wanted {
		if list.find(t) >= 0 {
			continue
		}
		if err := r.checkAdd(list, t, mayAdd); err != nil {
			return nil, err
		}
		list.Last++
		list.Generations = append(list.Generations, Generation{Collection: nameOf(r.stream, list.Last), Target: t, State: Fresh})
		added = true
	}
	if added {
		if err := r.change(ctx, list); err != nil {
			return nil, err
		}
	}
	return list, r.open(ctx, list, wanted)
}

// open opens the wanted generations that are fresh, once all daemons read them.
func (r *registry) open(ctx context.Context, list *List, wanted []Target) error {
	fresh := func(t Target) bool { return list.Generations[list.find(t)].State == Fresh }
	if !slices.ContainsFunc(wanted, fresh) {
		return nil
	}
	if err := machine.Pause(ctx, r.pause); err != nil {
		return fmt.Errorf("wait until all daemons know the stream's new collection: %w", err)
	}
	for _, t := range wanted {
		list.Generations[list.find(t)].State = Open
	}
	return r.change(ctx, list)
}

// change writes the list, unless it was changed since it was read.
func (r *registry) change(ctx context.Context, list *List) error {
	was := list.Version
	list.Version++
	result, err := r.database.Collection(Collection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: r.stream}, {Key: "version", Value: was}},
		bson.D{{Key: "$set", Value: bson.D{
			{Key: "version", Value: list.Version}, {Key: "last", Value: list.Last},
			{Key: "generations", Value: list.Generations}, {Key: "moved", Value: list.Moved},
		}}})
	switch {
	case err != nil:
		return fmt.Errorf("change the generations of stream %q in collection %q: %w", r.stream, Collection, err)
	case result.MatchedCount == 0:
		return errConflict
	}
	return nil
}

// adoptCollections creates the list of a stream that has none: from its existing collections or,
// for a new stream, with the wanted target.
func (r *registry) adoptCollections(ctx context.Context, wanted Target) (*List, error) {
	list := &List{Stream: r.stream, Version: 1, Last: 1}
	names, err := r.database.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$gte", Value: r.stream + ".g"}, {Key: "$lt", Value: r.stream + ".h"}}}})
	if err != nil {
		return nil, fmt.Errorf("look up the collections of stream %q: %w", r.stream, err)
	}
	names = slices.DeleteFunc(append(names, r.stream), func(name string) bool { return numberOf(r.stream, name) == 0 })
	slices.SortFunc(names, func(a, b string) int { return numberOf(r.stream, a) - numberOf(r.stream, b) })
	for _, name := range names {
		list.Last = max(list.Last, numberOf(r.stream, name))
		info, err := store.Collection{Database: r.database, Name: name}.Lookup(ctx)
		if err != nil {
			return nil, err
		}
		if info != nil && info.Storage() != "" {
			list.Generations = append(list.Generations, Generation{Collection: name, Target: Target{info.Storage(), info.Compressor()}, State: Open})
		}
	}
	if len(list.Generations) == 0 {
		list.Generations = []Generation{{Collection: r.stream, Target: wanted, State: Open}}
	}
	_, err = r.database.Collection(Collection).InsertOne(ctx, list)
	switch {
	case mongo.IsDuplicateKeyError(err):
		return nil, errConflict
	case err != nil:
		return nil, fmt.Errorf("list stream %q in collection %q: %w", r.stream, Collection, err)
	}
	return list, nil
}

// numberOf returns the number of the generation with a collection's name; 0 if it is not one.
func numberOf(stream, collection string) int {
	if collection == stream {
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(collection, stream+".g"))
	if err != nil || collection != nameOf(stream, n) {
		return 0
	}
	return n
}

// nameOf returns the name of the collection of a later generation.
func nameOf(stream string, number int) string { return stream + ".g" + strconv.Itoa(number) }

// reconcile updates the list if `brim recompress` or `brim migrate` of an earlier release, or a
// restored dump, has changed a collection. A collection that was dropped is empty, so it may be
// created with a former target again.
func (r *registry) reconcile(ctx context.Context, list *List, wanted Target) error {
	changed := false
	list.gone = make(map[string]bool)
	for i := range list.Generations {
		g := &list.Generations[i]
		c := store.Collection{Database: r.database, Name: g.Collection}
		info, err := c.Lookup(ctx)
		if err != nil {
			return err
		}
		if info == nil {
			list.gone[g.Collection] = true
			if slices.Contains(g.Was, wanted) {
				g.Target, changed = wanted, true
				g.Was = slices.DeleteFunc(g.Was, func(t Target) bool { return t == wanted })
			}
			continue
		}
		is := Target{info.Storage(), info.Compressor()}
		if is.Storage == "" || is.Storage == g.Storage && (is.Compressor == g.Compressor || is.Compressor == "") {
			continue
		}
		if !slices.Contains(g.Was, g.Target) {
			g.Was = append(g.Was, g.Target)
		}
		g.Target, changed = is, true
		g.Was = slices.DeleteFunc(g.Was, func(t Target) bool { return t == is })
	}
	if !changed {
		return nil
	}
	return r.change(ctx, list)
}

// checkAdd returns an error if no generation can be added for the target.
func (r *registry) checkAdd(list *List, t Target, mayAdd func() error) error {
	first := &list.Generations[0]
	mismatch := &store.MismatchError{Collection: first.Collection, What: "storage", Have: first.String(), Want: t.String()}
	if r.rollups {
		mismatch.Hint = "a stream with rollups stays in one collection; start it with its former storage and compressor, or without rollup"
		return mismatch
	}
	if t.Compressor == "" {
		mismatch.Want = string(t.Storage)
		mismatch.Hint = "the journal holds readings that an earlier release accepted for the former storage, and the collection was changed since, so that it cannot be told which of them are stored; " +
			"`brim journal replay --retarget` stores them, some perhaps twice"
		return mismatch
	}
	return mayAdd()
}

// checkMaintenance returns an error while `brim recompress` or `brim migrate` of an earlier release is
// unfinished: its collection may refuse writes, or have another name.
func (r *registry) checkMaintenance(ctx context.Context) error {
	var work struct {
		Kind  string `bson:"kind"`
		Phase string `bson:"phase"`
	}
	err := r.database.Collection(store.MaintenanceName).FindOne(ctx, bson.D{{Key: "_id", Value: r.stream}}).Decode(&work)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments) || err == nil && work.Phase == "done":
		return nil
	case err != nil:
		return fmt.Errorf("look up unfinished work on stream %q in collection %q: %w", r.stream, store.MaintenanceName, err)
	}
	return &store.MismatchError{
		Collection: r.stream, What: "an unfinished", Have: "`brim " + work.Kind + "` in phase " + work.Phase, Want: "none",
		Hint: "finish it, or end it with --abort, with the release that began it and with the former settings; then start this release",
	}
}

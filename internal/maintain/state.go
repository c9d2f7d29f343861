package maintain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

// stateCollection holds a document for each stream that is being worked on.
const stateCollection = store.MaintenanceName

// The collections beside a stream's.
func newName(stream string) string { return stream + store.CopySuffix }
func oldName(stream string) string { return stream + store.KeptSuffix }

// The phases of a move, in the order in which it comes by. Other kinds of work
// have their own.
const (
	phaseStart  = "start"  // nothing is there yet
	phaseCopy   = "copy"   // groups are copied in the order of their keys
	phaseFollow = "follow" // groups that changed meanwhile are made anew
	phaseVerify = "verify" // both collections are compared
	phaseFence  = "fence"  // the source refuses writes
	phaseSwap   = "swap"   // the names are being exchanged
	phaseDone   = "done"
)

// A state says how far the work on a stream is. All that is needed to go on
// after a kill stands in it.
type state struct {
	Stream string    `bson:"_id"`
	Kind   string    `bson:"kind"` // of work: recompress, migrate
	To     string    `bson:"to"`   // what the stream becomes: zstd, 1h
	Phase  string    `bson:"phase"`
	Owner  owner     `bson:"owner"`
	Lease  time.Time `bson:"lease"` // until when the owner is believed to be alive, by the server's clock
	Beat   int64     `bson:"beat"`  // counts the owner's signs of life

	Started  time.Time   `bson:"started"`
	Source   bson.Binary `bson:"source"` // UUID of the stream's collection
	Target   bson.Binary `bson:"target"` // UUID of the new one
	Original validation  `bson:"original"`
	Swap     Swap        `bson:"swap"`
	Indexes  []bson.D    `bson:"indexes"` // of the source, when the names were exchanged

	Span     int64     `bson:"span"`               // of a group, in milliseconds
	Token    bson.Raw  `bson:"token,omitempty"`    // all that changed before it was made anew
	Copied   *groupKey `bson:"copied,omitempty"`   // the last group that was
	Verified *groupKey `bson:"verified,omitempty"` // the last group that was
	Unsure   bool      `bson:"unsure"`             // something may have been written behind the comparison

	// For the result.
	BytesBefore int64     `bson:"bytesBefore"`
	Documents   int64     `bson:"documents"` // written by the copy
	Remade      int64     `bson:"remade"`    // groups
	Repaired    int64     `bson:"repaired"`  // groups
	Copies      int64     `bson:"copies"`    // how often the copy was begun
	FencedFor   int64     `bson:"fencedFor"` // milliseconds
	FencedAt    time.Time `bson:"fencedAt"`  // since when daemons wait; zero: they do not
}

// An owner is a process that works on a stream.
type owner struct {
	ID   string `bson:"id"`   // drawn at random; empty: no owner
	Host string `bson:"host"` // within which PID means something
	PID  int    `bson:"pid"`
}

// What keeps a command from working on a stream.
var (
	errNoWork = errors.New("nothing is under way")
	errLost   = errors.New("another process took the work over")
)

// A BusyError says that something else is under way on the stream.
type BusyError struct {
	Stream string
	What   string
}

// Error implements error.
func (e *BusyError) Error() string { return fmt.Sprintf("stream %q: %s", e.Stream, e.What) }

// command is how a command ends the work, or goes on with it if end is empty. It
// can be pasted.
func (s *state) command(end string) string {
	words := []string{"brim", s.Kind}
	switch {
	case s.Kind == KindMigrate && isGranularity(s.To):
		words = append(words, "--granularity", s.To)
	case s.Kind == KindMigrate:
		words = append(words, "--storage", s.To)
	case end == "":
		words = append(words, "--to", s.To)
	}
	words = append(words, "--stream", s.Stream)
	if end != "" {
		words = append(words, end)
	}
	return strings.Join(words, " ")
}

// readState returns what is under way on a stream, nil if nothing is.
func readState(ctx context.Context, db *mongo.Database, stream string) (*state, error) {
	var s state
	err := db.Collection(stateCollection).FindOne(ctx, bson.D{{Key: "_id", Value: stream}}).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how far the work on stream %q is: %w", stream, err)
	}
	return &s, nil
}

// set changes fields of the state, which j.state does not show.
func (j *job) set(fields bson.D) error {
	return j.update(j.ctx, bson.D{{Key: "$set", Value: fields}})
}

func (j *job) update(ctx context.Context, change bson.D) error {
	r, err := j.coll.UpdateOne(ctx, j.mine(), change)
	if err != nil {
		return fmt.Errorf("note how far the work on stream %q is: %w", j.state.Stream, err)
	}
	if r.MatchedCount == 0 {
		j.lose(errLost)
		return errLost
	}
	return nil
}

// mine is the state unless another process has it.
func (j *job) mine() bson.D {
	return bson.D{{Key: "_id", Value: j.state.Stream}, {Key: "owner.id", Value: j.owner.ID}}
}

// save writes all of j.state but who owns it.
func (j *job) save() error { return j.saveWithin(j.ctx) }

// saveWithin is save in the time that ctx allows, which may be after j.ctx.
func (j *job) saveWithin(ctx context.Context) error {
	raw, err := bson.Marshal(j.state)
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	var all bson.D
	if err := bson.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	fields, gone := bson.D{}, bson.D{}
	for _, e := range all {
		switch e.Key {
		case "_id", "owner", "lease", "beat":
		default:
			fields = append(fields, e)
		}
	}
	for key, absent := range map[string]bool{"token": j.state.Token == nil, "copied": j.state.Copied == nil, "verified": j.state.Verified == nil} {
		if absent {
			gone = append(gone, bson.E{Key: key, Value: ""})
		}
	}
	change := bson.D{{Key: "$set", Value: fields}}
	if len(gone) > 0 {
		change = append(change, bson.E{Key: "$unset", Value: gone})
	}
	return j.update(ctx, change)
}

// decode reads the state's document, in which a kind of work may keep fields of
// its own, into v.
func (j *job) decode(v any) error {
	if err := j.coll.FindOne(j.ctx, j.mine()).Decode(v); err != nil {
		return fmt.Errorf("read how far the work on stream %q is: %w", j.state.Stream, err)
	}
	return nil
}

// forget removes the state; the stream is free for other work.
func (j *job) forget() error {
	if _, err := j.coll.DeleteOne(j.ctx, j.mine()); err != nil {
		return fmt.Errorf("remove the state of the work on stream %q: %w", j.state.Stream, err)
	}
	return nil
}

// found is what the server says of a collection.
type found struct {
	Name    string   `bson:"name"`
	Type    string   `bson:"type"` // collection, timeseries or view
	Options bson.Raw `bson:"options"`
	Info    struct {
		UUID bson.Binary `bson:"uuid"`
	} `bson:"info"`
}

// lookUp returns what is known of the collection, nil if it does not exist.
func lookUp(ctx context.Context, db *mongo.Database, name string) (*found, error) {
	all, err := lookUpAll(ctx, db, name)
	return all[name], err
}

// lookUpAll looks several collections up at one moment.
func lookUpAll(ctx context.Context, db *mongo.Database, names ...string) (map[string]*found, error) {
	cursor, err := db.ListCollections(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}}, options.ListCollections())
	if err != nil {
		return nil, fmt.Errorf("look up collections %q: %w", names, err)
	}
	var list []*found
	if err := cursor.All(ctx, &list); err != nil {
		return nil, fmt.Errorf("look up collections %q: %w", names, err)
	}
	all := make(map[string]*found, len(list))
	for _, f := range list {
		all[f.Name] = f
	}
	return all, nil
}

// open notes that daemons do not wait any more.
func (s *state) open() {
	if !s.FencedAt.IsZero() {
		s.FencedFor += max(0, time.Since(s.FencedAt).Milliseconds())
		s.FencedAt = time.Time{}
	}
}

// is reports whether f is there and has the UUID.
func (f *found) is(uuid bson.Binary) bool {
	return f != nil && len(uuid.Data) > 0 && f.Info.UUID.Equal(uuid)
}

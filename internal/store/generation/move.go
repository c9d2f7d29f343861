package generation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Mover empties generations of a stream into the one that daemons write:
//
//	in use ──▶ moving ──────────────────────────▶ moved ──▶ dropped
//	            no writes; readings are copied,    │
//	            and queries leave the copies out   └ queries read the copies
//
// A query uses one version of the list for its whole answer, so it returns either the original of
// a reading or its copy, never both and never neither. Moving is safe because:
//
//   - A generation is moved only when no daemon has readings left for it: none that runs, and
//     none that ended without storing everything in its journal. A daemon claims its sessions,
//     with their targets, before it reads the list. So either it sees that the generation is
//     moving, or the Mover, which marks it first, sees its claim.
//   - A collection of buckets is fenced, so that a delayed update is refused. A time series
//     cannot be fenced.
//   - A copy has one possible _id, so nothing is copied twice, however often it is retried.
//   - A deletion deletes originals before copies, and the Mover looks at the originals again
//     after it has copied. So a sensor that was deleted meanwhile does not come back.
//   - A collection is dropped some time after it left the list. An answer that took longer is
//     checked, see Store.check.
type Mover struct {
	cfg          MoveConfig
	registry     registry
	lease        *lease
	progress     MoveProgress
	saved        time.Time
	lastProgress time.Time // when something was last read
	resumed      time.Time // when the last pause ended
}

// MoveConfig configures a Mover.
type MoveConfig struct {
	// Config has the settings for bucket documents if a time series is moved into buckets.
	store.Config

	Abandon  []string // IDs of daemons that are not running, whose journals are given up
	Share    float64  // part of the time to work; 0: all, without pauses
	Progress func(MoveProgress)
	Claims   *mongo.Database // the same database, with its own connection pool
	Place    string          // identifies the deployment of Database, without secrets
	// Pause is how long a moved collection is kept for queries that began before the move ended.
	// Longer queries detect that it is gone. 0: 4 s.
	Pause time.Duration
}

// MoveProgress is the progress of a move.
type MoveProgress struct {
	From, Into string // collections
	Sensor     string // that is being copied
	Readings   int64  // copied by this process
	Bytes      int64  // read by this process
	Total      int64  // bytes of the collection, approximately
	Note       string // the current activity, if not copying
}

// MovedCollection is a collection that was moved.
type MovedCollection struct {
	Collection string `json:"collection"`
	Into       string `json:"into"`
	Readings   int64  `json:"readings"` // copied by this process
}

// A BusyError says why a stream cannot be moved yet. Copies made so far remain hidden from
// queries.
type BusyError struct {
	Stream, Collection string
	Reasons            []string
}

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("collection %q of stream %q is still in use:\n  - %s", e.Collection, e.Stream, strings.Join(e.Reasons, "\n  - "))
}

// NewMover returns a Mover; it does no I/O.
func NewMover(cfg MoveConfig) *Mover {
	cfg.Pause = cmp.Or(cfg.Pause, 2*propagationDelay)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(MoveProgress) {}
	}
	return &Mover{cfg: cfg, registry: registry{database: cfg.Database, stream: cfg.Stream, pause: propagationDelay}}
}

// Run moves all generations into the one that daemons write to, or into the last one if no daemon
// is running, and drops their collections. It may be interrupted at any time and run again. A
// *BusyError says that daemons use another generation.
func (m *Mover) Run(ctx context.Context) (moved []MovedCollection, err error) {
	if m.lease, err = m.acquireLease(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.lease.end(ctx)) }()
	if err := m.abandon(ctx); err != nil {
		return nil, err
	}
	for {
		m.lastProgress = time.Now()
		one, err := m.step(ctx)
		for err != nil && store.Transient(err) && time.Since(m.lastProgress) < retryFor && machine.Pause(ctx, leaseRetry) == nil {
			m.cfg.Logger.Warn("MongoDB did not answer; trying again", "err", err)
			one, err = m.step(ctx)
		}
		if err != nil || one == nil {
			return moved, err
		}
		moved = append(moved, *one)
	}
}

// retryFor is how long a step is retried while MongoDB is unavailable and there is no progress.
const retryFor = 5 * time.Minute

// step moves one generation. It returns nil if there is only one, and nothing is left to drop.
func (m *Mover) step(ctx context.Context) (*MovedCollection, error) {
	list, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.dropMoved(ctx, list); err != nil {
		return nil, err
	}
	from, err := m.choose(ctx, list)
	if err != nil || from == nil {
		return nil, err
	}
	one, err := m.move(ctx, from)
	return &one, err
}

// list reads the list, if this process still has the lease.
func (m *Mover) list(ctx context.Context) (*List, error) {
	if err := m.lease.permit(ctx); err != nil {
		return nil, err
	}
	list, err := Read(ctx, m.cfg.Database, m.cfg.Stream)
	if err == nil && list == nil {
		err = fmt.Errorf("database %q has no stream %q: no daemon of this release has stored it", m.cfg.Database.Name(), m.cfg.Stream)
	}
	return list, err
}

// change applies do to the list. It retries if a daemon changes the list at the same time.
func (m *Mover) change(ctx context.Context, do func(*List) error) error {
	for {
		list, err := m.list(ctx)
		if err != nil {
			return err
		}
		if err := do(list); err != nil {
			return err
		}
		if err := m.registry.change(ctx, list); !errors.Is(err, errConflict) {
			return err
		}
	}
}

// abandon gives up the journals of daemons that are not running.
func (m *Mover) abandon(ctx context.Context) error {
	if len(m.cfg.Abandon) == 0 {
		return nil
	}
	uses, err := claim.Uses(ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return err
	}
	for _, id := range m.cfg.Abandon {
		found := false
		for i := range uses {
			u := &uses[i]
			if u.Holder.ID() != id {
				continue
			}
			found = true
			taken := !u.Alive
			if taken {
				if taken, err = claim.Abandon(ctx, m.cfg.Database, u); err != nil {
					return err
				}
			}
			if !taken {
				return fmt.Errorf("%s runs, or did until some seconds ago, so it cannot be abandoned: stop it first", &u.Holder)
			}
			m.cfg.Logger.Warn("a daemon's journal is given up; if the daemon is started again, readings that it had not stored become dead letters", "daemon", id, "session", u.Session)
		}
		if !found {
			return fmt.Errorf("no daemon %q has readings for stream %q; run the command without --abandon to see which daemons have", id, m.cfg.Stream)
		}
	}
	return nil
}

// choose marks the generation to move next as moving and returns it; nil if there is only one.
func (m *Mover) choose(ctx context.Context, list *List) (*Generation, error) {
	if i := slices.IndexFunc(list.Generations, func(g Generation) bool { return g.Moving != nil }); i >= 0 {
		return &list.Generations[i], nil // an earlier process has begun
	}
	if len(list.Generations) == 1 {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	uses, err := claim.Uses(ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return nil, err
	}
	into, err := m.chooseTarget(list, uses)
	if err != nil {
		return nil, err
	}
	from := &list.Generations[0]
	if into == 0 {
		from = &list.Generations[1]
	}
	if err := m.checkUnused(from, &list.Generations[into], uses); err != nil {
		return nil, err
	}
	if from.Moving, err = m.check(ctx, from, &list.Generations[into]); err != nil {
		return nil, err
	}
	return from, m.mark(ctx, from.Collection, from.Moving)
}

// check checks that a generation can be moved, and returns its mark.
func (m *Mover) check(ctx context.Context, from, into *Generation) (*Moving, error) {
	there, err := store.Collection{Database: m.cfg.Database, Name: into.Collection}.Lookup(ctx)
	if err != nil {
		return nil, err
	}
	if there == nil || there.Storage() != into.Storage {
		return nil, fmt.Errorf("collection %q, which readings of stream %q would be moved into, is not there yet: start a daemon with --storage %s --compressor %s first",
			into.Collection, m.cfg.Stream, into.Storage, into.Compressor)
	}
	rolled, err := m.cfg.Database.Collection(store.RollupName(m.cfg.Stream)).CountDocuments(ctx, bson.D{}, options.Count().SetLimit(1))
	if err != nil {
		return nil, fmt.Errorf("look for rollups of stream %q: %w", m.cfg.Stream, err)
	}
	if rolled > 0 {
		return nil, fmt.Errorf("collection %q has rollups of former buckets, which would count readings again after a move: drop it first", store.RollupName(m.cfg.Stream))
	}
	as := &Moving{Into: into.Collection, As: Form{
		Seconds: int(m.cfg.Granularity / time.Second), Format: m.cfg.Format, View: m.cfg.View,
		MaxReadings: cmp.Or(m.cfg.MaxReadings, maxReadings), MaxBytes: cmp.Or(m.cfg.MaxBytes, maxBytes),
	}}
	c := store.Collection{Database: m.cfg.Database, Name: from.Collection}
	info, err := c.Lookup(ctx)
	if err != nil || info == nil { // it was removed by hand, so there is nothing to copy
		return as, err
	}
	as.UUID = info.UUID
	if err := c.MayFence(info); err != nil {
		return nil, err
	}
	return as, m.enoughSpace(ctx, from)
}

// mark sets Moving of a generation.
func (m *Mover) mark(ctx context.Context, collection string, as *Moving) error {
	return m.change(ctx, func(list *List) error {
		i := list.byCollection(collection)
		if i < 0 || as != nil && list.byCollection(as.Into) < 0 {
			return fmt.Errorf("stream %q has lost collection %q, or the one that it is moved into, during the move", m.cfg.Stream, collection)
		}
		list.Generations[i].Moving = as
		return nil
	})
}

// chooseTarget returns the generation that daemons write to, or the last one if no daemon is
// running.
func (m *Mover) chooseTarget(list *List, uses []claim.Use) (int, error) {
	into := -1
	for _, u := range uses {
		if !u.Alive {
			continue
		}
		i := list.find(parseTarget(u.Holder.Writes[m.cfg.Stream]))
		if i < 0 || i == into {
			continue
		}
		if into >= 0 {
			return 0, &BusyError{m.cfg.Stream, list.Generations[min(i, into)].Collection, []string{fmt.Sprintf(
				"daemons write both %q (%s) and %q (%s): restart them all with the same --storage and --compressor",
				list.Generations[into].Collection, list.Generations[into].Target, list.Generations[i].Collection, list.Generations[i].Target)}}
		}
		into = i
	}
	if into < 0 {
		into = len(list.Generations) - 1
	}
	return into, nil
}

// checkUnused returns a *BusyError unless no daemon has readings for the generation.
func (m *Mover) checkUnused(from, into *Generation, uses []claim.Use) error {
	var reasons []string
	for i := range uses {
		u := &uses[i]
		var reason string
		switch {
		case !u.Holder.Moves:
			reason = fmt.Sprintf("%s is of an earlier release, whose queries would count copies: upgrade it", &u.Holder)
		case u.Places[m.cfg.Stream] != from.Collection && !from.isTarget(u.Places[m.cfg.Stream]):
			continue
		case u.Alive && u.Places[m.cfg.Stream] != from.Collection:
			reason = fmt.Sprintf("%s is starting: try again in a moment", &u.Holder)
		case u.Alive && from.fits(parseTarget(u.Holder.Writes[m.cfg.Stream])):
			reason = fmt.Sprintf("%s writes it: restart it with --storage %s --compressor %s", &u.Holder, into.Storage, into.Compressor)
		case u.Alive:
			reason = fmt.Sprintf("%s has readings for it in its journal and is storing them: try again in a moment", &u.Holder)
		case u.Stopped:
			reason = fmt.Sprintf("%s has stopped with readings for it in its journal", &u.Holder)
		default:
			reason = fmt.Sprintf("%s was killed, so its journal may hold readings for it", &u.Holder)
		}
		if !u.Alive {
			reason += ": start that daemon again, or give its readings up with --abandon " + u.Holder.ID()
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	if reasons == nil {
		return nil
	}
	return &BusyError{m.cfg.Stream, from.Collection, reasons}
}

// enoughSpace returns an error if the copies would not fit on the disk, as far as MongoDB says.
func (m *Mover) enoughSpace(ctx context.Context, from *Generation) error {
	var disk struct {
		Used  float64 `bson:"fsUsedSize"`
		Total float64 `bson:"fsTotalSize"`
	}
	if err := m.cfg.Database.RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Decode(&disk); err != nil {
		return fmt.Errorf("ask for the free space of MongoDB's disk: %w", err)
	}
	size, err := m.sizeOf(ctx, from.Collection)
	if err != nil {
		return err
	}
	if free := disk.Total - disk.Used; disk.Total > 0 && float64(size.StorageSize) > free {
		return fmt.Errorf("collection %q takes %s on MongoDB's disk, which has %s free: the copies would not fit", from.Collection,
			humanize.IBytes(uint64(size.StorageSize)), humanize.IBytes(uint64(free)))
	}
	return nil
}

type collectionSize struct {
	Size        int64 `bson:"size"`        // before compression
	StorageSize int64 `bson:"storageSize"` // on disk
}

func (m *Mover) sizeOf(ctx context.Context, collection string) (size collectionSize, err error) {
	err = m.cfg.Database.RunCommand(ctx, bson.D{{Key: "collStats", Value: collection}}).Decode(&size)
	if err != nil {
		return size, fmt.Errorf("ask for the size of collection %q: %w", collection, err)
	}
	return size, nil
}

// release waits until all daemons know that a generation is moving, fences it, and checks that no
// daemon began to use it before it was marked. Otherwise it removes the mark.
func (m *Mover) release(ctx context.Context, from, into *Generation) error {
	m.report(from.Collection, into.Collection, "waiting until all daemons know")
	if err := machine.Pause(ctx, m.registry.pause); err != nil {
		return err
	}
	if from.Storage == store.Bucket {
		if err := (store.Collection{Database: m.cfg.Database, Name: from.Collection}).Fence(ctx); err != nil {
			return err
		}
	}
	if err := m.recheckUnused(ctx, from, into); err != nil {
		return errors.Join(err, m.undo(ctx, from))
	}
	if err := m.extendExpiry(ctx, from, into); err != nil {
		return err
	}
	from.Moving.Released = true
	return m.mark(ctx, from.Collection, from.Moving)
}

// recheckUnused is checkUnused with the current claims.
func (m *Mover) recheckUnused(ctx context.Context, from, into *Generation) error {
	uses, err := claim.Uses(ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return err
	}
	return m.checkUnused(from, into, uses)
}

func (m *Mover) report(from, into, text string) {
	m.progress = MoveProgress{From: from, Into: into, Note: text}
	m.cfg.Progress(m.progress)
}

// A copier is a store that the Mover can copy from and to.
type copier interface {
	backend
	CopyReadings(ctx context.Context, o store.Origin, sensor string, readings iter.Seq2[telemetry.Reading, error]) (int64, error)
	// DropCopies removes the copies of a sensor, or reports that copies are left that cannot be
	// removed.
	DropCopies(ctx context.Context, o store.Origin, sensor string) (left bool, err error)
}

// A transfer is the copying of one generation.
type transfer struct {
	source, target copier
	origin         store.Origin
	list           *List  // as it was when the transfer began
	done           string // the last sensor that an earlier process copied
}

// open returns the store of a generation.
func (m *Mover) open(g *Generation, as Form) (copier, error) {
	cfg := m.cfg.Config
	cfg.Granularity, cfg.Format, cfg.MaxReadings, cfg.MaxBytes, cfg.View = time.Duration(as.Seconds)*time.Second, as.Format, as.MaxReadings, as.MaxBytes, as.View
	cfg.Name, cfg.Compressor, cfg.Registerer = g.Collection, g.Compressor, prometheus.NewRegistry()
	if g.Storage == store.TimeSeries {
		return timeseries.New(cfg)
	}
	return bucket.New(cfg)
}

// move copies a generation that is marked as moving, and removes it from the list.
func (m *Mover) move(ctx context.Context, from *Generation) (out MovedCollection, err error) {
	out = MovedCollection{Collection: from.Collection, Into: from.Moving.Into}
	list, err := m.list(ctx)
	if err != nil {
		return out, err
	}
	i := list.byCollection(from.Moving.Into)
	if i < 0 {
		return out, fmt.Errorf("collection %q is being moved into %q, which stream %q does not have", from.Collection, from.Moving.Into, m.cfg.Stream)
	}
	into := &list.Generations[i]
	begun := from.Moving.Released
	if !begun {
		if err := m.release(ctx, from, into); err != nil {
			return out, err
		}
	}
	size, err := m.sizeOf(ctx, from.Collection)
	if err != nil {
		return out, err
	}
	m.progress = MoveProgress{From: from.Collection, Into: into.Collection, Total: size.Size}
	t := transfer{
		origin: store.Origin{Collection: from.Collection, Number: numberOf(m.cfg.Stream, from.Collection), UUID: from.Moving.UUID},
		list:   list, done: from.Moving.Done,
	}
	t.source, err = m.open(from, from.Moving.As)
	if err != nil {
		return out, err
	}
	t.target, err = m.open(into, from.Moving.As)
	if err != nil {
		return out, err
	}
	if begun {
		if err := m.dropOrphans(ctx, &t); err != nil {
			return out, err
		}
	}
	if err := m.copyAll(ctx, &t); err != nil {
		return out, err
	}
	out.Readings = m.progress.Readings
	// An abandoned daemon may have come back under another session. A time series is not fenced, so
	// it is not released then. Buckets must stay released: their copies are not made again.
	if err := m.recheckUnused(ctx, from, into); err != nil {
		if from.Storage == store.Bucket {
			return out, err
		}
		return out, errors.Join(err, m.mark(ctx, from.Collection, &Moving{Into: from.Moving.Into, UUID: from.Moving.UUID, As: from.Moving.As, Deleted: from.Moving.Deleted}))
	}
	m.report(from.Collection, into.Collection, "copied; waiting until no query reads the former collection")
	return out, m.change(ctx, func(list *List) error {
		i := list.byCollection(from.Collection)
		if i < 0 || list.Generations[i].Moving == nil {
			return fmt.Errorf("collection %q was removed from the list of stream %q during the move", from.Collection, m.cfg.Stream)
		}
		list.Moved = append(list.Moved, Moved{Collection: from.Collection, UUID: from.Moving.UUID, Into: into.Collection, Deleted: list.Generations[i].Moving.Deleted})
		list.Generations = slices.Delete(list.Generations, i, i+1)
		return nil
	})
}

// undo removes the mark of a generation, unless a daemon has added another one for its target
// meanwhile. Then it stays marked, so that no other daemon uses it.
func (m *Mover) undo(ctx context.Context, from *Generation) error {
	if err := (store.Collection{Database: m.cfg.Database, Name: from.Collection}).Unfence(ctx); err != nil {
		return err
	}
	return m.change(ctx, func(list *List) error {
		if i := list.byCollection(from.Collection); i >= 0 && list.find(from.Target) < 0 {
			list.Generations[i].Moving = nil
		}
		return nil
	})
}

// extendExpiry makes MongoDB keep documents whose windows are longer than those of the daemons
// until their newest readings are old enough. The next start of a daemon sets the exact time.
func (m *Mover) extendExpiry(ctx context.Context, from, into *Generation) error {
	if into.Storage != store.Bucket {
		return nil
	}
	c := store.Collection{Database: m.cfg.Database, Name: into.Collection}
	after, there, err := c.Expiry(ctx)
	if err != nil || !there {
		return err
	}
	longest := time.Duration(from.Moving.As.Seconds) * time.Second
	if from.Storage == store.Bucket {
		if longest, err = (store.Collection{Database: m.cfg.Database, Name: from.Collection}).LongestWindow(ctx, longest); err != nil {
			return err
		}
	}
	return c.EnsureExpiry(ctx, "bucketStart", after+longest)
}

// dropOrphans removes copies of sensors that were deleted while an earlier, interrupted
// process copied them.
func (m *Mover) dropOrphans(ctx context.Context, t *transfer) error {
	m.resumed = time.Now()
	for seen, err := range t.target.Sensors(ctx, telemetry.SensorQuery{After: t.done}) {
		if err == nil {
			err = m.lease.permit(ctx)
		}
		if err != nil {
			return fmt.Errorf("list the sensors of the target: %w", err)
		}
		if err := m.dropDeleted(ctx, t, seen.Sensor); err != nil {
			return err
		}
		if err := m.throttle(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// dropDeleted removes the copies of a sensor if it has no originals any more. A deletion
// deletes originals first: if they are there now, the deletion will find the copies.
func (m *Mover) dropDeleted(ctx context.Context, t *transfer, sensor string) error {
	if _, there, err := t.source.Newest(ctx, sensor); err != nil || there {
		return err
	}
	if err := m.checkOrigin(ctx, t.origin); err != nil {
		return err
	}
	left, err := t.target.DropCopies(ctx, t.origin, sensor)
	if err != nil || !left {
		return err
	}
	return m.change(ctx, func(list *List) error {
		if i := list.byCollection(t.origin.Collection); i >= 0 && list.Generations[i].Moving != nil {
			as := list.Generations[i].Moving
			as.Deleted = append(as.Deleted, sensor)
		}
		return nil
	})
}

// checkOrigin returns nil if the origin still exists. Then readings that were not found in it
// before were deleted, because its name is never reused. Otherwise another process has finished
// the move, and only the copies are left.
func (m *Mover) checkOrigin(ctx context.Context, o store.Origin) error {
	info, err := store.Collection{Database: m.cfg.Database, Name: o.Collection}.Lookup(ctx)
	switch {
	case err != nil || info == nil && len(o.UUID.Data) == 0: // there was no collection to move
	case info == nil || !info.UUID.Equal(o.UUID):
		err = fmt.Errorf("collection %q is gone: did another process move it?", o.Collection)
	}
	return err
}

// copyAll copies all readings.
func (m *Mover) copyAll(ctx context.Context, t *transfer) error {
	m.resumed = time.Now()
	fromBuckets, isBucket := t.source.(*bucket.Store)
	intoBuckets, both := t.target.(*bucket.Store)
	if isBucket && both {
		return m.copyParts(ctx, t, fromBuckets, intoBuckets)
	}
	for seen, err := range t.source.Sensors(ctx, telemetry.SensorQuery{After: t.done}) {
		if err != nil {
			return fmt.Errorf("list the sensors of collection %q: %w", t.origin.Collection, err)
		}
		if err := m.copySensor(ctx, t, seen.Sensor); err != nil {
			return err
		}
		if err := m.save(ctx, t.origin, seen.Sensor); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of the times of all readings, in milliseconds since the epoch: the start of the years 1
// and 10000.
const (
	firstTime = -62_135_596_800_000
	lastTime  = 253_402_300_800_000
)

// readBatch is how many readings are read at once. MongoDB closes a cursor that is idle for ten
// minutes, which a larger batch could take with many pauses.
const readBatch = 2000

// readingBytes is the estimated size of a reading, for the progress.
const readingBytes = 60

// copySensor copies the readings of a sensor.
func (m *Mover) copySensor(ctx context.Context, t *transfer, sensor string) error {
	m.progress.Sensor = sensor
	// What the list hides in the source are copies of deleted sensors.
	query := telemetry.Query{Sensor: sensor, From: firstTime, To: lastTime, Hidden: t.list.hidden(sensor), Expected: readBatch}
	readings := func(yield func(telemetry.Reading, error) bool) {
		for r, err := range t.source.Readings(ctx, query) {
			if err == nil {
				err = m.throttle(ctx, readingBytes)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
	n, err := t.target.CopyReadings(ctx, t.origin, sensor, readings)
	if errors.Is(err, store.ErrOtherCopies) {
		if err := errors.Join(m.lease.permit(ctx), m.checkOrigin(ctx, t.origin)); err != nil {
			return err
		}
		if _, err = t.target.DropCopies(ctx, t.origin, sensor); err == nil {
			n, err = t.target.CopyReadings(ctx, t.origin, sensor, readings)
		}
	}
	if err != nil {
		return fmt.Errorf("copy sensor %q: %w", sensor, err)
	}
	m.progress.Readings += n
	return m.dropDeleted(ctx, t, sensor)
}

// batchBytes is how many bytes are copied with one command.
const batchBytes = 1 << 20

// copyParts copies documents as they are.
func (m *Mover) copyParts(ctx context.Context, t *transfer, source, target *bucket.Store) error {
	var batch []bson.Raw
	bytes, last := 0, t.done
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := m.lease.permit(ctx); err != nil {
			return err
		}
		gone, err := target.CopyParts(ctx, t.origin, source, batch)
		if err == nil && len(gone) > 0 {
			if err = m.checkOrigin(ctx, t.origin); err == nil {
				err = target.RemoveCopies(ctx, gone)
			}
		}
		if err != nil {
			return err
		}
		batch, bytes = batch[:0], 0
		return nil
	}
	for doc, err := range source.Parts(ctx, t.done) {
		if err == nil {
			err = m.throttle(ctx, int64(len(doc)))
		}
		if err != nil {
			return err
		}
		sensor, _ := doc.Lookup("_id", "s").StringValueOK()
		if bytes >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
			// More documents of the last sensor may follow.
			if sensor != last {
				if err := m.save(ctx, t.origin, last); err != nil {
					return err
				}
			}
		}
		last, m.progress.Sensor = sensor, sensor
		n, _ := doc.Lookup("count").AsInt64OK()
		m.progress.Readings += n
		batch, bytes = append(batch, slices.Clone(doc)), bytes+len(doc)
	}
	return flush()
}

const (
	// workTime is how long a Mover works between pauses, if a command does not take longer. Such
	// short turns delay requests of daemons less than longer ones.
	workTime = 5 * time.Millisecond
	// maxPause is the longest pause, however long a command took.
	maxPause = 30 * time.Second
)

// throttle reports that n bytes were read, and pauses if it is time to.
func (m *Mover) throttle(ctx context.Context, n int64) error {
	m.progress.Bytes, m.lastProgress = m.progress.Bytes+n, time.Now()
	m.cfg.Progress(m.progress)
	worked := m.lastProgress.Sub(m.resumed)
	if m.cfg.Share == 0 || worked < workTime {
		return nil
	}
	err := machine.Pause(ctx, min(time.Duration(float64(worked)*(1/m.cfg.Share-1)), maxPause))
	m.resumed = time.Now()
	m.lastProgress = m.resumed
	return err
}

// saveEvery is how often progress is stored.
const saveEvery = 2 * time.Second

// save records that all readings up to a sensor are copied. A daemon that changes the list at the
// same time may overwrite this; then some are copied again, which is harmless.
func (m *Mover) save(ctx context.Context, o store.Origin, sensor string) error {
	if err := m.lease.permit(ctx); err != nil {
		return err
	}
	if time.Since(m.saved) < saveEvery {
		return nil
	}
	m.saved = time.Now()
	_, err := m.cfg.Database.Collection(Collection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: m.cfg.Stream}, {Key: "generations.collection", Value: o.Collection}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "generations.$.moving.done", Value: sensor}}}})
	if err != nil {
		return fmt.Errorf("note how far collection %q is copied: %w", o.Collection, err)
	}
	return nil
}

// dropMoved drops the collections of generations that were removed from the list, and their views,
// after a pause.
func (m *Mover) dropMoved(ctx context.Context, list *List) error {
	for _, moved := range list.Moved {
		info, err := (store.Collection{Database: m.cfg.Database, Name: moved.Collection}).Lookup(ctx)
		if err != nil {
			return err
		}
		there := info != nil && info.UUID.Equal(moved.UUID)
		if moved.Dropped && !there {
			continue
		}
		if !moved.Dropped {
			if err := machine.Pause(ctx, m.cfg.Pause); err != nil {
				return err
			}
			err := m.change(ctx, func(list *List) error {
				for i := range list.Moved {
					if list.Moved[i].Collection == moved.Collection {
						list.Moved[i].Dropped = true
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if !there {
			continue
		}
		if err := m.cfg.Database.Collection(moved.Collection).Drop(ctx); err != nil {
			return fmt.Errorf("drop collection %q, whose readings are in %q: %w", moved.Collection, moved.Into, err)
		}
		if err := (store.View{Database: m.cfg.Database, Stream: moved.Collection}).Remove(ctx); err != nil {
			return fmt.Errorf("drop the view of collection %q: %w", moved.Collection, err)
		}
	}
	return nil
}

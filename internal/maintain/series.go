package maintain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

// This file and its neighbours series*.go move a stream between bucket documents
// and a native time-series collection. Such a collection cannot be renamed, takes
// no validator and has no change stream, so neither way is that of a Reshaper:
//
//	buckets → series   hold ─▶ fence ─▶ rename the old, create the new ─▶ restart daemons ─▶ fill in the old readings ─▶ verify
//	series → buckets   copy, round by round ─▶ verify ─▶ hold ─▶ last round ─▶ drop the old, rename the new ─▶ restart daemons
//
// An outcome that is unknown under one storage cannot be looked up under the
// other. Therefore daemons are held while the names change: they take nothing,
// and all that they took is stored.

// A Holder holds the daemons that write a stream.
type Holder interface {
	// Hold has all daemons refuse readings of the stream for the lease, 0 until
	// they are restarted, and returns when all that they took is stored. What it
	// returns is the same as before if no hold has ended between.
	Hold(ctx context.Context, lease time.Duration) (name string, err error)
	// Release lets them take readings again.
	Release(ctx context.Context) error
}

// SeriesConfig says which stream gets which storage.
type SeriesConfig struct {
	Database *mongo.Database // of store.Connection.Database: majority concerns, primary
	Stream   string
	To       store.Storage // Bucket or TimeSeries
	// The stream's settings, for the collection that is made.
	Parts      Parts
	Compressor store.Compressor
	Retention  time.Duration

	Holder   Holder
	DropOld  bool  // the last step, after which the old collection is gone
	Rate     int64 // bytes/s read; 0: no limit
	Lease    time.Duration
	Progress func(Progress) // called by one goroutine, often; may be nil
	Tell     func(string)   // what the operator has to know or do; may be nil
	Logger   *slog.Logger

	chunk int64 // bytes that are read, and written, at a time; 0: seriesChunk
	apart bool  // exchange collections in two steps, as where applyOps is not permitted
}

// seriesChunk is small enough that what a killed run may have sent is soon looked
// up, and large enough that notes of how far it is do not cost much.
const seriesChunk = 2 << 20

// SeriesResult tells how a change of storage ended.
type SeriesResult struct {
	Stream    string        `json:"stream"`
	To        store.Storage `json:"to"`
	Switched  bool          `json:"switched"` // the stream has the new storage
	Dropped   bool          `json:"dropped"`  // the old collection is gone
	Readings  int64         `json:"readings"` // that were compared in the end
	Repaired  int64         `json:"repaired"` // readings or groups that the comparison found wrong, and are right now
	Expired   int64         `json:"expired"`  // readings older than the retention, which were left out
	Kept      string        `json:"kept"`     // where the old readings are still; empty: nowhere
	HeldFor   float64       `json:"held_seconds"`
	Duration  float64       `json:"seconds"` // of this run
	Rounds    int           `json:"rounds,omitempty"`
	Remade    int64         `json:"remade_groups,omitempty"`
	LastRound float64       `json:"last_round_seconds,omitempty"`
}

// phaseReady is that of a copy which is verified and has not the name yet.
const phaseReady = "ready"

// KindMigrate is how the work of `brim migrate` is called in MongoDB.
const KindMigrate = "migrate"

// seriesState is what the state's document holds beside the state.
type seriesState struct {
	Series struct {
		Done     bson.Raw `bson:"done,omitempty"`     // all documents up to this _id are filled in
		Until    bson.Raw `bson:"until,omitempty"`    // some of those up to this one may be
		Verified bson.Raw `bson:"verified,omitempty"` // up to here all was compared
		Checked  bool     `bson:"checked"`            // every group was, of a copy
		Readings int64    `bson:"readings"`
		Repaired int64    `bson:"repaired"`
		Expired  int64    `bson:"expired"`
		HeldFor  int64    `bson:"heldFor"`          // milliseconds
		Window   int64    `bson:"window,omitempty"` // of the buckets of a copy, milliseconds
	} `bson:"series"`
}

// series is one run of a change of storage.
type series struct {
	cfg      SeriesConfig
	job      *job
	ctx      context.Context // the job's
	db       *mongo.Database
	own      seriesState
	throttle *throttle
	progress Progress
	result   *SeriesResult
	holds    int           // that were tried
	holding  *hold         // that is given up where something goes wrong
	settled  *hold         // under which this run has found copy and source to be equal
	expires  time.Duration // of the time series that is copied, as MongoDB has it; 0: nothing does
}

// ChangeStorage gives a stream its other storage, and goes on where an earlier
// run was killed. While MongoDB is away, as an embedded one is while its daemon is
// restarted, it waits. An error of another kind leaves everything as it is, to be
// run again.
func ChangeStorage(ctx context.Context, cfg SeriesConfig) (*SeriesResult, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	began, reached := time.Now(), false
	for {
		result, err := cfg.once(ctx, &reached)
		if err == nil {
			result.Duration = time.Since(began).Seconds()
			return result, nil
		}
		if ctx.Err() != nil || !reached || !away(err) {
			return nil, err
		}
		cfg.Logger.Info("waiting for MongoDB", "err", err)
		cfg.Progress(Progress{Phase: "wait", Note: "for MongoDB, which does not answer"})
		if err := machine.Pause(ctx, retryEvery); err != nil {
			return nil, err
		}
	}
}

func (c *SeriesConfig) check() error {
	if c.To != store.Bucket && c.To != store.TimeSeries {
		return fmt.Errorf("storage %q cannot be migrated to; allowed: %s and %s", c.To, store.Bucket, store.TimeSeries)
	}
	if c.Holder == nil {
		return errors.New("change the storage: no daemon is held")
	}
	if c.chunk == 0 {
		c.chunk = seriesChunk
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Tell == nil {
		c.Tell = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// away reports whether MongoDB did not answer, or not as one that can be used.
func away(err error) bool {
	return transient(err) || errors.Is(err, store.ErrAway)
}

// once works until it is done or something is in the way. reached becomes true
// when MongoDB has answered.
func (c *SeriesConfig) once(ctx context.Context, reached *bool) (*SeriesResult, error) {
	s, err := c.open(ctx, false)
	if err != nil {
		return nil, err
	}
	*reached = true
	defer s.job.end()
	if c.To == store.TimeSeries {
		err = s.intoSeries()
	} else {
		err = s.intoBuckets()
	}
	if err != nil {
		// A job that is lost cancels what is under way, which then says no more.
		if cause := context.Cause(s.ctx); cause != nil && ctx.Err() == nil {
			err = cause
		}
		return nil, err
	}
	return s.result, nil
}

// open makes the work this process's; existing says not to begin any.
func (c *SeriesConfig) open(ctx context.Context, existing bool) (*series, error) {
	j, err := claim(ctx, claimConfig{
		Database: c.Database, Stream: c.Stream, Kind: KindMigrate, To: string(c.To), Existing: existing,
		Lease: c.Lease, Logger: c.Logger, Tell: c.Progress,
	})
	if err != nil {
		return nil, err
	}
	s := &series{
		cfg: *c, job: j, ctx: j.ctx, db: c.Database, throttle: newThrottle(c.Rate),
		result: &SeriesResult{Stream: c.Stream, To: c.To}, progress: Progress{Phase: j.state.Phase},
	}
	if err := j.decode(&s.own); err != nil {
		j.end()
		return nil, err
	}
	s.result.Readings, s.result.Repaired, s.result.Expired = s.own.Series.Readings, s.own.Series.Repaired, s.own.Series.Expired
	s.result.HeldFor = time.Duration(s.own.Series.HeldFor * int64(time.Millisecond)).Seconds()
	return s, nil
}

// phase notes the phase that comes next, durably, before anything of it is done.
func (s *series) phase(next string, more ...bson.E) error {
	if err := s.job.set(append(bson.D{{Key: "phase", Value: next}}, more...)); err != nil {
		return err
	}
	s.job.state.Phase = next
	s.progress = Progress{Phase: next, Documents: s.progress.Documents}
	s.cfg.Progress(s.progress)
	return nil
}

func (s *series) unknownPhase() error {
	return fmt.Errorf("the state of the migration names a phase %q that this version does not know", s.job.state.Phase)
}

// collection has the concerns of the database.
func (s *series) collection(name string) *mongo.Collection { return s.db.Collection(name) }

// horizon is the time before which readings have expired, in milliseconds; false
// where none do.
func (s *series) horizon() (int64, bool) {
	if s.cfg.Retention <= 0 {
		return 0, false
	}
	return time.Now().Add(-s.cfg.Retention).UnixMilli(), true
}

// rename gives a collection another name, which must be free.
func (s *series) rename(from, to string) error {
	return s.write(func(ctx context.Context) error { return rename(ctx, s.db, from, to, false) })
}

// write carries out what changes a collection, until another process may take
// the work over. A command that hangs in the network, or on a frozen machine, for
// longer than a lease is not stopped; the exchange names collections by their
// UUID where it may, and an insert that is so late is beyond what can be kept away.
func (s *series) write(what func(ctx context.Context) error) error { return s.job.send(s.ctx, what) }

// drop drops a collection that this command has made or put aside.
func (s *series) drop(name string) error {
	if err := s.write(func(ctx context.Context) error { return s.collection(name).Drop(ctx) }); err != nil {
		return fmt.Errorf("drop collection %q: %w", name, err)
	}
	return nil
}

// size returns the bytes of a collection's documents before compression, 0 where
// that is not told.
func (s *series) size(name string) int64 {
	of, err := statsOf(s.ctx, s.db, name)
	if err != nil {
		return 0
	}
	return of.Bytes
}

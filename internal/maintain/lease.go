package maintain

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

const (
	defaultLease = 15 * time.Second
	// beatsPerLease is how many signs of life may be missed.
	beatsPerLease = 5
	// goodbye is how long a process that ends tries to tell so.
	goodbye = 5 * time.Second
)

// claimConfig says what is to be worked on.
type claimConfig struct {
	Database *mongo.Database
	Stream   string
	Kind, To string        // an empty To takes over whatever of the kind is there
	Existing bool          // do not begin anything
	Lease    time.Duration // 0: 15 s
	Tell     func(Progress)
	Logger   *slog.Logger
}

// A job is work on a stream that this process owns: no other process works on it
// until the job ends, or until this process has been silent for a lease.
type job struct {
	ctx   context.Context // ends when the work is lost
	coll  *mongo.Collection
	owner owner
	lease time.Duration
	state *state
	fresh bool // the work was begun by this very process
	// The owner before did not give the work back. What it had sent last may
	// still be carried out.
	orphan bool
	log    *slog.Logger

	lose    context.CancelCauseFunc
	stop    chan struct{} // no more signs of life
	beating sync.WaitGroup
	renewed atomic.Int64 // when the lease last was, as a monotonic time since began
	began   time.Time
}

// claim makes the work on a stream this process's: new work, or some that an
// earlier process left behind. It waits for as long as that may still live.
func claim(ctx context.Context, cfg claimConfig) (*job, error) {
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	j := &job{
		coll: cfg.Database.Collection(stateCollection), lease: cfg.Lease, log: cfg.Logger, stop: make(chan struct{}), began: time.Now(),
		owner: owner{ID: rand.Text(), Host: hostIdentity(), PID: os.Getpid()},
	}
	j.ctx, j.lose = context.WithCancelCause(ctx)
	if err := j.acquire(cfg); err != nil {
		j.lose(nil)
		return nil, err
	}
	j.beating.Go(j.beat)
	return j, nil
}

// acquire returns when the state is this process's.
func (j *job) acquire(cfg claimConfig) error {
	w := waiting{until: time.Now().Add(j.lease + j.lease/beatsPerLease)}
	for {
		present, err := readState(j.ctx, cfg.Database, cfg.Stream)
		if err != nil {
			return err
		}
		if present == nil {
			if cfg.Existing {
				return fmt.Errorf("stream %q: %w", cfg.Stream, errNoWork)
			}
			if err := oneGeneration(j.ctx, cfg.Database, cfg.Stream); err != nil {
				return err
			}
			if present, err = j.insert(cfg); err != nil || present == nil {
				return err
			}
		}
		if present.Kind != cfg.Kind || cfg.To != "" && present.To != cfg.To {
			return &BusyError{Stream: cfg.Stream, What: other(present)}
		}
		taken, err := j.take(present)
		if err != nil || taken {
			return err
		}
		if err := w.forOwner(j.ctx, present, cfg); err != nil {
			return err
		}
	}
}

// other says what to do about other work.
func other(s *state) string {
	if s.Phase == phaseDone {
		return fmt.Sprintf("the collection from before `brim %s` to %s is still kept; drop it first: %#q", s.Kind, s.To, s.command("--drop-old"))
	}
	return fmt.Sprintf("`brim %s` to %s was begun and is in phase %s; finish it with %#q, or give it up with %#q", s.Kind, s.To, s.Phase, s.command(""), s.command("--abort"))
}

// insert begins new work. Where another process does so at the same moment, its
// state is returned.
func (j *job) insert(cfg claimConfig) (*state, error) {
	s := &state{Stream: cfg.Stream, Kind: cfg.Kind, To: cfg.To, Phase: phaseStart, Owner: j.owner, Started: time.Now()}
	_, err := j.coll.InsertOne(j.ctx, s)
	if mongo.IsDuplicateKeyError(err) {
		return readState(j.ctx, cfg.Database, cfg.Stream)
	}
	if err != nil {
		return nil, fmt.Errorf("begin the work on stream %q: %w", cfg.Stream, err)
	}
	j.state, j.fresh = s, true
	_, err = j.renew(j.ctx)
	return nil, err
}

// oneGeneration refuses streams that have several collections.
func oneGeneration(ctx context.Context, db *mongo.Database, stream string) error {
	list, err := generation.Read(ctx, db, stream)
	if err != nil || list == nil || len(list.Generations) == 1 {
		return err
	}
	var names []string
	for _, g := range list.Generations {
		names = append(names, g.Collection)
	}
	return refuse("stream %q has several collections (%s), which this command does not change; another --storage or --compressor takes a restart of its daemons only, see docs/growing.md", stream, strings.Join(names, ", "))
}

// take makes the state this process's if its owner is gone, dead, or silent for
// longer than its lease.
func (j *job) take(present *state) (bool, error) {
	filter := bson.D{
		{Key: "_id", Value: present.Stream}, {Key: "owner.id", Value: present.Owner.ID}, {Key: "beat", Value: present.Beat},
	}
	if present.Owner.ID != "" && !deadHere(present.Owner, j.owner.Host) {
		filter = append(filter, bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$lease", "$$NOW"}}}})
	}
	change := bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "owner", Value: bson.D{{Key: "$literal", Value: j.owner}}},
		{Key: "lease", Value: j.fromNow()},
		{Key: "beat", Value: bson.D{{Key: "$add", Value: bson.A{"$beat", 1}}}},
	}}}}
	asked := time.Since(j.began)
	var s state
	err := j.coll.FindOneAndUpdate(j.ctx, filter, change, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take over the work on stream %q: %w", present.Stream, err)
	}
	j.renewed.Store(int64(asked))
	j.state, j.orphan = &s, present.Owner.ID != ""
	return true, nil
}

// waiting is for another owner, who may be dead.
type waiting struct {
	until time.Time
	beat  int64
	began bool
}

func (w *waiting) forOwner(ctx context.Context, present *state, cfg claimConfig) error {
	host, _, _ := strings.Cut(present.Owner.Host, " ")
	who := fmt.Sprintf("process %d on %s", present.Owner.PID, host)
	if w.began && present.Beat != w.beat || time.Now().After(w.until) {
		return &BusyError{Stream: present.Stream, What: fmt.Sprintf("%s is at work on it: `brim %s` to %s, phase %s", who, present.Kind, present.To, present.Phase)}
	}
	w.began, w.beat = true, present.Beat
	if cfg.Tell != nil {
		cfg.Tell(Progress{Phase: "wait", Note: "to see whether " + who + " is still at work"})
	}
	return machine.Pause(ctx, min(cfg.Lease/(2*beatsPerLease), 500*time.Millisecond))
}

// fromNow is the end of a lease that begins now, by the server's clock.
func (j *job) fromNow() bson.D {
	return bson.D{{Key: "$add", Value: bson.A{"$$NOW", j.lease.Milliseconds()}}}
}

// renew gives a sign of life, and returns its number.
func (j *job) renew(ctx context.Context) (int64, error) {
	change := bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "lease", Value: j.fromNow()},
		{Key: "beat", Value: bson.D{{Key: "$add", Value: bson.A{"$beat", 1}}}},
	}}}}
	asked := time.Since(j.began)
	var s struct {
		Beat int64 `bson:"beat"`
	}
	err := j.coll.FindOneAndUpdate(ctx, j.mine(), change,
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: "beat", Value: 1}})).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, errLost
	}
	if err != nil {
		return 0, fmt.Errorf("give a sign of life: %w", err)
	}
	j.renewed.Store(int64(asked))
	return s.Beat, nil
}

// beat gives signs of life until the job ends, and gives the job up when none
// arrives for so long that another process may take it over.
func (j *job) beat() {
	every := j.lease / beatsPerLease
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-j.stop:
			return
		case <-j.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(j.ctx, every)
		_, err := j.renew(ctx)
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, errLost):
			j.lose(errLost)
		case j.expired():
			j.lose(fmt.Errorf("%w: MongoDB was away for longer than a lease of %v", err, j.lease))
		default:
			j.log.Debug("no sign of life could be given", "err", err)
		}
	}
}

// until is the moment from which another process may own the work.
func (j *job) until() time.Time {
	return j.began.Add(time.Duration(j.renewed.Load()) + j.lease - j.lease/beatsPerLease)
}

// expired reports whether another process may own the work by now.
func (j *job) expired() bool { return time.Now().After(j.until()) }

// check returns why nothing may be written any more, nil if it may.
func (j *job) check() error {
	if err := context.Cause(j.ctx); err != nil {
		return err
	}
	if !j.expired() {
		return nil
	}
	// It may be this process that stood still.
	_, err := j.renew(j.ctx)
	return err
}

// send carries out a write that must not come once the work may be another's. A
// process that stands still between the check and the write wakes up behind the
// write's deadline, and the driver does not send it.
func (j *job) send(ctx context.Context, write func(context.Context) error) error {
	if err := j.check(); err != nil {
		return err
	}
	return j.inTime(ctx, write)
}

// inTime is send by who has just renewed the lease.
func (j *job) inTime(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(ctx, j.until())
	defer cancel()
	return write(ctx)
}

// end stops the signs of life and gives the work back, as it is. A process that
// does not come to it leaves what a killed one leaves.
func (j *job) end() {
	close(j.stop)
	j.beating.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), goodbye)
	defer cancel()
	change := bson.D{{Key: "$set", Value: bson.D{{Key: "owner", Value: owner{}}, {Key: "lease", Value: time.Time{}}}}}
	if _, err := j.coll.UpdateOne(ctx, j.mine(), change); err != nil {
		j.log.Debug("the work on the stream could not be given back, its lease will expire", "err", err)
	}
	j.lose(nil)
}

// hostIdentity names what a process number is unique within: a host, and on
// Linux one start of it and one space of process numbers.
func hostIdentity() string {
	name, _ := os.Hostname()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return name
	}
	parts := []string{name, strings.TrimSpace(string(boot))}
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		parts = append(parts, space)
	}
	return strings.Join(parts, " ")
}

// deadHere reports whether the owner is known to be dead, which can only be
// known on its own host.
func deadHere(o owner, host string) bool {
	if o.Host != host || !strings.Contains(host, " ") {
		return false // a name alone may be that of two hosts
	}
	process, err := os.FindProcess(o.PID)
	if err != nil {
		return false
	}
	err = process.Signal(syscall.Signal(0))
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH)
}

package bucket

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// errHangs says that a command was given up because it alone was not answered.
var errHangs = errors.New("the write timed out while MongoDB answered others; its document may be locked by a transaction")

// errSlow says that no write of a division was answered.
var errSlow = errors.New("MongoDB is too slow to find out which write hangs")

// errNotTried says that a division ended before it came to an operation.
var errNotTried = errors.New("not tried yet: too many writes before it got no answer")

const (
	// leastPatience is how long a command may take before it is suspected: many
	// times what one of a megabyte takes on a busy machine.
	leastPatience = 400 * time.Millisecond
	// A command is suspected when it takes this many times as long as the slowest
	// recent one, so that a MongoDB that is slow as a whole does not get extra
	// commands.
	manyTimes = 4
	// longestPatience is the most for a single bucket that hung before: a write
	// that takes no longer than that on its own is considered to work.
	longestPatience = 5 * time.Second
	// A command that hangs is divided into its operations. This many are sent at a
	// time, since many documents may be locked, and none begins after this long.
	aloneAtOnce    = 16
	longestDivided = 2 * time.Second
	// If this many operations get no answer, and none gets one, it is not the fault of
	// single documents.
	tooMany = 3
)

// patience is how long a command of these operations may take before it is
// suspected to hang.
func (s *Store) patience(ops []operation) time.Duration {
	p := max(leastPatience, manyTimes*time.Duration(s.slowest.Load()))
	if len(ops) == 1 {
		p = max(p, min(leastPatience<<min(ops[0].pending.Hung, 10), longestPatience))
	}
	return p
}

// answered notes how long an answered command took. The slowest decays over some
// tens of commands.
func (s *Store) answered(took time.Duration) {
	slowest := s.slowest.Load()
	s.slowest.CompareAndSwap(slowest, max(int64(took), slowest-slowest/16))
}

// unlessItHangs runs a command and gives it up, with errHangs, if it hangs: it
// takes longer than recent commands did; a write to the collection that changes
// nothing, sent after it, was answered; and the same time later the command still
// was not. If MongoDB or the whole collection does not answer, neither is answered,
// and the command has until ctx ends.
func (s *Store) unlessItHangs(ctx context.Context, ops []operation, command func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	began, asked := time.Now(), make(chan struct{})
	suspect := time.AfterFunc(s.patience(ops), func() {
		defer close(asked)
		sent := time.Now()
		if s.changeNothing(ctx, ops[0].pending) != nil {
			return
		}
		select {
		case <-time.After(max(leastPatience/4, time.Since(sent))):
			cancel(errHangs)
		case <-ctx.Done():
		}
	})
	err := command(ctx)
	hangs := err != nil && errors.Is(context.Cause(ctx), errHangs)
	cancel(nil)
	if !suspect.Stop() {
		<-asked
	}
	if hangs {
		return errHangs
	}
	if err == nil {
		s.answered(time.Since(began))
	}
	return err
}

// changeNothing writes to the collection, where the sensor's documents are, and
// matches none: their _id has more fields.
func (s *Store) changeNothing(ctx context.Context, pending *batch.Pending) error {
	none := bson.D{{Key: "s", Value: pending.Sensor}, {Key: "b", Value: bson.DateTime(pending.Start)}}
	_, err := s.Live.Load().Into.UpdateOne(ctx, s.ofSensor(pending.Sensor, bson.D{{Key: "_id", Value: none}}), changeNothing)
	return err
}

// divide resends the operations of a command that hung, each alone: the guard reveals
// those that were applied, and those that hang are given up. Several are sent
// concurrently; writes are settled here, on the goroutine of their lane.
func (s *Store) divide(ctx context.Context, ops []operation, to *store.Prepared) error {
	var (
		all     sync.WaitGroup
		next    atomic.Int64
		replies = make([]reply, len(ops))
		tried   = make([]bool, len(ops))
		failed  = make([]error, min(aloneAtOnce, len(ops)))
		began   = time.Now()
	)
	for worker := range failed {
		all.Go(func() {
			bulk := s.bulks.get()
			defer s.bulks.put(bulk)
			for at := next.Add(1) - 1; at < int64(len(ops)); at = next.Add(1) - 1 {
				if failed[worker] == nil {
					failed[worker] = store.Permitted(ctx)
				}
				if failed[worker] == nil && time.Since(began) > longestDivided {
					failed[worker] = errNotTried
				}
				if failed[worker] != nil {
					replies[at].err = failed[worker]
					continue
				}
				ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
				replies[at], tried[at] = s.exchange(ctx, bulk, ops[at:at+1], to), true
				cancel()
				if err := replies[at].err; !replies[at].answered() && !errors.Is(err, errHangs) {
					failed[worker] = err
				}
			}
		})
	}
	all.Wait()
	s.settleEach(ctx, ops, replies, tried)
	if !slices.ContainsFunc(replies, reply.answered) {
		s.suspectSlow(ops)
	}
	return cmp.Or(failed...)
}

// settleEach settles operations that were sent alone, or not at all.
func (s *Store) settleEach(ctx context.Context, ops []operation, replies []reply, tried []bool) {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	var conflicts []*batch.Pending
	for i := range ops {
		switch {
		case !tried[i]:
			unsent(ops[i:i+1], replies[i].err)
		case errors.Is(replies[i].err, errHangs):
			s.hangs(&ops[i])
		default:
			more, _ := s.settle(ctx, ops[i:i+1], replies[i])
			conflicts = append(conflicts, more...)
		}
	}
	s.resolve(ctx, conflicts)
}

// hangs gives up an operation that hung alone.
func (s *Store) hangs(op *operation) {
	s.unknown(op, errHangs)
	op.pending.Verdict = batch.Hangs
}

// suspectSlow has the operations of a division without an answer wait, unless
// they are few or hung before, and gives the next command more time.
func (s *Store) suspectSlow(ops []operation) {
	hung := 0
	for i := range ops {
		if pending := ops[i].pending; pending.Verdict == batch.Hangs && pending.Hung == 0 {
			hung++
		}
	}
	if hung < tooMany {
		return
	}
	s.answered(min(2*s.patience(ops), longestPatience) / manyTimes)
	for i := range ops {
		if pending := ops[i].pending; pending.Verdict == batch.Hangs {
			pending.Verdict, pending.Err = batch.Wait, errSlow
		}
	}
}

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

// errHangs says that a command was abandoned because it got no reply while others did.
var errHangs = errors.New("the write timed out while MongoDB answered others; its document may be locked by a transaction")

// errSlow says that none of the separately sent writes got a reply.
var errSlow = errors.New("MongoDB is too slow to find out which write hangs")

// errNotTried says that an operation was not sent separately, because time ran out before.
var errNotTried = errors.New("not tried yet: too many writes before it got no answer")

const (
	// minPatience is how long a command may take before it is suspected to hang: many times the
	// duration of a one-megabyte command on a busy machine.
	minPatience = 400 * time.Millisecond
	// A command is suspected to hang if it takes this many times as long as the slowest recent
	// one, so that a MongoDB that is slow in general does not get extra commands.
	patienceFactor = 4
	// maxPatience is the maximum for a single bucket that hung before: a write that takes less
	// than that on its own is considered to work.
	maxPatience = 5 * time.Second
	// The operations of a command that hangs are sent separately: this many at a time, since many
	// documents may be locked, and no more are started after this long.
	divideWorkers = 16
	maxDivideTime = 2 * time.Second
	// If at least this many operations get no reply, and no operation gets one, the cause is not
	// single documents.
	minUnanswered = 3
)

// patience returns how long a command with these operations may take before it is suspected to
// hang.
func (s *Store) patience(ops []operation) time.Duration {
	p := max(minPatience, patienceFactor*time.Duration(s.slowest.Load()))
	if len(ops) == 1 {
		p = max(p, min(minPatience<<min(ops[0].pending.Hung, 10), maxPatience))
	}
	return p
}

// answered records the duration of a command that was answered. The maximum decays over some tens
// of commands.
func (s *Store) answered(took time.Duration) {
	slowest := s.slowest.Load()
	s.slowest.CompareAndSwap(slowest, max(int64(took), slowest-slowest/16))
}

// withHangDetection runs a command and abandons it with errHangs if it hangs. A command hangs if it
// takes longer than recent commands did, a probe that was sent after it (a write to the collection
// that changes nothing) was answered, and after as long again the command still was not. If
// MongoDB or the whole collection does not respond, the probe gets no reply either, and the
// command may run until ctx ends.
func (s *Store) withHangDetection(ctx context.Context, ops []operation, command func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	began, probeDone := time.Now(), make(chan struct{})
	probe := time.AfterFunc(s.patience(ops), func() {
		defer close(probeDone)
		sent := time.Now()
		if s.changeNothing(ctx, ops[0].pending) != nil {
			return
		}
		select {
		case <-time.After(max(minPatience/4, time.Since(sent))):
			cancel(errHangs)
		case <-ctx.Done():
		}
	})
	err := command(ctx)
	hangs := err != nil && errors.Is(context.Cause(ctx), errHangs)
	cancel(nil)
	if !probe.Stop() {
		<-probeDone
	}
	if hangs {
		return errHangs
	}
	if err == nil {
		s.answered(time.Since(began))
	}
	return err
}

// changeNothing sends an update to the shard with the sensor's documents that matches none of
// them: their _id has more fields.
func (s *Store) changeNothing(ctx context.Context, pending *batch.Pending) error {
	none := bson.D{{Key: "s", Value: pending.Sensor}, {Key: "b", Value: bson.DateTime(pending.Start)}}
	_, err := s.Live.Load().Into.UpdateOne(ctx, s.ofSensor(pending.Sensor, bson.D{{Key: "_id", Value: none}}), changeNothing)
	return err
}

// divide resends the operations of a command that hung, each in a command of its own. The guard
// reveals those that were applied, and those that hang are given up. Several are sent
// concurrently; their results are handled here, on the goroutine of the lane.
func (s *Store) divide(ctx context.Context, ops []operation, to *store.Prepared) error {
	var (
		all     sync.WaitGroup
		next    atomic.Int64
		replies = make([]reply, len(ops))
		tried   = make([]bool, len(ops))
		failed  = make([]error, min(divideWorkers, len(ops)))
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
				if failed[worker] == nil && time.Since(began) > maxDivideTime {
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

// settleEach handles the replies to operations that were sent separately, or not at all.
func (s *Store) settleEach(ctx context.Context, ops []operation, replies []reply, tried []bool) {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	var conflicts []*batch.Pending
	for i := range ops {
		switch {
		case !tried[i]:
			unsent(ops[i:i+1], replies[i].err)
		case errors.Is(replies[i].err, errHangs):
			s.giveUpHung(&ops[i])
		default:
			more, _ := s.settle(ctx, ops[i:i+1], replies[i])
			conflicts = append(conflicts, more...)
		}
	}
	s.resolve(ctx, conflicts)
}

// giveUpHung gives up an operation that hung on its own.
func (s *Store) giveUpHung(op *operation) {
	s.unknown(op, errHangs)
	op.pending.Verdict = batch.Hangs
}

// suspectSlow handles a division in which no operation was answered. Unless they are few or hung
// before, the operations wait instead of counting as hung, and the next command gets more time.
func (s *Store) suspectSlow(ops []operation) {
	hung := 0
	for i := range ops {
		if pending := ops[i].pending; pending.Verdict == batch.Hangs && pending.Hung == 0 {
			hung++
		}
	}
	if hung < minUnanswered {
		return
	}
	s.answered(min(2*s.patience(ops), maxPatience) / patienceFactor)
	for i := range ops {
		if pending := ops[i].pending; pending.Verdict == batch.Hangs {
			pending.Verdict, pending.Err = batch.Wait, errSlow
		}
	}
}

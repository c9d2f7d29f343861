package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A write of a lane ends when its shares or their rows reach these numbers.
const (
	mostShares = 1000
	mostRows   = 20_000
)

// A growthLoad is what all writers of a point have in common.
type growthLoad struct {
	shape
	store    *bucket.Store
	interner *batch.Interner
	session  string
	sequence atomic.Int64 // of the last reading
	begin    time.Time    // of event time, the start of an hour
	fields   [][]byte     // names
}

func newGrowthLoad(s shape, st *bucket.Store) *growthLoad {
	l := &growthLoad{
		shape: s, store: st, interner: batch.NewInterner(0), session: batch.NewSession(),
		begin: time.Now().Truncate(time.Hour).Add(-monthsBack * month), fields: make([][]byte, s.Fields),
	}
	for f := range l.fields {
		l.fields[f] = fmt.Appendf(nil, "usage_%02d", f)
	}
	return l
}

// A growthWriter writes its part of the sensors, in turn, as a lane does that
// has merged so many readings of each.
type growthWriter struct {
	*growthLoad
	sensors []growthSensor
	next    int // the sensor whose turn it is
	step    int // of event time, that its next reading has

	shares   []batch.Share
	pointers []*batch.Share
}

// A growthSensor is a sensor with what its lane knows of it.
type growthSensor struct {
	number int
	series *batch.Series // nil before its first reading
	start  int64         // of the bucket that state is of
	state  any
}

func (s *growthSensor) id() string { return fmt.Sprintf("cpu,hostname=host_%d", s.number) }

// writers share the sensors out in an order that is not that of their ids, as
// lanes have them by hash: neighbours in the index are not written together.
func (l *growthLoad) writers() []*growthWriter {
	writers := make([]*growthWriter, l.Writers)
	for w := range writers {
		writers[w] = &growthWriter{growthLoad: l}
	}
	stride := coprime(l.Sensors)
	for i := range l.Sensors {
		w := writers[i%l.Writers]
		w.sensors = append(w.sensors, growthSensor{number: i * stride % l.Sensors})
	}
	return writers
}

// coprime returns a number that, taken n times modulo n, leads everywhere.
func coprime(n int) int {
	divisor := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	at := max(int(float64(n)*0.618), 1)
	for divisor(at, n) != 1 {
		at++
	}
	return at
}

// A written is what a writer has done.
type written struct {
	readings, updates int64
	touched           int // sensors
}

// fill writes until the time is over.
func (w *growthWriter) fill(ctx context.Context, until time.Time) (done written, err error) {
	for time.Now().Before(until) {
		shares, updates, err := w.write(ctx, w.PerUpdate)
		if err != nil {
			return done, err
		}
		done.readings += int64(shares * w.PerUpdate)
		done.updates += int64(updates)
		done.touched = min(done.touched+shares, len(w.sensors))
	}
	return done, nil
}

// write makes shares of so many readings for the sensors whose turn it is, and
// writes them until nothing is left. It never goes beyond the last sensor, so
// that a bucket has one share.
func (w *growthWriter) write(ctx context.Context, perShare int) (shares, updates int, err error) {
	n := min(len(w.sensors)-w.next, mostShares, max(mostRows/perShare, 1))
	sensors := w.sensors[w.next : w.next+n]
	if err := w.share(sensors, perShare); err != nil {
		return 0, 0, err
	}
	if w.next += n; w.next == len(w.sensors) {
		w.next, w.step = 0, w.step+perShare
	}
	updates, err = w.drain(ctx)
	for i := range sensors {
		sensors[i].state = w.shares[i].State
	}
	return n, updates, err
}

// share makes a share for each of the sensors. As in a lane, its rows come from
// as many requests, each of which is a step of all.
func (w *growthWriter) share(sensors []growthSensor, perShare int) error {
	for len(w.shares) < len(sensors) {
		w.shares = append(w.shares, batch.Share{Stream: collection, Granularity: time.Hour, Session: w.session})
	}
	for step := range perShare {
		at := w.begin.Add(time.Duration(w.step+step) * interval).UnixMilli()
		b, err := w.request(sensors, at)
		if err != nil {
			return err
		}
		for i := range sensors {
			share := &w.shares[i]
			if step == 0 {
				share.Sensor, share.Start = sensors[i].series.Sensor, store.WindowStart(at, time.Hour)
				if share.State = sensors[i].state; share.Start != sensors[i].start {
					share.State = nil
				}
				sensors[i].start = share.Start
			}
			share.Rows = append(share.Rows, batch.Ref{Batch: b, Index: uint32(i)}) //nolint:gosec // at most mostShares
		}
	}
	w.pointers = w.pointers[:0]
	for i := range sensors {
		w.pointers = append(w.pointers, &w.shares[i])
	}
	return nil
}

// request is a reading of each of the sensors, as the door hands them on and
// the journal numbers them.
func (w *growthWriter) request(sensors []growthSensor, at int64) (*batch.Batch, error) {
	b := w.interner.Builder(time.Now())
	for i := range sensors {
		s := &sensors[i]
		b.Begin(collection, i, telemetry.TimeRange{Newest: math.MaxInt64})
		if s.series == nil {
			b.Sensor([]byte(s.id()))
			b.Tag([]byte("region"), []byte("eu-west-1"))
		} else {
			b.SameSeries(s.series)
		}
		b.Time(at)
		for f, name := range w.fields {
			b.Int(name, (at/1000+int64(s.number*7+f*13))%(mostUsage+1))
		}
		if refusal := b.End(); refusal != nil {
			return nil, fmt.Errorf("make a reading: %w", refusal)
		}
		s.series = b.LastSeries()
	}
	made := b.Batch()
	last := w.sequence.Add(int64(len(sensors)))
	made.Session, made.FirstSeq = w.session, uint64(last-int64(len(sensors))+1) //nolint:gosec // it counts from 1
	return made, nil
}

const (
	mostWaits = 5 // of a write, before it counts as failed
	waitPause = 100 * time.Millisecond
)

var errStuck = errors.New("MongoDB does not take the readings")

// drain writes the shares at hand until nothing is left of them, and returns in
// how many updates.
func (w *growthWriter) drain(ctx context.Context) (updates int, err error) {
	left := w.pointers
	for waits := 0; len(left) > 0; {
		updates += len(left)
		w.store.Write(ctx, left)
		if ctx.Err() != nil {
			return updates, context.Cause(ctx)
		}
		rest := left[:0]
		for _, share := range left {
			if len(share.Rows) == 0 {
				continue
			}
			if share.Verdict == batch.Poison || waits == mostWaits {
				return updates, errors.Join(errStuck, share.Err)
			}
			rest = append(rest, share)
		}
		if left = rest; len(left) > 0 && left[0].Verdict != batch.Again {
			waits++
			if err := pause(ctx, waitPause); err != nil {
				return updates, err
			}
		}
	}
	return updates, nil
}

// Package lane writes readings straight into a store, as a lane of the queue
// does that has merged so many of each bucket: neither door nor journal is in
// the way, and every number is set exactly. The store is the one of production.
package lane

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A write of a lane ends when its shares or their rows reach these numbers, as
// in the daemon.
const (
	mostShares = 1000
	mostRows   = 20_000
)

// Together is how many portions of so many readings one write takes.
func Together(count int) int { return max(1, min(mostShares, mostRows/max(count, 1))) }

// A Store is where shares are written to: those of internal/store.
type Store interface {
	Write(ctx context.Context, shares []*batch.Share)
}

// A Source makes the readings of sensors, numbered from 0; *load.Sensors is one.
// Several lanes may ask at a time.
type Source interface {
	ID(sensor int) string
	Tags(sensor int) []telemetry.Tag
	AppendFields(dst []telemetry.Field, sensor int, k uint64, at time.Time) []telemetry.Field
}

// Config says what a lane writes.
type Config struct {
	Store       Store
	Source      Source
	Stream      string
	Granularity time.Duration
	Begin       time.Time     // of reading 0 of each sensor
	Interval    time.Duration // between two readings of a sensor
	// Phase is how long after Begin a sensor begins, less than Interval. nil: all
	// begin at once, so that their readings have the same times.
	Phase func(sensor int) time.Duration
}

// A Lane writes. Only one goroutine may use it, and of one bucket only one lane
// may write.
type Lane struct {
	cfg      Config
	session  string
	next     uint64 // sequence
	writes   uint64 // so far
	interner *batch.Interner
	sensors  map[int]*sensor
	fields   []telemetry.Field
	sending  sending
}

// A sensor is what the lane knows of one.
type sensor struct {
	series *batch.Series // nil before its first reading
	start  int64         // of the bucket that state is of
	state  any           // what the store knows of that bucket
	write  uint64        // the last one that it is in
}

// sending is what a write sends. Its memory is reused.
type sending struct {
	shares []*batch.Share
	of     []*sensor // of each share
	left   []*batch.Share
	open   []openShare
}

// New returns a lane that takes readings under a session of its own.
func New(cfg Config) *Lane {
	return &Lane{
		cfg: cfg, session: batch.NewSession(), next: 1, interner: batch.NewInterner(0),
		sensors: make(map[int]*sensor),
	}
}

// A Portion is readings of a sensor that follow each other.
type Portion struct {
	Sensor int
	First  uint64 // number of the first reading
	Count  int
}

// Time returns that of reading k of a sensor without a phase.
func (l *Lane) Time(k uint64) time.Time {
	return l.cfg.Begin.Add(time.Duration(k) * l.cfg.Interval) //nolint:gosec // readings of years
}

// Write merges the portions by bucket and writes them, and returns when all is
// stored: in how many updates, of which those of a window boundary are several.
func (l *Lane) Write(ctx context.Context, portions []Portion) (updates int, err error) {
	for len(portions) > 0 {
		n := l.together(portions)
		done, err := l.write(ctx, portions[:n])
		updates += done
		if err != nil {
			return updates, err
		}
		portions = portions[n:]
	}
	return updates, nil
}

// together returns how many of the portions one write takes. A sensor is in it
// once, so that a bucket has one update in flight.
func (l *Lane) together(portions []Portion) int {
	l.writes++
	rows := 0
	for n, p := range portions {
		s := l.sensor(p.Sensor)
		if s.write == l.writes || n == mostShares || n > 0 && rows+p.Count > mostRows {
			return n
		}
		s.write = l.writes
		rows += p.Count
	}
	return len(portions)
}

func (l *Lane) sensor(number int) *sensor {
	s := l.sensors[number]
	if s == nil {
		s = &sensor{}
		l.sensors[number] = s
	}
	return s
}

func (l *Lane) write(ctx context.Context, portions []Portion) (updates int, err error) {
	if err := l.fill(portions); err != nil {
		return 0, err
	}
	s := &l.sending
	s.left = append(s.left[:0], s.shares...)
	updates, err = l.drain(ctx, s.left)
	for i, share := range s.shares {
		s.of[i].start, s.of[i].state = share.Start, share.State
	}
	clear(s.shares) // they hold readings
	return updates, err
}

// share begins that of a window of a sensor.
func (l *Lane) share(number int, of *sensor, start int64) *batch.Share {
	share := &batch.Share{
		Stream: l.cfg.Stream, Sensor: l.cfg.Source.ID(number), Start: start,
		Granularity: l.cfg.Granularity, Session: l.session,
	}
	if of.start == start {
		share.State = of.state
	}
	l.sending.shares, l.sending.of = append(l.sending.shares, share), append(l.sending.of, of)
	return share
}

func (l *Lane) windowStart(sensor int, k uint64) int64 {
	return store.WindowStart(l.timeOf(sensor, k).UnixMilli(), l.cfg.Granularity)
}

// timeOf returns the time of a sensor's reading k.
func (l *Lane) timeOf(sensor int, k uint64) time.Time {
	if l.cfg.Phase == nil {
		return l.Time(k)
	}
	return l.Time(k).Add(l.cfg.Phase(sensor))
}

const (
	mostWaits = 5 // of a write, before it counts as failed
	waitPause = 100 * time.Millisecond
)

var errStuck = errors.New("MongoDB does not take the readings")

// drain writes shares until nothing is left of them, and returns in how many
// updates. It makes use of the slice.
func (l *Lane) drain(ctx context.Context, left []*batch.Share) (updates int, err error) {
	for waits := 0; len(left) > 0; {
		updates += len(left)
		l.cfg.Store.Write(ctx, left)
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
			timer := time.NewTimer(waitPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return updates, context.Cause(ctx)
			}
		}
	}
	return updates, nil
}

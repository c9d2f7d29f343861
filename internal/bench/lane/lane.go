// Package lane writes readings straight into a store, as a lane of the queue
// does that has merged so many of each bucket: neither door nor journal is in
// the way, and every number is set exactly. The store is the one of production.
package lane

import (
	"context"
	"errors"
	"fmt"
	"math"
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
}

// A Lane writes. Only one goroutine may use it, and of one bucket only one lane
// may write.
type Lane struct {
	cfg      Config
	session  string
	next     uint64 // sequence
	interner *batch.Interner
	series   map[int]*batch.Series
	states   map[bucketKey]any // what the store knows of buckets
	fields   []telemetry.Field
	shares   []*batch.Share
	keys     []bucketKey
}

type bucketKey struct {
	sensor int
	start  int64 // of the window, ms
}

// New returns a lane that takes readings under a session of its own.
func New(cfg Config) *Lane {
	return &Lane{
		cfg: cfg, session: batch.NewSession(), next: 1, interner: batch.NewInterner(0),
		series: make(map[int]*batch.Series), states: make(map[bucketKey]any),
	}
}

// A Portion is readings of a sensor that follow each other.
type Portion struct {
	Sensor int
	First  uint64 // number of the first reading
	Count  int
}

// Time returns that of reading k.
func (l *Lane) Time(k uint64) time.Time {
	return l.cfg.Begin.Add(time.Duration(k) * l.cfg.Interval) //nolint:gosec // readings of years
}

// Write merges the portions by bucket and writes them, and returns when all is
// stored: in how many updates, of which those of a window boundary are several.
func (l *Lane) Write(ctx context.Context, portions []Portion) (updates int, err error) {
	for len(portions) > 0 {
		shares, rows := 0, 0
		n := 0
		for n < len(portions) && (n == 0 || shares < mostShares && rows+portions[n].Count <= mostRows) {
			shares, rows = shares+1, rows+portions[n].Count
			n++
		}
		done, err := l.write(ctx, portions[:n])
		updates += done
		if err != nil {
			return updates, err
		}
		portions = portions[n:]
	}
	return updates, nil
}

func (l *Lane) write(ctx context.Context, portions []Portion) (updates int, err error) {
	made, err := l.batch(portions)
	if err != nil {
		return 0, err
	}
	l.shares, l.keys = l.shares[:0], l.keys[:0]
	index := uint32(0)
	for _, p := range portions {
		var share *batch.Share
		for i := range p.Count {
			at := l.Time(p.First + uint64(i)).UnixMilli() //nolint:gosec // counts from 0
			start := store.WindowStart(at, l.cfg.Granularity)
			if share == nil || share.Start != start {
				key := bucketKey{p.Sensor, start}
				share = &batch.Share{
					Stream: l.cfg.Stream, Sensor: l.cfg.Source.ID(p.Sensor), Start: start,
					Granularity: l.cfg.Granularity, Session: l.session, State: l.states[key],
				}
				l.shares, l.keys = append(l.shares, share), append(l.keys, key)
			}
			share.Rows = append(share.Rows, batch.Ref{Batch: made, Index: index})
			index++
		}
	}
	all := append([]*batch.Share(nil), l.shares...)
	updates, err = l.drain(ctx, l.shares)
	for i, share := range all {
		l.states[l.keys[i]] = share.State
	}
	return updates, err
}

// batch makes the readings, as the door hands them on and the journal numbers
// them.
func (l *Lane) batch(portions []Portion) (*batch.Batch, error) {
	b := l.interner.Builder(time.Now())
	index := 0
	for _, p := range portions {
		for i := range p.Count {
			k := p.First + uint64(i) //nolint:gosec // counts from 0
			at := l.Time(k)
			b.Begin(l.cfg.Stream, index, telemetry.TimeRange{Newest: math.MaxInt64})
			if known := l.series[p.Sensor]; known != nil {
				b.SameSeries(known)
			} else {
				b.Sensor([]byte(l.cfg.Source.ID(p.Sensor)))
				for _, tag := range l.cfg.Source.Tags(p.Sensor) {
					b.Tag([]byte(tag.Name), []byte(tag.Value))
				}
			}
			b.Time(at.UnixMilli())
			l.fields = l.cfg.Source.AppendFields(l.fields[:0], p.Sensor, k, at)
			for _, f := range l.fields {
				add(b, f)
			}
			if refusal := b.End(); refusal != nil {
				return nil, fmt.Errorf("make a reading: %w", refusal)
			}
			l.series[p.Sensor] = b.LastSeries()
			index++
		}
	}
	made := b.Batch()
	made.Session, made.FirstSeq = l.session, l.next
	l.next += uint64(index) //nolint:gosec // counts from 0
	return made, nil
}

func add(b *batch.Builder, f telemetry.Field) {
	switch name := []byte(f.Name); f.Value.Kind() {
	case telemetry.Int:
		b.Int(name, f.Value.Int())
	case telemetry.Bool:
		b.Bool(name, f.Value.Bool())
	case telemetry.Text:
		b.Text(name, []byte(f.Value.Text()))
	default:
		b.Float(name, f.Value.Float())
	}
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

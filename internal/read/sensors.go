package read

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// MaxSensors is how many sensors one page lists at most.
const MaxSensors = 10_000

// sensors answers GET /v1/sensors. The journal is searched before MongoDB is asked,
// as for readings: what leaves it in between is stored.
func (q *question) sensors(ctx context.Context) error {
	ask := q.params.list
	limit := ask.Limit
	ask.Limit++
	out := q.newWriter(`{"sensors":[`)
	next, last := "", ""
	if narrow(access.From(q.r.Context()), &ask) {
		pending, err := q.pendingSensors(ctx, ask)
		if err != nil {
			return err
		}
		n := 0
		for s, err := range withPending(q.params.source.Sensors(ctx, ask), pending) {
			if err != nil {
				return err
			}
			if n == limit || out.full() {
				next = last
				break
			}
			n, last = n+1, s.Sensor
			out.next()
			out.body = appendSensor(out.body, s)
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
	return out.end(next)
}

// withPending merges two lists of sensors that are in the order of their ids.
func withPending(stored iter.Seq2[telemetry.SensorSeen, error], pending []telemetry.SensorSeen) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		for s, err := range stored {
			if err != nil {
				yield(s, err)
				return
			}
			for len(pending) > 0 && pending[0].Sensor < s.Sensor {
				if !yield(pending[0], nil) {
					return
				}
				pending = pending[1:]
			}
			if len(pending) > 0 && pending[0].Sensor == s.Sensor {
				s.Newest = max(s.Newest, pending[0].Newest)
				pending = pending[1:]
			}
			if !yield(s, nil) {
				return
			}
		}
		for _, s := range pending {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// pending gathers the sensors of a page from the backlog: the first of those asked
// for in the order of their ids, as many as the page may hold.
type pending struct {
	ask    telemetry.SensorQuery
	newest map[string]int64
	last   string // ids after it are not in the page; empty: any may be
}

func newPending(ask telemetry.SensorQuery) *pending {
	return &pending{ask: ask, newest: make(map[string]int64)}
}

// wants reports whether a sensor may be in the page.
func (p *pending) wants(sensor string) bool {
	return sensor > p.ask.After && strings.HasPrefix(sensor, p.ask.Prefix) && (p.last == "" || sensor <= p.last)
}

// add notes the time of a reading. At most twice the page is kept; an id that was
// left out stays out, since the page can only end earlier.
func (p *pending) add(sensor string, at int64) {
	if before, known := p.newest[sensor]; known {
		p.newest[sensor] = max(before, at)
		return
	}
	if !p.wants(sensor) {
		return
	}
	p.newest[strings.Clone(sensor)] = at // else it may keep a whole batch in memory
	if len(p.newest) >= 2*p.ask.Limit {
		p.cut()
	}
}

// cut drops the sensors behind the page.
func (p *pending) cut() {
	ids := slices.Sorted(maps.Keys(p.newest))
	for _, id := range ids[p.ask.Limit:] {
		delete(p.newest, id)
	}
	p.last = ids[p.ask.Limit-1]
}

// sorted returns the sensors of the page in order.
func (p *pending) sorted() []telemetry.SensorSeen {
	out := make([]telemetry.SensorSeen, 0, len(p.newest))
	for id, newest := range p.newest {
		out = append(out, telemetry.SensorSeen{Sensor: id, Newest: newest})
	}
	slices.SortFunc(out, func(a, b telemetry.SensorSeen) int { return strings.Compare(a.Sensor, b.Sensor) })
	return out[:min(len(out), p.ask.Limit)]
}

// pendingSensors returns the sensors of a page that have readings in the backlog.
func (q *question) pendingSensors(ctx context.Context, ask telemetry.SensorQuery) ([]telemetry.SensorSeen, error) {
	b := &q.stored.Backlog
	if b.Journal == nil || q.params.storedOnly {
		return nil, nil
	}
	p := newPending(ask)
	if err := p.search(ctx, b, q.params.stream, uint64(q.reader.cfg.MaxBacklog)); err != nil {
		return nil, err
	}
	return p.sorted(), nil
}

// search goes through the backlog of a stream to the end of what was
// acknowledged when it begins. What is set aside further back than may be searched
// is left out: it can wait for days, and would hold up the whole list.
func (p *pending) search(ctx context.Context, b *Backlog, stream string, most uint64) error {
	end := b.Journal.End()
	from, moving := b.StreamStored(stream)
	if end > from && end-from > most {
		from = moving
	}
	if end > from && end-from > most {
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "backlog_too_long", RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("%d MiB of the journal wait to be stored, and at most %d MiB are searched for one answer (--query-max-backlog); "+
				"ask again later, or with unstored=off for the sensors that are stored", (end-from)>>20, most>>20),
		}
	}
	part := batch.Part{Stream: stream}
	cursor := b.Journal.Follow(from, part)
	defer func() { cursor.Close() }()
	for n := 0; cursor.Position() < end; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return fmt.Errorf("search the journal: %w", ctx.Err())
		}
		record, found, err := cursor.Next()
		if err != nil {
			// What was trimmed meanwhile is stored, and MongoDB is yet to be asked.
			stored, _ := b.StreamStored(stream)
			if stored <= cursor.Position() {
				return fmt.Errorf("search the journal: %w", err)
			}
			cursor.Close()
			cursor = b.Journal.Follow(stored, part)
			continue
		}
		if !found || record.Position >= end {
			return nil
		}
		p.take(b, stream, &record)
	}
	return nil
}

// take adds the sensors of a record, except those whose readings in it are stored.
func (p *pending) take(b *Backlog, stream string, record *batch.Record) {
	for i := range uint32(record.Batch.Len()) {
		row := record.Batch.Row(i)
		series := record.Batch.Series(row)
		if series.Stream != stream || !p.wants(series.Sensor) {
			continue
		}
		if _, known := p.newest[series.Sensor]; known || b.StoredBefore(stream, series.Hash) <= record.Position {
			p.add(series.Sensor, row.Time)
		}
	}
}

// narrow leaves the sensors of the identity; false if none of those that are
// asked for can be.
func narrow(id *access.Identity, ask *telemetry.SensorQuery) bool {
	own := id.Prefix()
	switch {
	case strings.HasPrefix(ask.Prefix, own):
	case strings.HasPrefix(own, ask.Prefix):
		ask.Prefix = own
	default:
		return false
	}
	return true
}

// by names who asks, for the log.
func (q *question) by() string {
	if name := access.From(q.r.Context()).Name; name != "" {
		return name
	}
	return "anyone"
}

package read

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Journal is where readings wait to be stored. Its methods do not wait, and may
// be called by several goroutines.
type Journal interface {
	// End is the position behind the last record that is durable.
	End() uint64
	// Follow returns a cursor at a position. It may leave out rows that are not of
	// the part.
	Follow(position uint64, part batch.Part) batch.Cursor
}

// A Backlog is what was acknowledged and may not be stored.
type Backlog struct {
	Journal Journal
	// StoredBefore returns a position of the journal before which all readings of
	// a stream's sensors with that batch.SeriesHash are stored.
	StoredBefore func(stream string, hash uint64) uint64
	// StreamStored returns such a position for all sensors of a stream, and one
	// for all readings except those of buckets that are set aside.
	StreamStored func(stream string) (all, most uint64)
	// Granularity returns that of a stream, for readings that were journaled
	// without one.
	Granularity func(stream string) time.Duration
}

// maxUnstoredBytes bounds the memory of what one answer takes from the journal:
// some 30,000 readings of a sensor, which with eight queries at once are 64 MiB.
const maxUnstoredBytes = 8 << 20

// hashes is what the parts are made of that leave nearly nothing but one sensor.
const hashes = 1 << 62

// A search gathers the readings of one sensor from the backlog.
type search struct {
	stream, sensor string
	hash           uint64
	from, to       int64 // of the readings' times
	latest         bool  // only the newest one is of interest
	most           int   // only so many of the oldest are; 0: all
	backlog        *Backlog

	found []telemetry.Unstored
	bytes int
}

// unstored gathers what may not be stored of what the question is about.
func (q *question) unstored(ctx context.Context) ([]telemetry.Unstored, error) {
	b := &q.stored.Backlog
	if b.Journal == nil || q.params.storedOnly {
		return nil, nil
	}
	p := &q.params
	s := search{
		stream: p.stream, sensor: p.query.Sensor, hash: batch.SeriesHash(p.stream, p.query.Sensor),
		from: p.query.From, to: p.query.To, backlog: b,
	}
	if p.call == callLatest {
		s.to, s.latest = maxTime+1, true
	}
	if p.call == callReadings {
		s.most = p.query.Limit + p.after.seen + 1
	}
	if p.after.set {
		s.from = max(s.from, p.after.ms)
	}
	if err := s.run(ctx, uint64(q.reader.cfg.MaxBacklog)); err != nil {
		return nil, err
	}
	return s.found, nil
}

// run searches from the sensor's oldest reading that may not be stored to the end
// of what was acknowledged when it begins.
func (s *search) run(ctx context.Context, most uint64) error {
	journal := s.backlog.Journal
	end := journal.End()
	from := s.backlog.StoredBefore(s.stream, s.hash)
	if end > from && end-from > most {
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "backlog_too_long", RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("%d MiB of the journal wait to be stored, and at most %d MiB are searched for one answer (--query-max-backlog); "+
				"ask again later, or with unstored=off for what is stored", (end-from)>>20, most>>20),
		}
	}
	part := batch.Part{Stream: s.stream, Number: s.hash % hashes, Of: hashes}
	cursor := journal.Follow(from, part)
	defer func() { cursor.Close() }()
	for n := 0; cursor.Position() < end; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return fmt.Errorf("search the journal: %w", ctx.Err())
		}
		record, found, err := cursor.Next()
		if err != nil {
			// What was trimmed meanwhile is stored, and MongoDB is yet to be asked.
			stored := s.backlog.StoredBefore(s.stream, s.hash)
			if stored <= cursor.Position() {
				return fmt.Errorf("search the journal: %w", err)
			}
			cursor.Close()
			cursor = journal.Follow(stored, part)
			continue
		}
		if !found {
			return nil
		}
		if record.Position >= end {
			return nil
		}
		if err := s.take(record.Batch); err != nil {
			return err
		}
	}
	return nil
}

// take keeps the readings of a batch that are asked for.
func (s *search) take(b *batch.Batch) error {
	if !s.isIn(b) {
		return nil
	}
	granularity := b.Granularity(s.stream)
	if granularity == 0 && s.backlog.Granularity != nil {
		granularity = s.backlog.Granularity(s.stream)
	}
	for i := range uint32(b.Len()) {
		row := b.Row(i)
		if series := b.Series(row); series.Hash != s.hash || series.Sensor != s.sensor || series.Stream != s.stream || row.Time < s.from || row.Time >= s.to {
			continue
		}
		if s.latest && len(s.found) > 0 && row.Time < s.found[0].Reading.Time.UnixMilli() {
			continue
		}
		one := telemetry.Unstored{
			Session: b.Session, Sequence: batch.Ref{Batch: b, Index: i}.Seq(), Granularity: granularity, Reading: b.Reading(i),
		}
		if s.latest {
			s.found = append(s.found[:0], one)
			continue
		}
		s.found = append(s.found, one)
		if s.bytes += weight(&one.Reading); s.bytes > maxUnstoredBytes && !s.leaveOldest() {
			return &telemetry.Error{
				Kind: telemetry.Unavailable, Code: "backlog_too_long", RetryAfter: 5 * time.Second,
				Message: fmt.Sprintf("more than %d readings of the sensor wait to be stored, and one answer holds no more; "+
					"ask again later, or for a narrower span, or with unstored=off for what is stored", len(s.found)-1),
			}
		}
	}
	return nil
}

// leaveOldest drops what is behind the page that is asked for, whatever comes
// besides, and reports whether that made room. It keeps half of the room free, so
// that it is not called for each reading.
func (s *search) leaveOldest() bool {
	if s.most == 0 || len(s.found) <= s.most {
		return false
	}
	slices.SortStableFunc(s.found, func(a, b telemetry.Unstored) int { return a.Reading.Time.Compare(b.Reading.Time) })
	clear(s.found[s.most:])
	s.found, s.bytes = s.found[:s.most], 0
	for i := range s.found {
		s.bytes += weight(&s.found[i].Reading)
	}
	s.to = s.found[s.most-1].Reading.Time.UnixMilli() + 1
	return s.bytes <= maxUnstoredBytes/2
}

// isIn reports whether any reading of the batch can be of the sensor.
func (s *search) isIn(b *batch.Batch) bool {
	for i := range b.SeriesLen() {
		if b.HashAt(i) == s.hash {
			return true
		}
	}
	return false
}

// weight estimates the bytes of memory that a reading takes.
func weight(r *telemetry.Reading) int {
	n := 160 + len(r.Tags)*32
	for _, f := range r.Fields {
		n += 56 + len(f.Value.Text())
	}
	return n
}

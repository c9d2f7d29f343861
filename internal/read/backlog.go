package read

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Journal is where readings wait to be stored. Its methods do not block, and may be
// called by several goroutines.
type Journal interface {
	// End is the position after the last durable record.
	End() uint64
	// Follow returns a cursor at a position. It may leave out rows that do not belong
	// to the part.
	Follow(position uint64, part batch.Part) batch.Cursor
	// Trimmed reports whether a sensor's readings in the record at the position are known
	// to be stored, even if those of other sensors in it are not.
	Trimmed(stream, sensor string, position uint64) bool
}

// A Backlog has the readings that were acknowledged and may not be stored yet.
type Backlog struct {
	Journal Journal
	// Waiting returns a sensor's readings in memory, and the journal position after which
	// there may be more. Readings after it may also be in memory, or stored.
	Waiting func(stream, sensor string) (rows []batch.Ref, from uint64)
	// WaitingSensors calls visit, perhaps several times, for each sensor with readings in
	// memory; newest is the time of the newest one, and tags returns their sets of tags. A nil
	// visit is not called. The results are journal positions after which there may be more
	// readings: from for all sensors, unread for one sensor by its batch.SeriesHash.
	WaitingSensors func(stream string, visit func(sensor string, newest int64, tags func() [][]telemetry.Tag)) (from uint64, unread func(hash uint64) uint64)
	// WaitingNewest returns the time of a sensor's newest reading in memory, in
	// milliseconds since the epoch, and whether there is one.
	WaitingNewest func(stream, sensor string) (newest int64, found bool)
	// Target returns how the readings of a session of this journal are stored, for
	// telemetry.Unstored. It may be nil.
	Target func(stream, session string) string
	// Granularity returns a stream's granularity, for readings that were journaled without
	// one.
	Granularity func(stream string) time.Duration
}

// maxUnstoredBytes bounds the memory of what one answer takes from the journal: some
// 30,000 readings of a sensor. Eight concurrent queries take 64 MiB.
const maxUnstoredBytes = 8 << 20

// sensorParts is the number of parts that a stream is divided into: large, so that two
// sensors are hardly ever in the same part.
const sensorParts = 1 << 62

// A search gathers the readings of one sensor from the backlog.
type search struct {
	stream, sensor string
	hash           uint64
	from, to       int64 // times of the readings
	latest         bool  // find only the newest one
	limit          int   // find only this many of the oldest ones; 0: all
	backlog        *Backlog

	inMemory map[identity]struct{} // readings that were found in memory
	unread   uint64                // position in the journal after which there may be others
	found    []telemetry.Unstored
	bytes    *int // of what was found by all searches that run together
}

// identity identifies a reading.
type identity struct {
	session  string
	sequence uint64
}

// newSearch is a search for the readings of a query.
func (s *Session) newSearch(q telemetry.Query) search {
	return search{
		stream: s.stream, sensor: q.Sensor, hash: batch.SeriesHash(s.stream, q.Sensor), from: q.From, to: q.To, backlog: &s.stored.Backlog,
		bytes: new(int),
	}
}

// newestSearch is a search for a sensor's newest reading.
func (s *Session) newestSearch(sensor string) search {
	find := s.newSearch(telemetry.Query{Sensor: sensor, To: maxTime + 1})
	find.latest = true
	return find
}

// unstored gathers the readings that may not be stored yet, here and in other daemons.
func (s *Session) unstored(ctx context.Context, find search) ([]telemetry.Unstored, error) {
	if s.stored.Backlog.Journal == nil || s.storedOnly {
		return nil, nil
	}
	others := s.askOthers(ctx, http.MethodGet, find.target())
	if err := s.stored.Backlog.search(ctx, uint64(s.reader.cfg.MaxBacklog), &find); err != nil {
		discard(others)
		return nil, err
	}
	return find.withOthers(s, others)
}

// unstoredOf does the same for several sensors, with one pass over the journal.
func (s *Session) unstoredOf(ctx context.Context, finds []*search) error {
	if s.stored.Backlog.Journal == nil || s.storedOnly {
		return nil
	}
	if err := s.stored.Backlog.search(ctx, uint64(s.reader.cfg.MaxBacklog), finds...); err != nil {
		return err
	}
	for _, find := range finds {
		if _, err := find.withOthers(s, s.askOthers(ctx, http.MethodGet, find.target())); err != nil {
			return err
		}
	}
	return nil
}

// search searches memory, then the part of the journal that is not in memory, for all of these
// searches of one stream.
func (b *Backlog) search(ctx context.Context, maxBytes uint64, finds ...*search) error {
	part := batch.Part{Stream: finds[0].stream}
	if len(finds) == 1 {
		part.Number, part.Of = finds[0].hash%sensorParts, sensorParts
	}
	of := make(map[uint64][]*search, len(finds))
	for _, find := range finds {
		of[find.hash] = append(of[find.hash], find)
	}
	searchMemory := func() (from uint64, err error) {
		from = math.MaxUint64
		for _, find := range finds {
			if err := find.searchMemory(); err != nil {
				return 0, err
			}
			from = min(from, find.unread)
		}
		return from, nil
	}
	end := b.Journal.End()
	from, err := searchMemory()
	if err != nil {
		return err
	}
	for record, err := range b.records(ctx, part, span{from, end, maxBytes, searchMemory}) {
		if err == nil {
			err = take(record, of)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// searchMemory adds the readings in memory.
func (s *search) searchMemory() error {
	rows, unread := s.backlog.Waiting(s.stream, s.sensor)
	// Among readings with the same time, the last one is the newest.
	slices.SortStableFunc(rows, func(a, b batch.Ref) int {
		if a.Batch.Recovered != b.Batch.Recovered {
			if a.Batch.Recovered {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Seq(), b.Seq())
	})
	if s.inMemory == nil {
		s.inMemory = make(map[identity]struct{}, len(rows))
	}
	for _, r := range rows {
		if err := s.takeRow(r); err != nil {
			return err
		}
	}
	for _, r := range rows {
		s.inMemory[identity{r.Batch.Session, r.Seq()}] = struct{}{}
	}
	s.unread = unread
	return nil
}

// A span is the part of the journal to search.
type span struct {
	from, end uint64 // positions
	maxBytes  uint64 // the maximum length
	// resume returns where to continue if part of the span was trimmed during the search. The
	// readings in that part are stored, so the query to MongoDB, which follows, finds them.
	resume func() (from uint64, err error)
}

// records yields the records of a part of the journal in a span.
func (b *Backlog) records(ctx context.Context, part batch.Part, s span) iter.Seq2[*batch.Record, error] {
	return func(yield func(*batch.Record, error) bool) {
		if s.end > s.from && s.end-s.from > s.maxBytes {
			yield(nil, tooLong("%d MiB of the journal are not stored yet, and at most %d MiB are searched for one answer (--query-max-backlog); "+
				"try again later, or use unstored=off for stored readings only", (s.end-s.from)>>20, s.maxBytes>>20))
			return
		}
		cursor := b.Journal.Follow(s.from, part)
		for n := 0; cursor.Position() < s.end; n++ {
			if n%256 == 0 && ctx.Err() != nil {
				yield(nil, fmt.Errorf("search the journal: %w", ctx.Err()))
				return
			}
			record, found, err := cursor.Next()
			if err != nil {
				if at, failed := s.resume(); failed != nil {
					err = failed
				} else if at > cursor.Position() {
					cursor = b.Journal.Follow(at, part)
					continue
				}
				yield(nil, unreadable(err))
				return
			}
			if !found || record.Position >= s.end || !yield(&record, nil) {
				return
			}
		}
	}
}

// codeTooLong is the code of errors because of more unstored readings than one answer may have.
const codeTooLong = "backlog_too_long"

func tooLong(format string, args ...any) error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: codeTooLong, RetryAfter: 5 * time.Second, Message: fmt.Sprintf(format, args...)}
}

// unreadable is the error while the journal cannot be read, for example because its folder
// was removed.
func unreadable(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "journal_unreadable", RetryAfter: 10 * time.Second, Err: fmt.Errorf("search the journal: %w", err),
		Message: "the journal, with readings that are not stored yet, cannot be read; see the daemon's log, or use unstored=off for stored readings only",
	}
}

// take keeps the readings of a record that searches ask for; of has them by their hashes.
func take(record *batch.Record, of map[uint64][]*search) error {
	b, in := record.Batch, false
	for i := range b.SeriesLen() {
		in = in || of[b.HashAt(i)] != nil
	}
	if !in {
		return nil
	}
	for i := range uint32(b.Len()) {
		r := batch.Ref{Batch: b, Index: i}
		series := b.Series(r.Row())
		for _, s := range of[series.Hash] {
			if series.Sensor != s.sensor || series.Stream != s.stream || record.Position < s.unread ||
				b.Recovered && s.backlog.Journal.Trimmed(s.stream, s.sensor, record.Position) {
				continue
			}
			if err := s.takeRow(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeRow keeps a reading of the sensor if the query asks for it.
func (s *search) takeRow(r batch.Ref) error {
	row := r.Row()
	if row.Time < s.from || row.Time >= s.to || s.latest && len(s.found) > 0 && row.Time < s.found[0].Reading.Time.UnixMilli() {
		return nil
	}
	if _, known := s.inMemory[identity{r.Batch.Session, r.Seq()}]; known {
		return nil
	}
	granularity := r.Batch.Granularity(s.stream)
	if granularity == 0 && s.backlog.Granularity != nil {
		granularity = s.backlog.Granularity(s.stream)
	}
	target := ""
	if s.backlog.Target != nil {
		target = s.backlog.Target(s.stream, r.Batch.Session)
	}
	return s.keep(telemetry.Unstored{
		Session: r.Batch.Session, Sequence: r.Seq(), Arrival: r.Arrival(), Granularity: granularity, Target: target, Reading: r.Batch.Reading(r.Index),
	})
}

// keep adds a reading to those found, or replaces them if only the newest is wanted.
func (s *search) keep(one telemetry.Unstored) error {
	if s.latest {
		s.found = append(s.found[:0], one)
		return nil
	}
	s.found = append(s.found, one)
	if *s.bytes += weight(&one.Reading); *s.bytes > maxUnstoredBytes && !s.trimToPage() {
		return tooLong("more than %d readings of the sensor are not stored yet, which is the maximum for one answer; "+
			"try again later, use a shorter span, or use unstored=off for stored readings only", len(s.found)-1)
	}
	return nil
}

// trimToPage drops readings that cannot be on the page that was asked for, and reports
// whether at least half of maxUnstoredBytes is free then. With less, it would be called for
// almost every reading.
func (s *search) trimToPage() bool {
	if s.limit == 0 || len(s.found) <= s.limit {
		return false
	}
	slices.SortStableFunc(s.found, func(a, b telemetry.Unstored) int { return a.Reading.Time.Compare(b.Reading.Time) })
	clear(s.found[s.limit:])
	s.found, *s.bytes = s.found[:s.limit], 0
	for i := range s.found {
		*s.bytes += weight(&s.found[i].Reading)
	}
	s.to = s.found[s.limit-1].Reading.Time.UnixMilli() + 1
	return *s.bytes <= maxUnstoredBytes/2
}

// weight estimates the bytes of memory that a reading takes.
func weight(r *telemetry.Reading) int {
	n := 160 + len(r.Tags)*32
	for _, f := range r.Fields {
		n += 56 + len(f.Value.Text())
	}
	return n
}

// A Listed is a sensor in a list.
type Listed struct {
	telemetry.Sensor

	Newest int64 // time of its newest reading, in milliseconds since the epoch, or unknown
}

// unknown is the time of the newest reading of a sensor with no known reading.
const unknown = math.MinInt64

// pending gathers the sensors of a page from the backlog, in the order of their ids.
type pending struct {
	ask   telemetry.SensorQuery
	found map[string]*Listed
	last  string // the greatest id that may be on the page; empty: any may be
}

func newPending(ask telemetry.SensorQuery) *pending {
	return &pending{ask: ask, found: make(map[string]*Listed)}
}

// wants reports whether a sensor may be on the page.
func (p *pending) wants(sensor string) bool {
	return (p.last == "" || sensor <= p.last) && p.ask.Wants(sensor)
}

// add notes the time of a reading, which may be unknown, and what it says about its sensor.
// It keeps at most twice as many sensors as the page has. A sensor that was dropped cannot
// return, because last only gets smaller.
func (p *pending) add(sensor string, at int64, about func() telemetry.Sensor) {
	before := p.found[sensor]
	if before == nil && !p.wants(sensor) {
		return
	}
	more := about()
	if len(p.ask.Tags) > 0 && !more.Matches(&p.ask) {
		return
	}
	if before != nil {
		before.Newest = max(before.Newest, at)
		before.Merge(&more)
		return
	}
	more.ID = strings.Clone(sensor) // the id itself may keep a whole batch in memory
	p.found[more.ID] = &Listed{more, at}
	if p.ask.Limit > 0 && len(p.found) >= 2*p.ask.Limit {
		p.cut()
	}
}

// cut drops the sensors that are not on the page.
func (p *pending) cut() {
	ids := slices.Sorted(maps.Keys(p.found))
	for _, id := range ids[p.ask.Limit:] {
		delete(p.found, id)
	}
	p.last = ids[p.ask.Limit-1]
}

// sorted returns the sensors of the page in order.
func (p *pending) sorted() []Listed {
	out := make([]Listed, 0, len(p.found))
	for _, one := range p.found {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.ID, b.ID) })
	if p.ask.Limit > 0 {
		out = out[:min(len(out), p.ask.Limit)]
	}
	return out
}

// pendingSensors returns the sensors of a page that have readings in the backlog. With a
// catalog, it returns only those that the catalog may not have yet.
func (s *Session) pendingSensors(ctx context.Context, ask telemetry.SensorQuery, catalog Catalog) ([]Listed, error) {
	b, stream := &s.stored.Backlog, s.stream
	if b.Journal == nil || s.storedOnly {
		return nil, nil
	}
	p := newPending(ask)
	others := s.askOthers(ctx, http.MethodGet, sensorsTarget(stream, ask))
	visit := func(sensor string, newest int64, tags func() [][]telemetry.Tag) {
		p.add(sensor, newest, func() telemetry.Sensor {
			one := telemetry.Sensor{ID: sensor}
			for _, set := range tags() {
				one.Merge(&telemetry.Sensor{Sets: []telemetry.TagSet{{Tags: set, From: newest, To: newest + 1}}})
			}
			return one
		})
	}
	if catalog != nil && !catalog.Overflowed() {
		visit = nil
	}
	end := b.Journal.End()
	from, unread := b.WaitingSensors(stream, visit)
	trimmed := func(sensor string, r *batch.Record) bool {
		return r.Batch.Recovered && b.Journal.Trimmed(stream, sensor, r.Position)
	}
	resume := func() (at uint64, err error) {
		at, unread = b.WaitingSensors(stream, visit)
		return at, nil
	}
	for record, err := range b.records(ctx, batch.Part{Stream: stream}, span{from, end, uint64(s.reader.cfg.MaxBacklog), resume}) {
		if err != nil {
			discard(others)
			return nil, err
		}
		p.take(stream, record, unread, trimmed)
	}
	p.addOthers(s, others)
	return p.sorted(), nil
}

// take adds the sensors of a record, except those whose readings in it are stored or were
// found in memory.
func (p *pending) take(stream string, record *batch.Record, unread func(hash uint64) uint64, trimmed func(string, *batch.Record) bool) {
	for i := range uint32(record.Batch.Len()) {
		row := record.Batch.Row(i)
		series := record.Batch.Series(row)
		if series.Stream == stream && unread(series.Hash) <= record.Position && !trimmed(series.Sensor, record) {
			p.add(series.Sensor, row.Time, func() telemetry.Sensor {
				return batch.Sensor(series, record.Batch.Shape(row), row.Time, row.Time)
			})
		}
	}
}

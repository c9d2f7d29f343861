package read

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const granularity = 5 * time.Minute

func journalStreams() map[string]journal.Stream {
	return map[string]journal.Stream{"readings": {Storage: "bucket", Target: "x", Granularity: granularity}, "other": {Storage: "bucket", Target: "x", Granularity: time.Minute}}
}

func openJournal(t *testing.T, change ...func(*journal.Config)) *journal.Journal {
	t.Helper()
	cfg := journal.Config{Dir: t.TempDir(), Session: "s1", Streams: journalStreams(), MaxBytes: 64 << 20}
	for _, c := range change {
		c(&cfg)
	}
	j, err := journal.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, j.Close()) })
	return j
}

// readingsOf returns a batch with a reading of each sensor, one second apart,
// whose field v counts from first.
func readingsOf(stream string, first int, sensors ...string) *batch.Batch {
	b := batch.NewBuilder(base)
	for i, sensor := range sensors {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration(first+i) * time.Second).UnixMilli())
		b.Int([]byte("v"), int64(first+i))
		b.End()
	}
	return b.Batch()
}

func journaled(t *testing.T, j *journal.Journal, b *batch.Batch) {
	t.Helper()
	_, err := j.Append(context.Background(), b, batch.Request{Want: telemetry.Journaled})
	require.NoError(t, err)
}

// backlogOf is the backlog of a journal with nothing stored before rest.
func backlogOf(j Journal, rest *atomic.Uint64) Backlog {
	return Backlog{
		Journal:     j,
		Waiting:     func(string, string) ([]batch.Ref, uint64) { return nil, rest.Load() },
		Granularity: func(string) time.Duration { return granularity },
		WaitingSensors: func(string, func(string, int64, func() [][]telemetry.Tag)) (uint64, func(uint64) uint64) {
			return rest.Load(), func(uint64) uint64 { return rest.Load() }
		},
	}
}

// values returns the values of field v.
func values(found []telemetry.Unstored) []int64 {
	out := []int64{}
	for _, u := range found {
		out = append(out, u.Reading.Fields[0].Value.Int())
	}
	return out
}

func searchFor(b *Backlog, stream, sensor string) *search {
	return &search{stream: stream, sensor: sensor, hash: batch.SeriesHash(stream, sensor), to: maxTime, backlog: b, bytes: new(int)}
}

func TestJournaledReadingsAreFound(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]int64{"in memory": 8 << 20, "on disk": 1, "in both": 1 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openJournal(t, func(c *journal.Config) { c.TailBytes = tail })
			for i := range 20 {
				journaled(t, j, readingsOf("readings", 10*i, "a", "b", "a", "c"))
				journaled(t, j, readingsOf("other", 1000+10*i, "a"))
			}
			var rest atomic.Uint64
			rest.Store(j.Oldest())
			backlog := backlogOf(j, &rest)
			s := searchFor(&backlog, "readings", "a")
			require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
			require.Len(t, s.found, 40)
			first, third := s.found[0], s.found[1]
			assert.Equal(t, telemetry.Unstored{Session: "s1", Sequence: 1, Arrival: base.UnixMilli(), Granularity: granularity, Reading: reading("a", 0, 0)}, first)
			assert.Equal(t, telemetry.Unstored{Session: "s1", Sequence: 3, Arrival: base.UnixMilli(), Granularity: granularity, Reading: reading("a", 2*time.Second, 2)}, third)
			s = searchFor(&backlog, "readings", "a")
			s.from, s.to = base.Add(10*time.Second).UnixMilli(), base.Add(20*time.Second).UnixMilli()
			require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
			assert.Equal(t, []int64{10, 12}, values(s.found), "within the span")
			s = searchFor(&backlog, "readings", "a")
			s.latest = true
			require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
			assert.Equal(t, []int64{192}, values(s.found), "the newest one")
			s = searchFor(&backlog, "other", "a")
			require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
			require.Len(t, s.found, 20)
			assert.Equal(t, time.Minute, s.found[0].Granularity, "the one of its stream")
			together := []*search{searchFor(&backlog, "readings", "a"), searchFor(&backlog, "readings", "b"), searchFor(&backlog, "readings", "none")}
			require.NoError(t, backlog.search(t.Context(), 1<<30, together...))
			assert.Len(t, together[0].found, 40, "of several sensors")
			assert.Equal(t, []int64{1, 11, 21}, values(together[1].found)[:3])
			assert.Empty(t, together[2].found)
			rest.Store(j.End())
			s = searchFor(&backlog, "readings", "a")
			require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
			assert.Empty(t, s.found, "all is stored")
		})
	}
}

func TestReadingsJournaledByAnEarlierProcessAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := journal.Open(journal.Config{Dir: dir, Session: "s0", Streams: journalStreams()})
	require.NoError(t, err)
	journaled(t, first, readingsOf("readings", 0, "a", "b"))
	require.NoError(t, first.Close())
	j := openJournal(t, func(c *journal.Config) {
		c.Dir = dir
		c.Streams["readings"] = journal.Stream{Storage: "bucket", Target: "x", Granularity: time.Hour}
	})
	journaled(t, j, readingsOf("readings", 1, "b"))
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	backlog := backlogOf(j, &rest)
	s := searchFor(&backlog, "readings", "b")
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	require.Len(t, s.found, 2)
	assert.Equal(t, "s0", s.found[0].Session)
	assert.Equal(t, uint64(2), s.found[0].Sequence)
	assert.Equal(t, granularity, s.found[0].Granularity, "the one that it was journaled with")
	assert.Equal(t, "s1", s.found[1].Session)
	assert.Equal(t, time.Hour, s.found[1].Granularity)

	durable, err := j.TrimSensor("readings", "b", rest.Load()+1) // like the earlier process
	require.NoError(t, err)
	assert.True(t, durable)
	s = searchFor(&backlog, "readings", "b")
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	assert.Equal(t, []int64{1}, values(s.found))
	r := newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlog })
	assert.Regexp(t, `(?s)"sensorId":"a".*"sensorId":"b","newest":"[^"]*01.000Z"`, get(r, "/v1/sensors").body)
}

// TestTrimmingMayOvertakeASearch trims a journal at every step of a search:
// trimmed readings are stored by then, and the others are found.
func TestTrimmingMayOvertakeASearch(t *testing.T) {
	t.Parallel()
	j := openJournal(t, func(c *journal.Config) { c.TailBytes, c.SegmentBytes = 1, 4<<10 })
	long := append(slices.Repeat([]string{"b"}, 100), "a")
	var ends []uint64
	for i := range 40 {
		journaled(t, j, readingsOf("readings", 1000*i, long...))
		ends = append(ends, j.End())
	}
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	trimming := &trimmed{Journal: j, at: 3, trim: func() {
		rest.Store(ends[29])
		j.Trim(ends[29])
		require.Eventually(t, func() bool { return j.Status().Segments <= 12 }, time.Minute, time.Millisecond)
	}}
	backlog := backlogOf(trimming, &rest)
	s := searchFor(&backlog, "readings", "a")
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	got := values(s.found)
	assert.Equal(t, []int64{100, 1100, 2100}, got[:3], "what was found before it was trimmed")
	assert.Equal(t, int64(39_100), got[len(got)-1])
	assert.Subset(t, got, []int64{30_100, 31_100, 35_100, 38_100})
	assert.Less(t, len(got), 40)
}

// trimmed is a journal that is trimmed when a cursor reaches record number at.
type trimmed struct {
	Journal

	at   int
	trim func()
}

func (j *trimmed) Follow(position uint64, part batch.Part) batch.Cursor {
	return &trimmedCursor{j.Journal.Follow(position, part), j}
}

type trimmedCursor struct {
	batch.Cursor

	journal *trimmed
}

func (c *trimmedCursor) Next() (batch.Record, bool, error) {
	if c.journal.at--; c.journal.at == -1 {
		c.journal.trim()
	}
	return c.Cursor.Next()
}

func TestUnreadableJournalIsAnError(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	journaled(t, j, readingsOf("readings", 0, "a"))
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	backlog := backlogOf(&broken{j}, &rest)
	s := searchFor(&backlog, "readings", "a")
	err := s.backlog.search(t.Context(), 1<<30, s)
	assert.ErrorContains(t, err, "search the journal: broken")
	assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err), "it is not the client's fault, and may pass")
	assert.ErrorContains(t, err, "journal_unreadable")
}

type broken struct{ Journal }

func (j *broken) Follow(position uint64, part batch.Part) batch.Cursor {
	return brokenCursor{j.Journal.Follow(position, part)}
}

type brokenCursor struct{ batch.Cursor }

func (brokenCursor) Next() (batch.Record, bool, error) {
	return batch.Record{}, false, fmt.Errorf("broken")
}

func TestReadingsInAMemoryJournalAreFound(t *testing.T) {
	t.Parallel()
	v, err := journal.Open(journal.Config{Memory: true, Session: "s1", Streams: journalStreams()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = v.Append(ctx, readingsOf("readings", 0, "a", "b", "a"), batch.Request{Want: telemetry.Stored}) // nothing gets stored here
	}()
	require.Eventually(t, func() bool { return v.End() > 0 }, time.Minute, time.Millisecond)
	backlog := backlogOf(v, new(atomic.Uint64))
	s := searchFor(&backlog, "readings", "a")
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	assert.Equal(t, []int64{0, 2}, values(s.found))
	assert.Equal(t, uint64(3), s.found[1].Sequence)
	assert.Equal(t, granularity, s.found[1].Granularity)
	cancel()
	<-done
	require.NoError(t, v.Close())
}

func TestBacklogTooLongToSearchIsReported(t *testing.T) {
	t.Parallel()
	j := openJournal(t, func(c *journal.Config) { c.TailBytes = 1 })
	text := strings.Repeat("x", 1000)
	for range 12 {
		b := batch.NewBuilder(base)
		for i := range 100 {
			b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
			b.Sensor([]byte("b"))
			b.Time(base.UnixMilli())
			b.Text([]byte("x"), fmt.Appendf(nil, "%d%s", i, text))
			require.Nil(t, b.End())
		}
		journaled(t, j, b.Batch())
	}
	var rest, collected atomic.Uint64
	rest.Store(j.Oldest())
	peer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		collected.Add(1)
		w.WriteHeader(http.StatusNotFound)
	})
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}}, func(c *Config, s *Stored) {
		c.MaxBacklog, s.Backlog = 1<<20, backlogOf(j, &rest)
		s.Others = &others{daemons: map[string]http.Handler{"there:8430": peer}}
	})
	got := get(r, "/v1/sensors/a/readings").body
	assert.Contains(t, got, "backlog_too_long")
	assert.EqualValues(t, 1, collected.Load(), "the answers of peers, though they are not used")
	assert.Contains(t, got, "unstored=off")
	assert.Contains(t, get(r, "/v1/sensors/a/readings?unstored=off").body, `"v":1`)
	rest.Store(j.End())
	assert.Contains(t, get(r, "/v1/sensors/a/readings").body, `"v":1`)
}

func TestUnstoredReadingsOfAnAnswerAreBounded(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	sensors := make([]string, 5000)
	for i := range sensors {
		sensors[i] = "a"
	}
	for i := range 9 {
		journaled(t, j, readingsOf("readings", i*len(sensors), sensors...))
	}
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	r := newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(j, &rest) })
	for _, all := range []string{"/summary", "/readings?limit=100000"} {
		got := get(r, "/v1/sensors/a"+all).body
		assert.Contains(t, got, "backlog_too_long", "it passes, and the same may be asked again")
		assert.Contains(t, got, "unstored=off")
	}
	path, next := "/v1/sensors/a/readings?limit=10000", ""
	for page := range 5 {
		body := get(r, path+next).body
		var got struct {
			Readings []struct{ Fields struct{ V int } }
			After    string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got), "page %d: %.200s", page, body)
		require.Len(t, got.Readings, min(10000, 45000-page*10000))
		for i, one := range got.Readings {
			require.Equal(t, page*10000+i, one.Fields.V)
		}
		next = "&after=" + got.After
	}
	assert.Equal(t, "&after=", next, "it was the last page")
	assert.Contains(t, get(r, "/v1/sensors/a/latest").body, `"v":44999`, "the newest is one")
	span := fmt.Sprintf("?from=%d&to=%d", base.UnixMilli(), base.Add(10*time.Second).UnixMilli())
	assert.Equal(t, 10, strings.Count(get(r, "/v1/sensors/a/readings"+span, asLines).body, "\n"))
}

// A reading in memory and in the searched part of the journal is found once. Of two with
// the same time, the later one is the newest.
func TestReadingsInMemoryAndInTheJournalAreFoundOnce(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	journaled(t, j, readingsOf("readings", 0, "a", "a", "a"))
	begin := j.End()
	journaled(t, j, readingsOf("readings", 3, "a", "a"))
	journaled(t, j, readingsOf("readings", 4, "a")) // same time as another one
	var rows []batch.Ref
	cursor := j.Follow(j.Oldest(), batch.Part{Stream: "readings", Of: 1})
	for {
		record, found, err := cursor.Next()
		require.NoError(t, err)
		if !found {
			break
		}
		for i := range uint32(record.Batch.Len()) {
			rows = append(rows, batch.Ref{Batch: record.Batch, Index: i})
		}
	}
	slices.Reverse(rows)
	backlog := backlogOf(j, nil)
	backlog.Waiting = func(string, string) ([]batch.Ref, uint64) { return slices.Clone(rows[:5]), begin }
	s := searchFor(&backlog, "readings", "a")
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	assert.Equal(t, []int64{1, 2, 3, 4, 4}, values(s.found), "the first is stored")
	s = searchFor(&backlog, "readings", "a")
	s.latest = true
	require.NoError(t, s.backlog.search(t.Context(), 1<<30, s))
	require.Len(t, s.found, 1)
	assert.Equal(t, uint64(6), s.found[0].Sequence)
}

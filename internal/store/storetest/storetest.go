// Package storetest has the tests for the behavior that every kind of store
// must have: a store that passes Run can be used by the queue.
package storetest

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Store is what the queue and the reader need of a store.
type Store interface {
	Prepare(ctx context.Context) error
	Write(ctx context.Context, writes []*batch.Pending)
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error]
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	Newest(ctx context.Context, sensor string) (ms int64, found bool, err error)
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
	Delete(ctx context.Context, sensor string) (int64, error)
}

// Stream is the name of the stream that Run writes to.
const Stream = "readings"

// Base is the start of an hour; readings of Run are around it.
var Base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// Run tests the behaviour of a store. newStore returns a prepared, empty store; it is
// called once per test, concurrently.
func Run(t *testing.T, newStore func(t *testing.T) Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"every kind of value is read back unchanged, and twice if it was sent twice", everyKind},
		{"readings sent by an earlier process are not stored twice", recovered},
		{"writers do not disturb each other", concurrentWriters},
		{"a write that is cut short releases nothing that is not stored", cutShort},
		{"a span may begin and end at any time", farSpans},
		{"acknowledged readings are visible exactly once at any time", seenOnce},
		{"sensors are separate, listed in byte order, and deleted individually", separateSensors},
		{"a read ends with its context", endedByContext},
		{"readings read back match a simple model", likeModel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, newStore(t))
		})
	}
}

// Reading returns a reading with one field v, at Base plus the offset.
func Reading(sensor string, at time.Duration, v float64) telemetry.Reading {
	return telemetry.Reading{
		Sensor: sensor, Time: Base.Add(at),
		Fields: []telemetry.Field{{Name: "v", Value: telemetry.FloatValue(v)}},
	}
}

// Batch packs readings like the server, with a session and a first sequence.
func Batch(t require.TestingT, session string, firstSeq uint64, readings ...telemetry.Reading) *batch.Batch {
	b := batch.NewBuilder(Base)
	for i, r := range readings {
		b.Begin(Stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(r.Sensor))
		b.Time(r.Time.UnixMilli())
		for _, f := range r.Fields {
			b.Add(f)
		}
		for _, tag := range r.Tags {
			b.Tag([]byte(tag.Name), []byte(tag.Value))
		}
		refusal := b.End()
		require.Nil(t, refusal)
	}
	out := b.Batch()
	out.Session, out.FirstSeq = session, firstSeq
	return out
}

// Integers returns readings of integer fields, alternating between sensors, at
// intervals of ten seconds per sensor. first is the number of each sensor's
// first reading.
func Integers(b *testing.B, first, sensors, perSensor, fields int) *batch.Batch {
	b.Helper()
	readings := make([]telemetry.Reading, sensors*perSensor)
	for i := range readings {
		r := telemetry.Reading{
			Sensor: fmt.Sprintf("cpu,hostname=host_%d", i%sensors), Time: Base.Add(time.Duration(first+i/sensors) * 10 * time.Second),
			Tags: []telemetry.Tag{{Name: "region", Value: "eu-west-1"}},
		}
		for f := range fields {
			r.Fields = append(r.Fields, telemetry.Field{Name: fmt.Sprintf("usage_field_%d", f), Value: telemetry.IntValue(int64((i + f) % 100))})
		}
		readings[i] = r
	}
	return Batch(b, "sbench", uint64(1+first*sensors), readings...)
}

// Pending sorts a batch into buckets like a lane.
func Pending(b *batch.Batch, granularity time.Duration) []*batch.Pending {
	type key struct {
		sensor string
		start  int64
	}
	byBucket := make(map[key]*batch.Pending)
	var writes []*batch.Pending
	for i := range uint32(b.Len()) {
		row := b.Row(i)
		k := key{b.Series(row).Sensor, row.Time - row.Time%granularity.Milliseconds()}
		if byBucket[k] == nil {
			byBucket[k] = &batch.Pending{
				Stream: Stream, Sensor: k.sensor, Start: k.start, Granularity: granularity, Session: b.Session,
			}
			writes = append(writes, byBucket[k])
		}
		byBucket[k].Rows = append(byBucket[k].Rows, batch.Ref{Batch: b, Index: i})
	}
	return writes
}

// WriteAll writes until no rows are left.
func WriteAll(t require.TestingT, s Store, writes []*batch.Pending) {
	for range 10_000 {
		s.Write(context.Background(), writes)
		writes = slices.DeleteFunc(slices.Clone(writes), func(pending *batch.Pending) bool { return len(pending.Rows) == 0 })
		if len(writes) == 0 {
			return
		}
		for _, pending := range writes {
			require.NotEqual(t, batch.Stored, pending.Verdict, "a write with rows left reports that all are stored")
			require.NotEqual(t, batch.Poison, pending.Verdict, "%v", pending.Err)
		}
	}
	require.Fail(t, "the store does not finish", "%d writes are left, the first because of %v", len(writes), writes[0].Err)
}

// GivesUp writes rows that need several commands with an ended context: the
// first command fails, the others are not sent, and every write keeps its rows.
func GivesUp(t require.TestingT, s Store, writes []*batch.Pending, rows int) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	s.Write(cancelled, writes)
	require.Equal(t, batch.Wait, writes[0].Verdict)
	require.Equal(t, batch.Unsent, writes[len(writes)-1].Verdict, "after a command that failed")
	for _, pending := range writes {
		require.ErrorIs(t, pending.Err, context.Canceled)
		require.Len(t, pending.Rows, rows)
	}
}

// Read returns a sensor's stored readings in [from, to).
func Read(t require.TestingT, s Store, sensor string, from, to time.Time) []telemetry.Reading {
	return collect(t, s.Readings(context.Background(), telemetry.Query{Sensor: sensor, From: from.UnixMilli(), To: to.UnixMilli()}))
}

// ReadAll returns a sensor's stored readings around Base.
func ReadAll(t require.TestingT, s Store, sensor string) []telemetry.Reading {
	return Read(t, s, sensor, Base.Add(-48*time.Hour), Base.Add(48*time.Hour))
}

func write(t *testing.T, s Store, readings ...telemetry.Reading) {
	WriteAll(t, s, Pending(Batch(t, batch.NewSession(), 1, readings...), 5*time.Minute))
}

func everyKind(t *testing.T, s Store) {
	want := telemetry.Reading{
		Sensor: `odd / id "é" ☂ .$`, Time: Base.Add(123 * time.Millisecond),
		Fields: []telemetry.Field{
			{Name: "float", Value: telemetry.FloatValue(-0.1)},
			{Name: "whole", Value: telemetry.FloatValue(12)},
			{Name: "huge", Value: telemetry.FloatValue(math.MaxFloat64)},
			{Name: "largest", Value: telemetry.IntValue(math.MaxInt64)},
			{Name: "smallest", Value: telemetry.IntValue(math.MinInt64)},
			{Name: "yes", Value: telemetry.BoolValue(true)},
			{Name: "no", Value: telemetry.BoolValue(false)},
			{Name: "empty", Value: telemetry.TextValue("")},
			{Name: "text", Value: telemetry.TextValue("naïve\x00text")},
			{Name: "0", Value: telemetry.IntValue(1)},
			{Name: "count", Value: telemetry.IntValue(2)},
			{Name: "name with spaces ☂", Value: telemetry.IntValue(3)},
		},
		Tags: []telemetry.Tag{{Name: "fw", Value: "1.2"}, {Name: "site", Value: "north"}},
	}
	q := telemetry.Query{Sensor: want.Sensor, To: math.MaxInt64 / 2}
	assert.Empty(t, collect(t, s.Readings(t.Context(), q)), "an unknown sensor has no readings")
	assert.Empty(t, collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q, Every: 1000})))
	assert.Empty(t, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{})))
	_, found, err := s.Latest(t.Context(), want.Sensor, nil)
	require.NoError(t, err)
	assert.False(t, found)

	write(t, s, want, want)
	write(t, s, want)
	got := ReadAll(t, s, want.Sensor)
	require.Len(t, got, 3)
	for _, r := range got {
		assert.Equal(t, plain(want), plain(r))
	}
}

// recovered sends partly stored readings again, cut differently, like a
// restarted daemon.
func recovered(t *testing.T, s Store) {
	var readings []telemetry.Reading
	for i := range 21 { // seven full parts of three
		readings = append(readings, Reading("a", time.Duration(i)*time.Second, float64(i)))
	}
	b := Batch(t, batch.NewSession(), 1, readings...)
	before := Pending(b, 5*time.Minute)
	before[0].Rows = before[0].Rows[:13]
	WriteAll(t, s, before)
	for range 2 {
		again := Pending(b, 5*time.Minute)
		again[0].Recovered = true
		WriteAll(t, s, again)
	}
	assert.Equal(t, readings, ReadAll(t, s, "a"))

	// The journal delivers its contents in pieces.
	pieces := Pending(b, 5*time.Minute)[0]
	pieces.Recovered = true
	all := pieces.Rows
	for from := 0; from < len(all); from += 3 {
		pieces.Rows = slices.Clone(all[from:min(from+3, len(all))])
		WriteAll(t, s, []*batch.Pending{pieces})
	}
	assert.Equal(t, readings, ReadAll(t, s, "a"))
}

func concurrentWriters(t *testing.T, s Store) {
	var group sync.WaitGroup
	session := batch.NewSession()
	for w := range 4 {
		group.Go(func() {
			for round := range 10 {
				sensor := fmt.Sprintf("s%d", w)
				first := uint64(1 + w*1000 + round*10)
				var readings []telemetry.Reading
				for i := range 10 {
					readings = append(readings, Reading(sensor, time.Duration(round*10+i)*time.Second, 1))
				}
				WriteAll(t, s, Pending(Batch(t, session, first, readings...), 5*time.Minute))
			}
		})
	}
	group.Wait()
	for w := range 4 {
		assert.Len(t, ReadAll(t, s, fmt.Sprintf("s%d", w)), 100)
	}
}

func cutShort(t *testing.T, s Store) {
	b := Batch(t, batch.NewSession(), 1, Reading("a", 0, 1))
	writes := Pending(b, 5*time.Minute)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	s.Write(cancelled, writes)
	if len(writes[0].Rows) > 0 {
		assert.Equal(t, batch.Wait, writes[0].Verdict)
		require.Error(t, writes[0].Err)
		WriteAll(t, s, writes)
	}
	assert.Len(t, ReadAll(t, s, "a"), 1)
}

// Answers checks every kind of answer for one sensor. The readings are all of the
// sensor's, in time order.
func Answers(t require.TestingT, s Store, sensor string, readings ...telemetry.Reading) {
	ctx := context.Background()
	assert.Equal(t, readings, ReadAll(t, s, sensor))
	last := readings[len(readings)-1]
	latest, found, err := s.Latest(ctx, sensor, nil)
	require.NoError(t, err)
	assert.True(t, found, "the latest reading")
	assert.Equal(t, last, latest)
	steps := collect(t, s.Summary(ctx, telemetry.SummaryQuery{Query: telemetry.Query{Sensor: sensor, To: last.Time.UnixMilli() + 1}}))
	require.Len(t, steps, 1)
	assert.EqualValues(t, len(readings), steps[0].Count, "readings of the summary")
	assert.Equal(t, []telemetry.SensorSeen{{Sensor: sensor, Newest: last.Time.UnixMilli()}}, collect(t, s.Sensors(ctx, telemetry.SensorQuery{Limit: 10})))
}

// seenOnce reads while another goroutine writes: answers have what was
// acknowledged when the unstored readings were gathered, and nothing twice.
func seenOnce(t *testing.T, s Store) {
	const rounds, perRound = 40, 4
	session := batch.NewSession()
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		marked   int // readings that were acknowledged have the marks 1 to marked
		unstored []telemetry.Unstored
	)
	group.Go(func() {
		for round := range rounds {
			var readings []telemetry.Reading
			for i := range perRound {
				mark := round*perRound + i + 1
				readings = append(readings, Reading("a", time.Duration(mark)*time.Second, float64(mark)))
			}
			b := Batch(t, session, uint64(round*perRound+1), readings...)
			mu.Lock()
			for i, r := range readings {
				unstored = append(unstored, telemetry.Unstored{Session: session, Sequence: b.FirstSeq + uint64(i), Granularity: 5 * time.Minute, Reading: r})
			}
			marked += perRound
			mu.Unlock()
			if round == rounds-1 {
				return // the last ones are never stored
			}
			WriteAll(t, s, Pending(b, 5*time.Minute))
			mu.Lock()
			unstored = unstored[perRound:]
			mu.Unlock()
		}
	})
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}
	for last := false; ; {
		mu.Lock()
		acked := marked
		q.Unstored = slices.Clone(unstored)
		mu.Unlock()
		times := make(map[float64]int)
		readings := s.Readings(t.Context(), q)
		if acked%2 == 0 {
			readings = s.ReadingsOf(t.Context(), []telemetry.Query{q})
		}
		for _, r := range collect(t, readings) {
			times[r.Fields[0].Value.Float()]++
		}
		for mark, n := range times {
			require.Equal(t, 1, n, "reading %v", mark)
		}
		for mark := 1; mark <= acked; mark++ {
			require.Contains(t, times, float64(mark))
		}
		sums := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q}))
		if acked > 0 {
			require.Len(t, sums, 1)
			require.GreaterOrEqual(t, sums[0].Count, int64(acked))
			require.LessOrEqual(t, sums[0].Count, int64(rounds*perRound))
			r, found, err := s.Latest(t.Context(), "a", q.Unstored)
			require.NoError(t, err)
			require.True(t, found)
			require.GreaterOrEqual(t, r.Fields[0].Value.Float(), float64(acked))
		}
		if last {
			break
		}
		last = acked == rounds*perRound
	}
	group.Wait()
}

func separateSensors(t *testing.T, s Store) {
	ids := []string{
		" ", "!", "S", "a", "a ", "a!", "a\u007e", "a\ud7a3", "a\uf900", "a\U0001f600", "a\U0001f600b", "aa", "b", "\u00e9", "\uf900", "\U0001f600", "\U0001f600z", strings.Repeat("x", telemetry.MaxSensorBytes),
	}
	slices.Sort(ids)
	var all []telemetry.Reading
	own := make(map[string][]telemetry.Reading)
	for i, id := range ids {
		for j := range 3 {
			r := Reading(id, time.Duration(i)*time.Second+time.Duration(j)*time.Hour, float64(i))
			own[id], all = append(own[id], r), append(all, r)
		}
	}
	write(t, s, all...)
	list := func(q telemetry.SensorQuery) []telemetry.SensorSeen { return collect(t, s.Sensors(t.Context(), q)) }
	want := func(prefix string) (out []telemetry.SensorSeen) {
		for _, id := range ids {
			if of := own[id]; len(of) > 0 && strings.HasPrefix(id, prefix) {
				out = append(out, telemetry.SensorSeen{Sensor: id, Newest: of[2].Time.UnixMilli()})
			}
		}
		return out
	}
	for _, prefix := range append(ids, "", "a\u007e", "a\ud7a4", "zz", "x") {
		assert.Equal(t, want(prefix), list(telemetry.SensorQuery{Prefix: prefix}), "prefix %q", prefix)
	}
	seen := want("")
	for i, after := range seen {
		assert.Equal(t, append([]telemetry.SensorSeen(nil), seen[i+1:min(i+3, len(seen))]...), list(telemetry.SensorQuery{After: after.Sensor, Limit: 2}), "after %q", after.Sensor)
	}

	for _, left := range []int64{3, 0} {
		n, err := s.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, left, n)
	}
	delete(own, "a")
	assert.Equal(t, want(""), list(telemetry.SensorQuery{}))
	write(t, s, Reading("a", time.Second, 1))
	own["a"] = []telemetry.Reading{Reading("a", time.Second, 1)} // later readings are kept
	for _, id := range append(ids, "none") {
		assert.Equal(t, own[id], ReadAll(t, s, id), "%q", id)
	}
}

func endedByContext(t *testing.T, s Store) {
	for i := range 20 {
		write(t, s, Reading("a", time.Duration(i)*10*time.Minute, 1))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}
	_, err := last(s.Readings(ended, q))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `"a"`)
	_, err = last(s.Summary(ended, telemetry.SummaryQuery{Query: q}))
	require.ErrorIs(t, err, context.Canceled)
	_, err = last(s.Sensors(ended, telemetry.SensorQuery{}))
	require.ErrorIs(t, err, context.Canceled)

	midway, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range s.Readings(midway, q) {
		if cancel(); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		n++
	}
	assert.LessOrEqual(t, n, 20)
}

func last[T any](seq func(func(T, error) bool)) (out T, err error) {
	for v, e := range seq {
		if e != nil {
			return out, e
		}
		out = v
	}
	return out, nil
}

// farSpans queries spans that end or begin near the limits of 32-bit seconds,
// and beyond.
func farSpans(t *testing.T, s Store) {
	r := Reading("a", 0, 1)
	write(t, s, r)
	at, second := Base.UnixMilli(), time.Second.Milliseconds()
	early := []int64{-1 << 53, -(1<<32 + 1) * second, -(1 << 31) * second, -1, 0}
	late := []int64{1 << 31 * second, 1<<32*second - 1, 1 << 32 * second, (1<<32 + 1) * second, (1<<32 + at/second) * second, 253402300800000, 1 << 53, math.MaxInt64}
	for _, from := range append(early, at) {
		for _, to := range append(late, at+1) {
			q := telemetry.Query{Sensor: "a", From: from, To: to}
			assert.Equal(t, []telemetry.Reading{r}, collect(t, s.Readings(t.Context(), q)), "readings from %d to %d", from, to)
			sums := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q}))
			if assert.Len(t, sums, 1, "summary from %d to %d", from, to) {
				assert.EqualValues(t, 1, sums[0].Count)
			}
		}
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: "a", From: from, To: at})))
	}
	for sensor, at := range map[string]time.Time{"1970": time.UnixMilli(1), "1971": time.Unix(1<<25, 0), "2001": time.Unix(1_000_000_000, 0)} {
		r := Reading(sensor, at.Sub(Base), 1)
		b := Batch(t, batch.NewSession(), 1, r)
		WriteAll(t, s, Pending(b, 5*time.Minute))
		again := Pending(b, 5*time.Minute)
		again[0].Recovered = true
		WriteAll(t, s, again)
		newest, _, err := s.Latest(t.Context(), sensor, nil)
		require.NoError(t, err)
		assert.Equal(t, r, newest)
		for _, from := range append(early, 1) {
			for _, to := range []int64{at.UnixMilli() + 1, math.MaxInt64} {
				q := telemetry.Query{Sensor: sensor, From: from, To: to}
				assert.Equal(t, []telemetry.Reading{r}, collect(t, s.Readings(t.Context(), q)), "readings of %s from %d to %d", sensor, from, to)
			}
		}
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: sensor, From: at.UnixMilli() + 1, To: math.MaxInt64})), sensor)
	}
	for _, from := range late[:len(late)-1] {
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: "a", From: from, To: math.MaxInt64})), "from %d", from)
	}
}

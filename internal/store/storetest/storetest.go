// Package storetest holds the behaviour that every kind of store must show: a
// store that passes Run can stand behind the queue.
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
	Write(ctx context.Context, shares []*batch.Share)
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
	Delete(ctx context.Context, sensor string) (int64, error)
}

// Stream is the name of the stream that Run writes to.
const Stream = "readings"

// Base is the start of an hour; readings of Run lie around it.
var Base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// Run tests a store for the behaviour. newStore returns a prepared, empty store of
// the granularity; it is called once for each test, several at a time.
func Run(t *testing.T, newStore func(t *testing.T, granularity time.Duration) Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"every kind of value comes back as it was", everyKind},
		{"readings come in time order, within the span asked for", timeOrder},
		{"the same sensor and time twice are two readings", sameTimeTwice},
		{"sensors do not see each other's readings", separateSensors},
		{"a reading keeps its tags, or that it has none", ownTags},
		{"what was sent by an earlier process is not stored twice", recovered},
		{"writers do not disturb each other", concurrentWriters},
		{"a write that is cut short releases nothing that is not stored", cutShort},
		{"a span may begin and end at any time", farSpans},
		{"an ended read ends", endedRead},
		{"a limited read is the beginning of a longer one", limitedRead},
		{"what is acknowledged is seen once at every moment", seenOnce},
		{"sensors come in the order of their bytes", sensorsInOrder},
		{"the latest reading is the newest, whatever its window", latestOfAll},
		{"a deleted sensor is gone, and no other", deleted},
		{"integers of a summary keep all their bits", exactIntegers},
		{"a read ends with its context, and with its budget", endedByContext},
		{"a sensor that is not there has nothing", nothingThere},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, newStore(t, 5*time.Minute))
		})
	}
	for _, g := range []time.Duration{time.Minute, time.Hour} {
		t.Run("what is read back is what a simple model says, with windows of "+g.String(), func(t *testing.T) {
			t.Parallel()
			likeModel(t, newStore(t, g))
		})
	}
}

// Reading makes a reading of one field v, at Base plus the offset.
func Reading(sensor string, at time.Duration, v float64) telemetry.Reading {
	return telemetry.Reading{
		Sensor: sensor, Time: Base.Add(at),
		Fields: []telemetry.Field{{Name: "v", Value: telemetry.FloatValue(v)}},
	}
}

// Batch packs readings as the server does, under a session and a first sequence.
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

// Integers makes readings of integer fields, the sensors in turns and ten
// seconds from one reading of a sensor to the next. The first is the number of
// a sensor's first reading.
func Integers(b *testing.B, first, sensors, perSensor, fields int) *batch.Batch {
	b.Helper()
	builder := batch.NewBuilder(Base)
	names := make([][]byte, fields)
	for f := range names {
		names[f] = fmt.Appendf(nil, "usage_field_%d", f)
	}
	for i := range sensors * perSensor {
		builder.Begin(Stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		builder.Sensor(fmt.Appendf(nil, "cpu,hostname=host_%d", i%sensors))
		builder.Tag([]byte("region"), []byte("eu-west-1"))
		builder.Time(Base.Add(time.Duration(first+i/sensors) * 10 * time.Second).UnixMilli())
		for f, name := range names {
			builder.Int(name, int64((i+f)%100))
		}
		if r := builder.End(); r != nil {
			b.Fatal(r)
		}
	}
	out := builder.Batch()
	out.Session, out.FirstSeq = "sbench", uint64(1+first*sensors)
	return out
}

// Shares sorts a batch into buckets, as a lane does.
func Shares(b *batch.Batch, granularity time.Duration) []*batch.Share {
	type key struct {
		sensor string
		start  int64
	}
	byBucket := make(map[key]*batch.Share)
	var shares []*batch.Share
	for i := range uint32(b.Len()) {
		row := b.Row(i)
		k := key{b.Series(row).Sensor, row.Time - row.Time%granularity.Milliseconds()}
		if byBucket[k] == nil {
			byBucket[k] = &batch.Share{
				Stream: Stream, Sensor: k.sensor, Start: k.start, Granularity: granularity, Session: b.Session,
			}
			shares = append(shares, byBucket[k])
		}
		byBucket[k].Rows = append(byBucket[k].Rows, batch.Ref{Batch: b, Index: i})
	}
	return shares
}

// WriteAll writes shares until nothing is left of them.
func WriteAll(t require.TestingT, s Store, shares []*batch.Share) {
	for range 10_000 {
		s.Write(context.Background(), shares)
		shares = slices.DeleteFunc(slices.Clone(shares), func(share *batch.Share) bool { return len(share.Rows) == 0 })
		if len(shares) == 0 {
			return
		}
		for _, share := range shares {
			require.NotEqual(t, batch.Stored, share.Verdict, "a share with rows left says that all is stored")
			require.NotEqual(t, batch.Poison, share.Verdict, "%v", share.Err)
		}
	}
	require.Fail(t, "the store does not finish", "%d shares are left, the first because of %v", len(shares), shares[0].Err)
}

// GivesUp writes shares that take several commands in a context that has ended:
// the first command comes to nothing, those behind it are not sent, and every
// share keeps its rows.
func GivesUp(t require.TestingT, s Store, shares []*batch.Share, rows int) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	s.Write(cancelled, shares)
	require.Equal(t, batch.Wait, shares[0].Verdict)
	require.Equal(t, batch.Unsent, shares[len(shares)-1].Verdict, "behind a command that came to nothing")
	for _, share := range shares {
		require.ErrorIs(t, share.Err, context.Canceled)
		require.Len(t, share.Rows, rows)
	}
}

// Read returns what the store holds of a sensor in [from, to).
func Read(t require.TestingT, s Store, sensor string, from, to time.Time) []telemetry.Reading {
	var out []telemetry.Reading
	for r, err := range s.Readings(context.Background(), telemetry.Query{Sensor: sensor, From: from.UnixMilli(), To: to.UnixMilli()}) {
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// ReadAll returns all that the store holds of a sensor around Base.
func ReadAll(t require.TestingT, s Store, sensor string) []telemetry.Reading {
	return Read(t, s, sensor, Base.Add(-48*time.Hour), Base.Add(48*time.Hour))
}

func write(t *testing.T, s Store, readings ...telemetry.Reading) {
	WriteAll(t, s, Shares(Batch(t, batch.NewSession(), 1, readings...), 5*time.Minute))
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
	write(t, s, want)
	got := ReadAll(t, s, want.Sensor)
	require.Len(t, got, 1)
	// A store may give fields in an order of its own.
	for _, fields := range [][]telemetry.Field{want.Fields, got[0].Fields} {
		slices.SortFunc(fields, func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	}
	assert.Equal(t, want, got[0])
}

func timeOrder(t *testing.T, s Store) {
	offsets := []time.Duration{7 * time.Minute, 0, 5 * time.Minute, time.Millisecond, 5*time.Minute - time.Millisecond, 61 * time.Minute, -time.Millisecond}
	for i, at := range offsets {
		write(t, s, Reading("a", at, float64(i)))
	}
	got := ReadAll(t, s, "a")
	require.Len(t, got, len(offsets))
	slices.Sort(offsets)
	for i, at := range offsets {
		assert.Equal(t, Base.Add(at), got[i].Time)
	}
	within := Read(t, s, "a", Base, Base.Add(5*time.Minute))
	assert.Len(t, within, 3, "the span holds its start and not its end")
	assert.Empty(t, Read(t, s, "a", Base.Add(2*time.Minute), Base.Add(3*time.Minute)))
}

func sameTimeTwice(t *testing.T, s Store) {
	write(t, s, Reading("a", 0, 1), Reading("a", 0, 1))
	write(t, s, Reading("a", 0, 1))
	assert.Len(t, ReadAll(t, s, "a"), 3)
}

func separateSensors(t *testing.T, s Store) {
	ids := []string{"s", "s1", "s10", "S", "s ", strings.Repeat("x", telemetry.MaxSensorBytes)}
	var readings []telemetry.Reading
	for i, id := range ids {
		readings = append(readings, Reading(id, time.Second, float64(i)))
	}
	write(t, s, readings...)
	for i, id := range ids {
		assert.Equal(t, []telemetry.Reading{readings[i]}, ReadAll(t, s, id))
	}
	assert.Empty(t, ReadAll(t, s, "s100"))
}

// ownTags writes readings of one sensor and window whose tags differ, each time
// with other tags in front, as a writer that knows nothing of what is stored.
func ownTags(t *testing.T, s Store) {
	var all []telemetry.Reading
	for _, sites := range [][]string{{"north", "south", ""}, {"", "north"}, {"south", "south", "north"}} {
		var readings []telemetry.Reading
		for _, site := range sites {
			r := Reading("a", time.Duration(len(all)+len(readings))*time.Second, 1)
			if site != "" {
				r.Tags = []telemetry.Tag{{Name: "fw", Value: "1.2"}, {Name: "site", Value: site}}
			}
			readings = append(readings, r)
		}
		write(t, s, readings...)
		all = append(all, readings...)
		Answers(t, s, "a", all...)
	}
}

// recovered sends again, as a restarted daemon does, what had been stored in
// part, cut differently.
func recovered(t *testing.T, s Store) {
	var readings []telemetry.Reading
	for i := range 21 { // seven full parts of three
		readings = append(readings, Reading("a", time.Duration(i)*time.Second, float64(i)))
	}
	b := Batch(t, batch.NewSession(), 1, readings...)
	before := Shares(b, 5*time.Minute)
	before[0].Rows = before[0].Rows[:13]
	WriteAll(t, s, before)
	for range 2 {
		again := Shares(b, 5*time.Minute)
		again[0].Recovered = true
		WriteAll(t, s, again)
	}
	assert.Equal(t, readings, ReadAll(t, s, "a"))

	// The journal hands on what it has in pieces.
	pieces := Shares(b, 5*time.Minute)[0]
	pieces.Recovered = true
	all := pieces.Rows
	for from := 0; from < len(all); from += 3 {
		pieces.Rows = slices.Clone(all[from:min(from+3, len(all))])
		WriteAll(t, s, []*batch.Share{pieces})
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
				WriteAll(t, s, Shares(Batch(t, session, first, readings...), 5*time.Minute))
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
	shares := Shares(b, 5*time.Minute)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	s.Write(cancelled, shares)
	if len(shares[0].Rows) > 0 {
		assert.Equal(t, batch.Wait, shares[0].Verdict)
		require.Error(t, shares[0].Err)
		WriteAll(t, s, shares)
	}
	assert.Len(t, ReadAll(t, s, "a"), 1)
}

func endedRead(t *testing.T, s Store) {
	write(t, s, Reading("a", 0, 1), Reading("a", time.Second, 2), Reading("a", 10*time.Minute, 3))
	n := 0
	for range s.Readings(context.Background(), telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}) {
		n++
		break
	}
	assert.Equal(t, 1, n)
}

// limitedRead reads many readings of few instants: pages rest on their order.
func limitedRead(t *testing.T, s Store) {
	var readings []telemetry.Reading
	for i := range 300 {
		readings = append(readings, Reading("a", time.Duration(i%7)*time.Millisecond, float64(i)))
	}
	for _, some := range [][]telemetry.Reading{readings[:120], readings[120:]} {
		write(t, s, some...)
	}
	all := ReadAll(t, s, "a")
	require.Len(t, all, len(readings))
	for limit := 1; limit < len(all); limit += 13 {
		var got []telemetry.Reading
		for r, err := range s.Readings(context.Background(), telemetry.Query{Sensor: "a", To: Base.Add(time.Hour).UnixMilli(), Limit: limit}) {
			require.NoError(t, err)
			if got = append(got, r); len(got) == limit {
				break
			}
		}
		require.Equal(t, all[:limit], got)
	}
}

// Answers checks every kind of answer of a store with one sensor. The readings are
// all that the sensor has, in time order.
func Answers(t require.TestingT, s Store, sensor string, readings ...telemetry.Reading) {
	ctx := context.Background()
	assert.Equal(t, readings, ReadAll(t, s, sensor))
	last := readings[len(readings)-1]
	latest, found, err := s.Latest(ctx, sensor, nil)
	require.NoError(t, err)
	assert.True(t, found, "the latest reading")
	assert.Equal(t, last, latest)
	var count int64
	for step, err := range s.Summary(ctx, telemetry.SummaryQuery{Query: telemetry.Query{Sensor: sensor, To: last.Time.UnixMilli() + 1}}) {
		require.NoError(t, err)
		count += step.Count
	}
	assert.EqualValues(t, len(readings), count, "readings of the summary")
	var listed []telemetry.SensorSeen
	for seen, err := range s.Sensors(ctx, telemetry.SensorQuery{Limit: 10}) {
		require.NoError(t, err)
		listed = append(listed, seen)
	}
	assert.True(t, slices.Equal([]telemetry.SensorSeen{{Sensor: sensor, Newest: last.Time.UnixMilli()}}, listed), "the list of sensors: %v", listed)
}

// acknowledger stands in for a journal: readings are acknowledged, then written,
// then released.
type acknowledger struct {
	mu       sync.Mutex
	acked    int // readings, marked 1 to acked
	unstored []telemetry.Unstored
}

func (a *acknowledger) gather() (acked int, unstored []telemetry.Unstored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acked, append(unstored, a.unstored...)
}

// seenOnce reads while another writes: what was acknowledged when the reader
// gathered what is unstored is in its answer, and nothing is in it twice.
func seenOnce(t *testing.T, s Store) {
	const rounds, perRound = 60, 4
	session := batch.NewSession()
	var a acknowledger
	var group sync.WaitGroup
	group.Go(func() {
		for round := range rounds {
			var readings []telemetry.Reading
			for i := range perRound {
				mark := round*perRound + i + 1
				readings = append(readings, Reading("a", time.Duration(mark)*time.Second, float64(mark)))
			}
			b := Batch(t, session, uint64(round*perRound+1), readings...)
			a.mu.Lock()
			for i, r := range readings {
				a.unstored = append(a.unstored, telemetry.Unstored{Session: session, Sequence: b.FirstSeq + uint64(i), Granularity: 5 * time.Minute, Reading: r})
			}
			a.acked += perRound
			a.mu.Unlock()
			if round == rounds-1 {
				return // the last ones are never stored
			}
			WriteAll(t, s, Shares(b, 5*time.Minute))
			a.mu.Lock()
			a.unstored = a.unstored[perRound:]
			a.mu.Unlock()
		}
	})
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}
	for last := false; ; {
		acked, unstored := a.gather()
		q.Unstored = unstored
		times := make(map[float64]int)
		for _, r := range collect(t, s.Readings(t.Context(), q)) {
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
			r, found, err := s.Latest(t.Context(), "a", unstored)
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

func sensorsInOrder(t *testing.T, s Store) {
	ids := []string{
		" ", "!", "S", "a", "a ", "a!", "a\u007e", "a\ud7a3", "a\uf900", "a\U0001f600", "a\U0001f600b", "aa", "b", "\u00e9", "\uf900", "\U0001f600", "\U0001f600z", strings.Repeat("x", telemetry.MaxSensorBytes),
	}
	want := make(map[string]int64)
	var readings []telemetry.Reading
	for i, id := range ids {
		for j := range 3 {
			readings = append(readings, Reading(id, time.Duration(i)*time.Second+time.Duration(j-1)*time.Hour, 1))
		}
		want[id] = Base.Add(time.Duration(i)*time.Second + time.Hour).UnixMilli()
	}
	write(t, s, readings...)
	all := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{}))
	require.Len(t, all, len(ids))
	for i, seen := range all {
		if i > 0 {
			assert.Less(t, all[i-1].Sensor, seen.Sensor)
		}
		assert.Equal(t, want[seen.Sensor], seen.Newest, "%q", seen.Sensor)
	}
	for _, prefix := range append(ids, "a\u007e", "a\ud7a4", "zz", "x") {
		var some []telemetry.SensorSeen
		for _, seen := range all {
			if strings.HasPrefix(seen.Sensor, prefix) {
				some = append(some, seen)
			}
		}
		assert.Equal(t, some, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{Prefix: prefix})), "prefix %q", prefix)
	}
	for i, after := range all {
		got := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{After: after.Sensor, Limit: 2}))
		assert.Equal(t, append([]telemetry.SensorSeen(nil), all[i+1:min(i+3, len(all))]...), got, "after %q", after.Sensor)
	}
}

// latestOfAll writes into a window of an hour, and then into a shorter one that
// begins later and holds older readings.
func latestOfAll(t *testing.T, s Store) {
	session := batch.NewSession()
	WriteAll(t, s, Shares(Batch(t, session, 1, Reading("a", 50*time.Minute, 1), Reading("a", 2*time.Minute, 2)), time.Hour))
	WriteAll(t, s, Shares(Batch(t, session, 3, Reading("a", 40*time.Minute, 3), Reading("a", 5*time.Minute, 4)), time.Minute))
	r, found, err := s.Latest(t.Context(), "a", nil)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, Reading("a", 50*time.Minute, 1), r)
	seen := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{}))
	assert.Equal(t, []telemetry.SensorSeen{{Sensor: "a", Newest: r.Time.UnixMilli()}}, seen)

	late := []telemetry.Unstored{
		{Session: session, Sequence: 5, Granularity: time.Minute, Reading: Reading("a", 50*time.Minute, 5)},
		{Session: session, Sequence: 6, Granularity: time.Minute, Reading: Reading("a", 49*time.Minute, 6)},
	}
	r, found, err = s.Latest(t.Context(), "a", late)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, late[0].Reading, r, "of one time, what is not stored came last")
}

func deleted(t *testing.T, s Store) {
	ids := []string{"s", "s ", "s!", "s1", "S", "r\U0001f600"}
	var readings []telemetry.Reading
	for _, id := range ids {
		for i := range 7 {
			readings = append(readings, Reading(id, time.Duration(i)*7*time.Minute, float64(i)))
		}
	}
	write(t, s, readings...)
	n, err := s.Delete(t.Context(), "s")
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
	assert.Empty(t, ReadAll(t, s, "s"))
	for _, id := range ids[1:] {
		assert.Len(t, ReadAll(t, s, id), 7, "%q", id)
	}
	assert.Len(t, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{})), len(ids)-1)
	n, err = s.Delete(t.Context(), "s")
	require.NoError(t, err)
	assert.Zero(t, n)
	write(t, s, Reading("s", time.Second, 1))
	assert.Len(t, ReadAll(t, s, "s"), 1, "what comes afterwards is kept")
}

// exactIntegers has integers that are one double.
func exactIntegers(t *testing.T, s Store) {
	const large = 1 << 53
	var readings []telemetry.Reading
	for i, v := range []int64{large + 1, large, large + 2, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64 + 1, math.MinInt64} {
		r := Reading("a", time.Duration(i)*time.Minute, 0)
		r.Fields = []telemetry.Field{{Name: "v", Value: telemetry.IntValue(v)}}
		readings = append(readings, r)
	}
	write(t, s, readings...)
	got := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{
		Query: telemetry.Query{Sensor: "a", To: Base.Add(time.Hour).UnixMilli()}, Every: 180_000,
	}))
	require.Len(t, got, 3)
	for i, want := range []telemetry.FieldSummary{
		{Name: "v", N: 3, Min: telemetry.IntValue(large), Max: telemetry.IntValue(large + 2), Sum: 3 * large},
		{Name: "v", N: 3, Min: telemetry.IntValue(math.MinInt64 + 1), Max: telemetry.IntValue(math.MaxInt64), Sum: 1 << 63},
		{Name: "v", N: 1, Min: telemetry.IntValue(math.MinInt64), Max: telemetry.IntValue(math.MinInt64), Sum: -1 << 63},
	} {
		require.Len(t, got[i].Fields, 1)
		assert.InEpsilon(t, want.Sum, got[i].Fields[0].Sum, 1e-15, "a sum is a double")
		want.Sum = got[i].Fields[0].Sum
		assert.Equal(t, want, got[i].Fields[0])
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

func nothingThere(t *testing.T, s Store) {
	q := telemetry.Query{Sensor: "none", To: math.MaxInt64 / 2}
	assert.Empty(t, collect(t, s.Readings(t.Context(), q)))
	assert.Empty(t, collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q, Every: 1000})))
	assert.Empty(t, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{})))
	_, found, err := s.Latest(t.Context(), "none", nil)
	require.NoError(t, err)
	assert.False(t, found)
	// What is acknowledged is there before anything is stored.
	for i := range 3 {
		q.Unstored = append(q.Unstored, telemetry.Unstored{
			Session: "s1", Sequence: uint64(i + 1), Granularity: 5 * time.Minute, Reading: Reading("none", time.Duration(2-i)*time.Hour, float64(i)),
		})
	}
	got := collect(t, s.Readings(t.Context(), q))
	require.Len(t, got, 3)
	for i, r := range got {
		assert.Equal(t, Reading("none", time.Duration(i)*time.Hour, float64(2-i)), r, fmt.Sprint(i))
	}
	r, found, err := s.Latest(t.Context(), "none", q.Unstored)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, q.Unstored[0].Reading, r)
}

// farSpans asks for spans that end, or begin, where a database may count seconds
// in 32 bits, and beyond.
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
	for _, from := range late[:len(late)-1] {
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: "a", From: from, To: math.MaxInt64})), "from %d", from)
	}
}

package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fillHours writes a reading of four fields every ten seconds, into windows of
// five minutes.
func fillHours(t *testing.T, s *Store, sensor string, hours int) {
	t.Helper()
	var readings []telemetry.Reading
	for at := time.Duration(0); at < time.Duration(hours)*time.Hour; at += 10 * time.Second {
		r := storetest.Reading(sensor, at, at.Seconds())
		for _, name := range []string{"h", "p", "t"} {
			r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: telemetry.IntValue(int64(len(readings)))})
		}
		readings = append(readings, r)
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
}

func spanOf(sensor string, from, span time.Duration) telemetry.Query {
	begin := storetest.Base.Add(from)
	return telemetry.Query{Sensor: sensor, From: begin.UnixMilli(), To: begin.Add(span).UnixMilli()}
}

// cost returns the bytes of documents that a query fetches.
func cost(t *testing.T, s *Store, ask func(*Store, *testing.T, *telemetry.Budget)) int64 {
	t.Helper()
	b := telemetry.NewBudget(0)
	ask(s, t, b)
	return b.Spent()
}

func count[T any](t *testing.T, seq func(func(T, error) bool)) int {
	t.Helper()
	n := 0
	for _, err := range seq {
		require.NoError(t, err)
		n++
	}
	return n
}

// TestReadsFetchFewBytes counts bytes received from the server.
func TestReadsFetchFewBytes(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	fillHours(t, s, "a", 6)
	readings := func(q telemetry.Query, want int) int64 {
		return cost(t, s, func(s *Store, t *testing.T, b *telemetry.Budget) {
			assert.Equal(t, want, count(t, s.Readings(telemetry.WithBudget(t.Context(), b), q)))
		})
	}
	summary := func(q telemetry.Query, every time.Duration, want int) int64 {
		return cost(t, s, func(s *Store, t *testing.T, b *telemetry.Budget) {
			ctx := telemetry.WithBudget(t.Context(), b)
			assert.Equal(t, want, count(t, s.Summary(ctx, telemetry.SummaryQuery{Query: q, Every: every.Milliseconds()})))
		})
	}
	all := readings(spanOf("a", 0, 6*time.Hour), 2160)
	assert.Less(t, readings(spanOf("a", 3*time.Hour, 10*time.Minute), 60), all/20, "two windows of 72")
	limited := spanOf("a", 0, 6*time.Hour)
	limited.Limit = 10
	assert.Less(t, readings(limited, 10), all/10, "the first windows only")
	assert.Less(t, summary(spanOf("a", 0, 6*time.Hour), 6*time.Hour, 2), all/3)
	assert.Less(t, summary(spanOf("a", 0, 6*time.Hour), time.Hour, 6), all/3)
	assert.Greater(t, summary(spanOf("a", 0, 6*time.Hour), time.Minute, 360), all/2, "no window lies in one step")
	latest := cost(t, s, func(s *Store, t *testing.T, b *telemetry.Budget) {
		_, found, err := s.Latest(telemetry.WithBudget(t.Context(), b), "a", nil)
		require.NoError(t, err)
		assert.True(t, found)
	})
	assert.Less(t, latest, all/20)
}

// TestBudgetEndsARead: every kind of query runs out of bytes.
func TestBudgetEndsARead(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	fillHours(t, s, "a", 2)
	few := func() (errs []error) {
		q := spanOf("a", 0, 2*time.Hour)
		q.Unstored = []telemetry.Unstored{{Session: "s1", Sequence: 1, Granularity: window, Reading: storetest.Reading("a", 0, 0)}}
		for _, err := range s.Readings(telemetry.WithBudget(t.Context(), telemetry.NewBudget(1000)), q) {
			errs = append(errs, err)
		}
		for _, err := range s.Summary(telemetry.WithBudget(t.Context(), telemetry.NewBudget(1000)), telemetry.SummaryQuery{Query: q, Every: 1000}) {
			errs = append(errs, err)
		}
		for _, err := range s.Sensors(telemetry.WithBudget(t.Context(), telemetry.NewBudget(10)), telemetry.SensorQuery{}) {
			errs = append(errs, err)
		}
		_, _, err := s.Latest(telemetry.WithBudget(t.Context(), telemetry.NewBudget(10)), "a", nil)
		return append(errs, err)
	}
	errs := few()
	assert.Len(t, errs, 4, "nothing comes beside the error")
	for _, err := range errs {
		var e *telemetry.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, telemetry.CodeTooCostly, e.Code)
	}
}

// TestStatisticsThatCannotBeTrueAreNotTrusted: documents were changed by hand,
// and the readings themselves are summed up instead.
func TestStatisticsThatCannotBeTrueAreNotTrusted(t *testing.T) {
	t.Parallel()
	set := func(key string, value any) bson.D {
		return bson.D{{Key: "$set", Value: bson.D{{Key: key, Value: value}}}}
	}
	unset := func(keys ...string) bson.D {
		fields := bson.D{}
		for _, k := range keys {
			fields = append(fields, bson.E{Key: k, Value: ""})
		}
		return bson.D{{Key: "$unset", Value: fields}}
	}
	tests := map[string]bson.D{
		"no statistics":                  unset("stats"),
		"neither first nor last":         unset("first", "last"),
		"no count":                       unset("count"),
		"a count that is too high":       set("count", 31),
		"a count that is too low":        set("count", 29),
		"more numbers than readings":     set("stats.v.n", int64(31)),
		"a minimum that is no number":    set("stats.v.min", "low"),
		"a sum that is missing":          unset("stats.h.sum"),
		"statistics that are none":       set("stats", "none"),
		"statistics of a field that are": set("stats.h", 3),
	}
	db := connect(t)
	s := open(t, db, Config{})
	for name, update := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fillHours(t, s, name, 1)
			_, err := db.Collection(storetest.Stream).UpdateMany(t.Context(), bson.D{{Key: "sensorId", Value: name}}, update)
			require.NoError(t, err)
			var got []telemetry.Summary
			for sum, err := range s.Summary(t.Context(), telemetry.SummaryQuery{Query: spanOf(name, 0, time.Hour)}) {
				require.NoError(t, err)
				got = append(got, sum)
			}
			ints := func(name string) telemetry.FieldSummary {
				return telemetry.FieldSummary{Name: name, N: 360, Min: telemetry.IntValue(0), Max: telemetry.IntValue(359), Sum: 359 * 180}
			}
			assert.Equal(t, []telemetry.Summary{{Start: storetest.Base.UnixMilli(), Count: 360, Fields: []telemetry.FieldSummary{
				ints("h"), ints("p"), ints("t"),
				{Name: "v", N: 360, Min: telemetry.FloatValue(0), Max: telemetry.FloatValue(3590), Sum: 3590 * 180},
			}}}, got)
			assert.Equal(t, 360, count(t, s.Readings(t.Context(), spanOf(name, 0, time.Hour))))
		})
	}
}

// TestTombstonesShowWhatIsStored by `brim migrate` of an earlier release: a part with its
// own guard, and a document without readings whose w says that they are stored.
func TestTombstonesShowWhatIsStored(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	moved, late := storetest.Reading("a", time.Minute, 1), storetest.Reading("a", 2*time.Minute, 2)
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "smoved", 1, moved), time.Hour))
	_, err := db.Collection(storetest.Stream).UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "w", Value: bson.D{{Key: "migrated", Value: int64(1)}}}}}})
	require.NoError(t, err)
	_, err = db.Collection(storetest.Stream).InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: bson.D{{Key: "s", Value: "a"}, {Key: "b", Value: bson.NewDateTimeFromTime(storetest.Base)}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}}},
		{Key: "bucketStart", Value: bson.NewDateTimeFromTime(storetest.Base)},
		{Key: "bytes", Value: int32(0)}, {Key: "count", Value: int32(0)}, {Key: "measurements", Value: bson.A{}}, {Key: "sensorId", Value: "a"},
		{Key: "w", Value: bson.D{{Key: "s1", Value: int64(7)}}}, {Key: "full", Value: true}, {Key: "migrated", Value: true},
	})
	require.NoError(t, err)
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2, Unstored: []telemetry.Unstored{
		{Session: "s1", Sequence: 7, Granularity: window, Reading: moved}, {Session: "s1", Sequence: 8, Granularity: window, Reading: late},
	}}
	var got []telemetry.Reading
	for r, err := range s.Readings(t.Context(), q) {
		require.NoError(t, err)
		got = append(got, r)
	}
	assert.Equal(t, []telemetry.Reading{moved, late}, got)
	for sum, err := range s.Summary(t.Context(), telemetry.SummaryQuery{Query: q}) {
		require.NoError(t, err)
		assert.EqualValues(t, 2, sum.Count)
	}
	r, found, err := s.Latest(t.Context(), "a", nil)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, moved, r)

	n, err := s.Delete(t.Context(), "a")
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	assert.Empty(t, documents(t, db), "the tombstone is gone, too")
}

// TestPartsFitTogether: can the parts have existed in this state at the same time?
func TestPartsFitTogether(t *testing.T) {
	t.Parallel()
	part := func(grain, number int32, full bool) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: bson.D{{Key: "g", Value: grain}, {Key: "p", Value: number}}}, {Key: "full", Value: full}})
		require.NoError(t, err)
		return raw
	}
	tests := map[string]struct {
		docs []bson.Raw
		want bool
	}{
		"none":                                  {nil, true},
		"an open one":                           {[]bson.Raw{part(60, 0, false)}, true},
		"a closed one and an open one":          {[]bson.Raw{part(60, 0, true), part(60, 1, false)}, true},
		"of two granularities":                  {[]bson.Raw{part(60, 0, false), part(300, 0, true), part(300, 1, true)}, true},
		"an open one before another":            {[]bson.Raw{part(60, 0, false), part(60, 1, false)}, false},
		"the first is missing":                  {[]bson.Raw{part(60, 1, false)}, false},
		"one in the middle is missing":          {[]bson.Raw{part(60, 0, true), part(60, 2, true)}, false},
		"the first of the second granularity's": {[]bson.Raw{part(60, 0, false), part(300, 1, false)}, false},
	}
	for name, tt := range tests {
		assert.Equal(t, tt.want, consistentParts(tt.docs), name)
	}
}

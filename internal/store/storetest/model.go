package storetest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// model holds what a store should: readings with their marks, each unique to
// one reading's field v.
type model struct {
	stored   []telemetry.Reading
	all      []telemetry.Reading // stored, or acknowledged only
	unstored []telemetry.Unstored
}

// likeModel writes random readings of several sensors, in two sessions, into windows of
// several granularities; of each session's last readings, some are stored and some not,
// and the reader gets all of them as unstored. The store must answer every query like
// the model.
func likeModel(t *testing.T, s Store) {
	someChecks(t, 20, func(rt *rapid.T, run int) {
		d := drawn{rt: rt, prefix: fmt.Sprintf("model-%d-", run), sensors: make(map[string]*model)}
		for range rapid.IntRange(1, 2).Draw(rt, "sessions") {
			d.session(s)
		}
		for _, sensor := range slices.Sorted(maps.Keys(d.sensors)) {
			d.checkReadings(s, sensor)
			d.checkSummary(s, sensor)
			d.checkLatest(s, sensor)
		}
		d.checkMany(s)
		d.checkSensors(s)
		d.checkDelete(s)
	})
}

// someChecks is rapid.Check with a sensible number of checks for properties
// with many database queries; the flag -rapid.checks has precedence. After a
// failure it continues, so that rapid can shrink the example.
func someChecks(t *testing.T, checks int, property func(rt *rapid.T, run int)) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		checks = math.MaxInt
	}
	run, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if run++; run > checks && !failed {
			return
		}
		held := false
		defer func() { failed = failed || !held }()
		property(rt, run)
		held = true
	})
}

type drawn struct {
	rt      *rapid.T
	prefix  string
	sensors map[string]*model
	marks   int
}

func (d *drawn) of(sensor string) *model {
	if d.sensors[sensor] == nil {
		d.sensors[sensor] = &model{}
	}
	return d.sensors[sensor]
}

// session draws what one session acknowledges. In each bucket the first readings
// are stored: everything up to some batch, and the start of that batch.
func (d *drawn) session(s Store) {
	rt, session, seq := d.rt, batch.NewSession(), uint64(1)
	batches := rapid.IntRange(1, 4).Draw(rt, "batches")
	whole := rapid.IntRange(0, batches).Draw(rt, "whole batches stored")
	given := uint64(rapid.IntRange(1, 60).Draw(rt, "given as unstored from"))
	for i := range batches {
		granularity := rapid.SampledFrom([]time.Duration{time.Minute, 90 * time.Second, 5 * time.Minute, time.Hour, 80 * time.Minute, 6 * time.Hour, 24 * time.Hour}).Draw(rt, "granularity")
		b := Batch(rt, session, seq, d.readings()...)
		for _, pending := range Pending(b, granularity) {
			of := d.of(pending.Sensor)
			n := len(pending.Rows)
			switch {
			case i > whole:
				n = 0
			case i == whole:
				n = rapid.IntRange(0, n).Draw(rt, "rows stored")
			}
			for j, row := range pending.Rows {
				r := plain(row.Batch.Reading(row.Index))
				of.all = append(of.all, r)
				if j < n {
					of.stored = append(of.stored, r)
				}
				if j >= n || row.Seq() >= given {
					of.unstored = append(of.unstored, telemetry.Unstored{Session: session, Sequence: row.Seq(), Granularity: granularity, Reading: r})
				}
			}
			if pending.Rows = pending.Rows[:n]; n > 0 {
				WriteAll(rt, s, []*batch.Pending{pending})
			}
		}
		seq += uint64(b.Len())
	}
	for _, of := range d.sensors {
		slices.SortStableFunc(of.unstored, func(a, b telemetry.Unstored) int {
			return cmp.Or(strings.Compare(a.Session, b.Session), cmp.Compare(a.Sequence, b.Sequence))
		})
	}
}

// readings draws some readings, mostly with few different times.
func (d *drawn) readings() []telemetry.Reading {
	out := make([]telemetry.Reading, 0, 30)
	for range rapid.IntRange(1, 30).Draw(d.rt, "readings") {
		ms := rapid.OneOf(
			rapid.Int64Range(-7_200_000, 7_200_000), rapid.Int64Range(-3, 3), rapid.Int64Range(-100_000_000, 100_000_000),
			rapid.SampledFrom([]int64{-60_000, 59_999, 60_000, 299_999, 300_000, 3_599_999, 3_600_000}),
		).Draw(d.rt, "ms")
		sensor := d.prefix + rapid.SampledFrom([]string{"a", "a", "a", "b", "é"}).Draw(d.rt, "sensor")
		d.marks++
		r := Reading(sensor, time.Duration(ms)*time.Millisecond, float64(d.marks))
		if rapid.Bool().Draw(d.rt, "whole") {
			r.Fields[0].Value = telemetry.IntValue(int64(d.marks))
		}
		switch rapid.IntRange(0, 3).Draw(d.rt, "more") {
		case 1:
			r.Fields = append(r.Fields, telemetry.Field{Name: "i", Value: telemetry.IntValue(rapid.OneOf(
				rapid.Int64Range(-1000, 1000), rapid.Int64Range(1<<53, 1<<53+2), // two of them equal as doubles
				rapid.Int64Range(math.MaxInt64-1, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+1),
			).Draw(d.rt, "i"))})
		case 2:
			r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue("text")}, telemetry.Field{Name: "y", Value: telemetry.BoolValue(true)})
		case 3:
			r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: telemetry.FloatValue(rapid.Float64Range(-1e6, 1e6).Draw(d.rt, "x"))})
		}
		for _, name := range rapid.SampledFrom([]string{"", "", "", "t", "u", "tu"}).Draw(d.rt, "tags") {
			r.Tags = append(r.Tags, telemetry.Tag{Name: string(name), Value: rapid.SampledFrom([]string{"", "x"}).Draw(d.rt, "value")})
		}
		out = append(out, r)
	}
	return out
}

// plain is the reading in a form common to all stores, with fields sorted by name.
func plain(r telemetry.Reading) telemetry.Reading {
	r.Fields = slices.SortedFunc(slices.Values(r.Fields), func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// span draws a time span that mostly has readings.
func (d *drawn) span(sensor string) telemetry.Query {
	edge := rapid.OneOf(rapid.Int64Range(-7_300_000, 7_300_000), rapid.Int64Range(-100_000_000, 100_000_000), rapid.Int64Range(-4, 4), rapid.SampledFrom([]int64{-7_300_000, 7_300_000, 300_000, -3_600_000, 3_600_000}))
	a, b := edge.Draw(d.rt, "an edge"), edge.Draw(d.rt, "another edge")
	base := Base.UnixMilli()
	return telemetry.Query{Sensor: sensor, From: base + min(a, b), To: base + max(a, b), Unstored: d.sensors[sensor].unstored}
}

func (m *model) in(q telemetry.Query) []telemetry.Reading {
	var out []telemetry.Reading
	for _, r := range m.all {
		if ms := r.Time.UnixMilli(); ms >= q.From && ms < q.To {
			out = append(out, r)
		}
	}
	return out
}

func (d *drawn) checkReadings(s Store, sensor string) {
	q := d.span(sensor)
	got := collect(d.rt, s.Readings(context.Background(), q))
	require.True(d.rt, slices.IsSortedFunc(got, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) }))
	for i, r := range got {
		got[i] = plain(r)
	}
	require.ElementsMatch(d.rt, d.sensors[sensor].in(q), got)
	q.Limit = rapid.IntRange(1, 20).Draw(d.rt, "limit")
	some := collect(d.rt, s.Readings(context.Background(), q))
	require.Len(d.rt, some, min(q.Limit, len(got)), "no more than the limit comes")
	limit := q.Limit
	if q.Limit, q.Transient = 0, true; limit < len(got) {
		n := 0
		for r, err := range s.Readings(context.Background(), q) {
			require.NoError(d.rt, err)
			require.Equal(d.rt, got[n], plain(r), "the caller may stop reading at any time, and each is as it was until the next")
			if n++; n == limit {
				break
			}
		}
	}
	for i, r := range some {
		require.Equal(d.rt, got[i], plain(r), "a limited answer is the beginning of the whole one")
	}
}

func (d *drawn) checkMany(s Store) {
	sensors := slices.Sorted(maps.Keys(d.sensors))
	q, qs := d.span(sensors[0]), []telemetry.Query{}
	var want []telemetry.Reading
	for _, sensor := range slices.Insert(sensors, 1, sensors[0]+"-none") {
		q.Sensor, q.Unstored = sensor, d.of(sensor).unstored
		qs = append(qs, q)
		qs[len(qs)-1].Transient = true
		for _, r := range collect(d.rt, s.Readings(context.Background(), q)) {
			want = append(want, plain(r))
		}
	}
	n := 0
	for r, err := range s.ReadingsOf(context.Background(), qs) {
		require.NoError(d.rt, err)
		require.Less(d.rt, n, len(want))
		require.Equal(d.rt, want[n], plain(r), "as if each sensor was read alone")
		n++
	}
	require.Len(d.rt, want, n)
}

func collect[T any](t require.TestingT, seq iter.Seq2[T, error]) []T {
	var out []T
	for v, err := range seq {
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

func (d *drawn) checkSummary(s Store, sensor string) {
	every := rapid.SampledFrom([]int64{0, 1, 1000, 17_001, 60_000, 300_000, 3_600_000, 5_400_000, 86_400_000}).Draw(d.rt, "every")
	q := telemetry.SummaryQuery{Query: d.span(sensor), Every: every}
	SameSummaries(d.rt, summarize(d.sensors[sensor].in(q.Query), q), collect(d.rt, s.Summary(context.Background(), q)))
}

// summarize is a simple implementation of summaries.
func summarize(readings []telemetry.Reading, q telemetry.SummaryQuery) []telemetry.Summary {
	byStart := make(map[int64][]telemetry.Reading)
	for _, r := range readings {
		start := q.From
		if q.Every > 0 {
			start = r.Time.UnixMilli() / q.Every * q.Every
		}
		byStart[start] = append(byStart[start], r)
	}
	var out []telemetry.Summary
	for _, start := range slices.Sorted(maps.Keys(byStart)) {
		values := make(map[string][]telemetry.Value)
		for _, r := range byStart[start] {
			for _, f := range r.Fields {
				if f.Value.Kind().Numeric() {
					values[f.Name] = append(values[f.Name], f.Value)
				}
			}
		}
		sum := telemetry.Summary{Start: start, Count: int64(len(byStart[start]))}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			f := telemetry.FieldSummary{
				Name: name, N: int64(len(values[name])),
				Min: slices.MinFunc(values[name], telemetry.CompareNumbers), Max: slices.MaxFunc(values[name], telemetry.CompareNumbers),
			}
			for _, v := range values[name] {
				f.Sum += float(v)
			}
			sum.Fields = append(sum.Fields, f)
		}
		out = append(out, sum)
	}
	return out
}

func float(v telemetry.Value) float64 {
	if v.Kind() == telemetry.Int {
		return float64(v.Int())
	}
	return v.Float()
}

// SameSummaries compares summaries. Stores add in different orders, so the last
// bits of sums differ; if two values are the same number, either may be the
// minimum.
func SameSummaries(t require.TestingT, want, got []telemetry.Summary) {
	require.Len(t, got, len(want))
	for i, w := range want {
		g := got[i]
		require.Equal(t, w.Start, g.Start)
		require.Equal(t, w.Count, g.Count)
		require.Len(t, g.Fields, len(w.Fields))
		for j, f := range w.Fields {
			h := g.Fields[j]
			require.Equal(t, f.Name, h.Name)
			require.Equal(t, f.N, h.N)
			require.Zero(t, telemetry.CompareNumbers(f.Min, h.Min), "min of %s: %v and %v", f.Name, f.Min.Any(), h.Min.Any())
			require.Zero(t, telemetry.CompareNumbers(f.Max, h.Max), "max of %s: %v and %v", f.Name, f.Max.Any(), h.Max.Any())
			// The error of a sum is relative to the sum of magnitudes.
			scale := float64(f.N) * max(math.Abs(float(f.Min)), math.Abs(float(f.Max)))
			require.LessOrEqual(t, math.Abs(f.Sum-h.Sum), 1e-9*scale, "sum of %s: %v and %v", f.Name, f.Sum, h.Sum)
		}
	}
}

func (d *drawn) checkLatest(s Store, sensor string) {
	of := d.sensors[sensor]
	stored := collect(d.rt, s.Readings(context.Background(), telemetry.Query{Sensor: sensor, To: math.MaxInt64 / 2}))
	for _, unstored := range [][]telemetry.Unstored{nil, of.unstored} {
		want := slices.Clone(stored)
		for _, u := range unstored { // among equal times, the last unstored one is the latest
			if len(want) == 0 || !u.Reading.Time.Before(want[len(want)-1].Time) {
				want = append(want, u.Reading)
			}
		}
		r, found, err := s.Latest(context.Background(), sensor, unstored)
		require.NoError(d.rt, err)
		require.Equal(d.rt, len(want) > 0, found)
		if found {
			require.Equal(d.rt, plain(want[len(want)-1]), plain(r))
		}
	}
}

func newest(readings []telemetry.Reading) int64 {
	var ms int64
	for _, r := range readings {
		ms = max(ms, r.Time.UnixMilli())
	}
	return ms
}

func (d *drawn) checkSensors(s Store) {
	q := telemetry.SensorQuery{
		Prefix: d.prefix + rapid.SampledFrom([]string{"", "", "a", "\xc3"}).Draw(d.rt, "prefix"),
		After:  rapid.SampledFrom([]string{"", "", d.prefix + "a", d.prefix + "aa", "zz"}).Draw(d.rt, "after"),
		Limit:  rapid.IntRange(0, 3).Draw(d.rt, "sensor limit"),
	}
	var want []telemetry.SensorSeen
	for _, sensor := range slices.Sorted(maps.Keys(d.sensors)) {
		full := q.Limit > 0 && len(want) == q.Limit
		if of := d.sensors[sensor]; !full && len(of.stored) > 0 && strings.HasPrefix(sensor, q.Prefix) && sensor > q.After {
			want = append(want, telemetry.SensorSeen{Sensor: sensor, Newest: newest(of.stored)})
		}
	}
	require.Equal(d.rt, want, collect(d.rt, s.Sensors(context.Background(), q)), "%+v", q)
	for sensor, of := range d.sensors {
		ms, found, err := s.Newest(context.Background(), sensor)
		require.NoError(d.rt, err)
		require.Equal(d.rt, len(of.stored) > 0, found, sensor)
		if found {
			require.Equal(d.rt, newest(of.stored), ms, sensor)
		}
	}
}

func (d *drawn) checkDelete(s Store) {
	gone := d.prefix + "a"
	n, err := s.Delete(context.Background(), gone)
	require.NoError(d.rt, err)
	if of := d.sensors[gone]; of != nil {
		require.EqualValues(d.rt, len(of.stored), n)
	}
	for sensor, of := range d.sensors {
		want := len(of.stored)
		if sensor == gone {
			want = 0
		}
		require.Len(d.rt, ReadAll(d.rt, s, sensor), want)
	}
}

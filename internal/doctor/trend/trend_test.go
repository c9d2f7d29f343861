package trend

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/doctor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is the report as people read it, in one line.
func text(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return strings.Join(strings.Fields(b.String()), " ")
}

// slowly are three weeks in which writes get slow with no change in traffic.
func slowly() map[string]curve {
	return map[string]curve{
		writeP99:           growing(8, 40, 21).noisy(0.05),
		writeP50:           growing(2, 9, 21).noisy(0.05),
		readingsRate:       steady(2000).noisy(0.1),
		readingsPerUpdate:  steady(12).noisy(0.02),
		"collection_bytes": growing(40e9, 56e9, 21),
		"cache_used":       growing(80, 96, 21).noisy(0.005),
		"cache_dirty":      steady(4).noisy(0.3),
		"disk_busy":        steady(20).noisy(0.3),
		"application_evictions": func(d float64) (float64, bool) {
			return 20 * max(0, d-13.02), true
		},
		diskFree: growing(60, 39, 21),
	}
}

func TestWritesThatGotSlowWithNoChangeInTraffic(t *testing.T) {
	t.Parallel()
	r := newFake(t, slowly()).report()

	p99 := r.find(writeP99)
	assert.Equal(t, Rising, p99.Trend)
	assert.InDelta(t, 8, float64(p99.Begin), 3)
	assert.InDelta(t, 40, float64(p99.Now), 3)
	assert.InDelta(t, 32.0/3, float64(p99.PerWeek), 0.7)

	assert.Equal(t, Flat, r.find(readingsRate).Trend)
	assert.Equal(t, Flat, r.find("cache_dirty").Trend)
	assert.True(t, math.IsNaN(float64(r.find(readingsRate).PerWeek)))

	used := r.find("cache_used")
	assert.Equal(t, doctor.Bottleneck, used.Class)
	require.Equal(t, Crossed, used.Degrading.State)
	assert.WithinDuration(t, r.From.Add(13*day), *used.Degrading.At, 2*day, "90 %% of 80 to 96 %%")
	assert.Greater(t, float64(used.Correlation), 0.95)

	evictions := r.find("application_evictions")
	require.Equal(t, Crossed, evictions.Degrading.State)
	assert.WithinDuration(t, r.From.Add(13*day), *evictions.Degrading.At, day)

	free := r.find(diskFree)
	require.Equal(t, Ahead, free.Degrading.State)
	assert.WithinDuration(t, noon.Add(19*day), *free.Degrading.At, day, "one point a day from 39 to 20 %%")
	require.Equal(t, Ahead, free.Bottleneck.State)
	assert.WithinDuration(t, noon.Add(29*day), *free.Bottleneck.At, day)

	assert.Equal(t, doctor.Bottleneck, r.Class)
	said := text(t, r)
	for _, want := range []string{
		"1 instance of job=\"brim\": 127.0.0.1:8432", "Seen: 21 of 21 days", "restarts of the daemon: 0",
		"Writes got slower over 21 days: p99 from ", "Traffic does not explain it: readings/s are flat",
		"collections, uncompressed +36 %", "Evictions by clients' threads: bottleneck since", "degrading since 14 Nov",
		"Cache used: bottleneck since", "disk free is at 20 % (degrading) about 10 Dec", "brim doctor --over 10s",
	} {
		assert.Contains(t, said, want)
	}
	assert.NotContains(t, said, "cache dirty", "it does not move and is well")
}

func TestWhatDoesNotChangeHasNoTrend(t *testing.T) {
	t.Parallel()
	r := newFake(t, map[string]curve{
		writeP99: steady(8).noisy(0.3), readingsRate: steady(2000).noisy(0.1),
		// Peaks of a cache between checkpoints, as far as they are left in the steps.
		"cache_dirty": func(d float64) (float64, bool) { _, part := math.Modf(d * 12 / 5); return 1 + 3*part, true },
		// A day's ups and downs.
		"processor": func(d float64) (float64, bool) { return 40 + 20*math.Sin(2*math.Pi*d), true },
		"disk_busy": steady(0), "cache_used": steady(80),
	}).report()
	for _, s := range r.Series {
		if !math.IsNaN(float64(s.Now)) {
			assert.Equal(t, Flat, s.Trend, s.Name)
			if s.rule != nil {
				assert.Equal(t, NotInSight, s.Degrading.State, s.Name)
			}
		}
	}
	assert.Equal(t, doctor.Healthy, r.Class)
	said := text(t, r)
	assert.Contains(t, said, "Writes did not get slower over 21 days")
	assert.Contains(t, said, "Traffic is flat")
	assert.NotContains(t, said, "If it goes on")
	assert.NotContains(t, said, "moved together")
}

func TestTrafficThatGrewIsSaid(t *testing.T) {
	t.Parallel()
	curves := slowly()
	curves[readingsRate] = growing(2000, 4000, 21).noisy(0.02)
	said := text(t, newFake(t, curves).report())
	assert.Contains(t, said, "Traffic changed: +8")
	assert.Contains(t, said, "readings taken +8")
}

func TestHistoryShorterThanAsked(t *testing.T) {
	t.Parallel()
	curves := slowly()
	for name, c := range curves {
		curves[name] = c.without(-1, 12).without(15, 15.5)
	}
	f := newFake(t, curves)
	f.upHas = steady(1).without(-1, 12).without(15, 15.5)
	f.resets = func(d float64) (float64, bool) { return map[bool]float64{true: 1}[d > 16 && d <= 16.1], true }
	r := f.report()
	assert.InDelta(t, 8.5, float64(r.Seen.Days), 0.3)
	assert.Equal(t, 1, r.Seen.Restarts)
	require.Len(t, r.Seen.Gaps, 1)
	assert.InDelta(t, 12, r.Seen.Gaps[0].To.Sub(r.Seen.Gaps[0].From).Hours(), 2.1)
	assert.Equal(t, Rising, r.find(writeP99).Trend)
	said := text(t, r)
	assert.Regexp(t, `Seen: 8\.[0-9]+ of 21 days, from 12 Nov`, said)
	assert.Contains(t, said, "restarts of the daemon: 1")
	assert.Contains(t, said, "Without figures: 15 Nov")
}

// A week of a series is enough, a day of one in three weeks is not.
func TestFewPointsAreNoTrend(t *testing.T) {
	t.Parallel()
	curves := slowly()
	curves["cache_used"] = growing(80, 96, 21).without(-1, 19)
	curves["disk_await"] = func(d float64) (float64, bool) { return math.NaN(), true }
	r := newFake(t, curves).report()
	used := r.find("cache_used")
	assert.Equal(t, Unsure, used.Trend)
	assert.Contains(t, used.Why, "too little was seen")
	assert.Equal(t, doctor.Bottleneck, used.Class, "where it stands is known")
	assert.Equal(t, Crossed, used.Degrading.State)
	assert.Nil(t, used.Degrading.At, "before what was seen")
	await := r.find("disk_await")
	assert.Equal(t, doctor.Unknown, await.Class)
	assert.Equal(t, whyNothing, await.Why)
	said := text(t, r)
	assert.Contains(t, said, "too few points")
	assert.Contains(t, said, "Nothing was seen of:")
	assert.Contains(t, said, "disk latency")
}

func TestOneQueryThatFailsDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	f := newFake(t, slowly())
	f.fails = map[string]string{writeP50: "query processing would load too many samples"}
	r := f.report()
	assert.Contains(t, r.find(writeP50).Why, "too many samples")
	assert.Equal(t, Rising, r.find(writeP99).Trend)
	assert.Contains(t, text(t, r), "too many samples")
}

func TestSeveralDaemons(t *testing.T) {
	t.Parallel()
	f := newFake(t, slowly())
	f.up = []string{"b:8432", "a:8432"}
	said := text(t, f.report())
	assert.Contains(t, said, "2 instances of job=\"brim\": a:8432, b:8432")
	assert.Contains(t, said, "the worst of them")
}

func TestSelectorThatFindsNobody(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.up = nil
	_, err := f.ask()
	assert.ErrorContains(t, err, `for the selector job="brim"; there are job="brim", job="other"`)
}

func TestHistoryYoungerThanAStepIsNamed(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.config.Now = func() time.Time { return noon.Add(10 * time.Minute) }
	there := f.up
	f.check = func(req *http.Request) {
		f.up = nil
		if start, err := strconv.ParseFloat(req.FormValue("start"), 64); err == nil && start >= float64(noon.Unix()) {
			f.up = there
		}
	}
	_, err := f.ask()
	require.ErrorContains(t, err, "has nothing of a daemon before 12:00 UTC")
	assert.ErrorContains(t, err, "as in --trend 2h")
	assert.NotContains(t, err.Error(), "scrape")
}

func TestShortSpansAreToldInHoursAndMinutes(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Seen{
		"10 minutes of 2 hours": {Days: 0.00694, OfDays: 0.0833},
		"3 hours of 48 hours":   {Days: 0.125, OfDays: 2},
		"0.5 of 21 days":        {Days: 0.5, OfDays: 21},
	} {
		assert.Equal(t, want, s.share())
	}
	assert.Equal(t, "10 minutes", days(10*time.Minute))
}

func TestReportInJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, json.NewEncoder(&b).Encode(newFake(t, slowly()).report()))
	var out struct {
		Prometheus string
		Class      string
		Seen       struct{ Days, OfDays float64 }
		Instances  []struct{ Job, Instance string }
		Series     []map[string]any
		Words      []string
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &out))
	assert.Equal(t, "bottleneck", out.Class)
	assert.Len(t, out.Instances, 1)
	assert.NotEmpty(t, out.Words)
	names := map[string]map[string]any{}
	for _, s := range out.Series {
		names[s["name"].(string)] = s
	}
	for _, rule := range doctor.Rules(nil, "ssd") {
		require.Contains(t, names, rule.Name)
		assert.Equal(t, true, names[rule.Name]["signal"])
	}
	assert.Equal(t, "rising", names[writeP99]["trend"])
	assert.Nil(t, names[writeP99]["correlation"])
	assert.Nil(t, names["disk_await"]["now"])
	assert.InDelta(t, 21, len(names[writeP99]["points"].([]any)), 1)
}

func TestSpansThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, span := range []time.Duration{0, time.Hour, 10 * 365 * day} {
		_, err := Ask(t.Context(), Config{Prometheus: "http://127.0.0.1:1", Span: span})
		assert.ErrorContains(t, err, "a trend is over 2h to")
	}
	for _, span := range []time.Duration{LeastSpan, 12 * time.Hour, 3 * day, week, 3 * week, 90 * day, 365 * day, MostSpan} {
		r := rangeOf(span, noon)
		moments := int(r.End.Sub(r.Start)/r.Step) + 1
		assert.LessOrEqual(t, moments, 1100, span)
		assert.GreaterOrEqual(t, moments, 24, span)
		assert.False(t, r.End.After(noon))
	}
}

// Whatever a series is, there is something to say about it and no NaN in JSON.
func TestAnySeriesMakesAReport(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		span := rapid.SampledFrom([]time.Duration{LeastSpan, day, 9 * day, 21 * day}).Draw(rt, "span")
		asked := rangeOf(span, noon)
		value := rapid.OneOf(rapid.Just(math.NaN()), rapid.Just(0.0), rapid.Float64Range(0, 100), rapid.Float64Range(-1e300, 1e300))
		there := newGrid(asked)
		there.values[rapid.IntRange(0, len(there.values)-1).Draw(rt, "first")] = 1
		there.values[len(there.values)-1] = 1
		r := &Report{To: asked.End, From: asked.Start, Seen: seenOf(there, span)}
		for _, m := range allMeasures(nil, "nvme") {
			s := &Series{Name: m.name, Title: m.title, Unit: m.unit, Signal: m.text == "", rule: m.rule, Class: doctor.Unknown}
			if m.rule != nil {
				s.Threshold = &m.rule.Threshold
			}
			g := newGrid(asked)
			some := rapid.SliceOfN(value, 1, 8).Draw(rt, m.name)
			for i := range g.values {
				g.values[i] = some[i*len(some)/len(g.values)] * float64(1+i%3)
			}
			s.judge(g, layoutOf(there), r.To)
			r.Series = append(r.Series, s)
		}
		r.conclude()
		var b strings.Builder
		require.NoError(rt, r.Write(&b))
		_, err := json.Marshal(r)
		require.NoError(rt, err)
	})
}

func TestThresholdsOfTheDisksKindAreInForce(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]curve{"disk_await": steady(6)})
	f.kind = "hdd"
	assert.Equal(t, doctor.Healthy, f.report().Class)
	f = newFake(t, map[string]curve{"disk_await": steady(6)})
	f.kind = "nvme"
	r := f.report()
	assert.Equal(t, doctor.Bottleneck, r.Class)
	assert.Equal(t, "nvme", r.DiskKind)
}

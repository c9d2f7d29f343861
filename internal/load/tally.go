package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// Response times are recorded in microseconds, from 1 to 10 minutes, to 3 digits.
const (
	highestMicros = 600_000_000
	digits        = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, highestMicros, digits) }

func micros(d time.Duration) int64 { return min(max(d.Microseconds(), 1), highestMicros) }

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// tenths counts readings by the tenth of their window.
type tenths [10]int32

// counts are in readings unless they are named requests.
type counts struct{ requests, failedRequests, partial, acked, rejected, failed int64 }

// A tally counts the outcomes of requests.
type tally struct {
	mu sync.Mutex
	counts
	response           *hdrhistogram.Histogram     // of all requests that were due, except those dropped at once
	answered           *hdrhistogram.Histogram     // of those that were answered
	service            *hdrhistogram.Histogram     // the same, for service time
	interval, previous *hdrhistogram.Histogram     // response in the current interval and in the previous one
	fills              [10]*hdrhistogram.Histogram // response time of readings
	failures           map[string]int64            // requests
	errors             map[string]string           // the first message, by reason
}

// shownErrors is the maximum number of error messages in the result.
const shownErrors = 5

func newTally() *tally {
	t := &tally{failures: make(map[string]int64), errors: make(map[string]string)}
	for _, h := range []**hdrhistogram.Histogram{&t.response, &t.answered, &t.service, &t.interval, &t.previous} {
		*h = newHistogram()
	}
	for i := range t.fills {
		t.fills[i] = newHistogram()
	}
	return t
}

// An outcome is that of one due request.
type outcome struct {
	readings int
	fills    tenths
	// response counts from when the request was due until it was answered or given up;
	// service counts from when it was sent.
	response, service time.Duration
	unsent            bool // given up while waiting for a connection
	answer            Answer
	err               error
}

// answered reports whether the daemon processed the request.
func (f *outcome) answered() bool { return !f.unsent && f.answer.Failure == "" }

// reasonRefused is the reason for rejected readings in an answered request.
const reasonRefused = "refused"

// note counts a request. Its response time counts in any case: an unanswered request took at
// least that long.
func (t *tally) note(f *outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	us := micros(f.response)
	_, _ = t.response.RecordValue(us), t.interval.RecordValue(us) // cannot fail: clamped to the range
	for i, n := range f.fills {
		if n > 0 {
			_ = t.fills[i].RecordValues(us, int64(n))
		}
	}
	if f.unsent {
		return
	}
	reason := reasonRefused
	t.requests++
	if f.answered() {
		_, _ = t.answered.RecordValue(us), t.service.RecordValue(micros(f.service))
		t.acked += int64(f.answer.Accepted)
		t.rejected += int64(f.answer.Rejected)
		if f.answer.Rejected > 0 {
			t.partial++
		}
	} else {
		reason = f.answer.Failure
		t.failures[reason]++
		t.failedRequests++
		t.failed += int64(f.readings)
	}
	if f.err != nil && t.errors[reason] == "" && len(t.errors) < shownErrors {
		t.errors[reason] = f.err.Error()
	}
}

// now returns the counts so far.
func (t *tally) now() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// gather ends the current interval, and returns the counts so far and the quantiles of its
// response times; 0 if there were none. extend merges the previous interval into it.
func (t *tally) gather(extend bool) (all counts, p50, p99 float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if extend {
		t.interval.Merge(t.previous)
	}
	if t.interval.TotalCount() > 0 {
		p50, p99 = seconds(t.interval.ValueAtPercentile(50)), seconds(t.interval.ValueAtPercentile(99))
	}
	t.interval, t.previous = t.previous, t.interval
	t.interval.Reset()
	return t.counts, p50, p99
}

// result fills in the counts after all senders have ended. due is the number of requests that
// were due.
func (t *tally) result(r *Result, due int64) {
	r.Failures = t.failures
	reasons := slices.SortedFunc(maps.Keys(t.errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.failures[b], t.failures[a]), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		r.FirstErrors = append(r.FirstErrors, t.errors[reason])
	}
	r.Requests, r.Acked, r.Rejected, r.Failed = t.requests, t.acked, t.rejected, t.failed
	r.Response, r.Service = quantiles(t.response), quantiles(t.service)
	if t.answered.TotalCount() < due {
		strict := strictly(t.answered, due)
		r.Strict = &strict
	}
	r.Curve, r.ServiceCurve = curve(t.response), curve(t.service)
	for i, fill := range t.fills {
		row := FillRow{From: float64(i) / 10, To: float64(i+1) / 10, Count: fill.TotalCount()}
		if row.Count > 0 {
			row.P50, row.P99 = seconds(fill.ValueAtPercentile(50)), seconds(fill.ValueAtPercentile(99))
		}
		r.ByFill = append(r.ByFill, row)
	}
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	at := func(percent float64) float64 { return seconds(h.ValueAtPercentile(percent)) }
	return Quantiles{Mean: h.Mean() / 1e6, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: seconds(h.Max())}
}

// strictly returns the quantiles of all due requests, with unanswered ones slower than any. A
// quantile among those is 0.
func strictly(taken *hdrhistogram.Histogram, due int64) Quantiles {
	at := func(perMille int64) float64 {
		if (due-taken.TotalCount())*1000 >= (1000-perMille)*due {
			return 0
		}
		rank := (perMille*due + 999) / 1000
		return seconds(taken.ValueAtPercentile(100 * float64(rank) / float64(taken.TotalCount())))
	}
	return Quantiles{P50: at(500), P90: at(900), P99: at(990), P999: at(999)}
}

// curve returns the percentile curve, with 5 points per halving of the distance to 100 %.
func curve(h *hdrhistogram.Histogram) []Percentile {
	out := []Percentile{}
	if h.TotalCount() == 0 {
		return out
	}
	for _, b := range h.CumulativeDistributionWithTicks(5) {
		out = append(out, Percentile{Percent: b.Quantile, Seconds: seconds(b.ValueAt), Count: b.Count})
	}
	return out
}

// tick is the length of an Interval.
const tick = time.Second

// A mark is what had happened by a time of the run.
type mark struct {
	at               time.Duration
	offered, dropped int64 // readings
	counts
}

// A recorder makes an Interval of each second, and finally the Result.
type recorder struct {
	g            *Generator
	rows         []Interval
	last, before mark // at the end of the last row, and of the one before
}

// run records until over is closed.
func (r *recorder) run(over <-chan struct{}) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			now := time.Since(r.g.began)
			r.record(now)
			// The next tick is at the next whole second, even after a late one.
			timer.Reset(now.Truncate(tick) + tick - now)
		case <-over:
			return
		}
	}
}

// record ends the current row and reports it.
func (r *recorder) record(now time.Duration) {
	g := r.g
	row := r.row(now, false)
	draining := g.draining.Load()
	asked := 0.0
	if !draining && now <= g.config.Duration {
		asked = g.fleet.schedule.rateAt(now.Seconds())
	}
	g.meters.offeredRate.Set(asked)
	g.meters.windowRatio.Set(row.Fill)
	if g.config.Progress != nil {
		g.config.Progress(Progress{
			Interval: row, Elapsed: now, Duration: g.config.Duration, Asked: asked,
			Acked: r.last.acked, TotalFailed: r.last.failed, TotalDropped: r.last.dropped, Draining: draining,
		})
	}
}

// row adds the row from the last mark until now. extend merges the previous row into it.
func (r *recorder) row(now time.Duration, extend bool) Interval {
	g := r.g
	if extend {
		r.rows, r.last = r.rows[:len(r.rows)-1], r.before
	}
	from := r.last
	to := mark{at: now, offered: g.due.Load(), dropped: g.dropped.Load()}
	var p50, p99 float64
	to.counts, p50, p99 = g.tally.gather(extend)
	length := max((now - from.at).Seconds(), 1e-6)
	window := int64(g.config.Stream.GranularitySeconds) * 1000
	row := Interval{
		Second: now.Seconds(), P50: p50, P99: p99,
		Offered:  float64(to.offered-from.offered) / length,
		Achieved: float64(to.acked-from.acked) / length,
		InFlight: int(g.outstanding.Load()),
		Failed:   to.failed - from.failed,
		Dropped:  to.dropped - from.dropped,
	}
	// Event time ends with the schedule. Here the end of a window belongs to it, not to the
	// next.
	event := g.fleet.eventAt(min(now, g.config.Duration))
	row.Fill = float64(elapsedOf(event-1, window)) / float64(window)
	r.rows, r.last, r.before = append(r.rows, row), to, from
	return row
}

// shortRow is too short to be its own row, with erratic rates.
const shortRow = tick / 4

// result makes the result of a run with requests due for length and the last answer after
// lasted.
func (r *recorder) result(length, lasted time.Duration) *Result {
	r.row(lasted, len(r.rows) > 0 && lasted-r.last.at < shortRow)
	g := r.g
	g.meters.offeredRate.Set(0)
	out := &Result{
		Version: g.config.Version, Began: g.began.UTC(), Setup: g.Setup(),
		Seconds:      max(length, lasted).Seconds(),
		DrainSeconds: max(lasted-length, 0).Seconds(),
		Sent:         g.sent.Load(),
		Dropped:      g.dropped.Load(),
		Intervals:    r.rows,
	}
	g.tally.result(out, g.dueRequests.Load())
	out.Setup.DurationSeconds = length.Seconds()
	if length < g.config.Duration { // event time ended early as well
		out.Setup.EventEnd = time.UnixMilli(g.fleet.eventAt(length)).UTC()
	}
	seconds := max(length, time.Microsecond).Seconds()
	out.OfferedRate, out.AchievedRate = float64(g.due.Load())/seconds, float64(out.Acked)/seconds
	return out
}

// Setup describes the run, as far as it is known in advance.
func (g *Generator) Setup() Setup {
	c := &g.config
	s := Setup{
		Target: c.Target, Stream: c.Stream.Name, Storage: c.Stream.Storage, GranularitySeconds: c.Stream.GranularitySeconds,
		Protocol: c.Protocol, Ack: c.Ack,
		IntervalSeconds: c.Interval.Seconds(), Speedup: c.Speedup, Batch: c.Batch, Fields: c.Fleet.Fields,
		Sensors: c.Sensors, SensorPrefix: c.Fleet.SensorPrefix,
		Steps: c.Steps, DurationSeconds: c.Duration.Seconds(),
		Connections: c.Connections, MaxInFlight: c.MaxInFlight, Seed: c.Seed,
		EventStart: c.Start, EventEnd: c.Start.Add(c.eventSpan()),
	}
	if g.rateGiven {
		s.Rate = c.Rate.String()
		if c.asked != c.Interval {
			s.AskedIntervalSeconds = c.asked.Seconds()
		}
	}
	return s
}

// metrics of the generator.
type metrics struct {
	response, service        prometheus.Histogram
	offeredRate, windowRatio prometheus.Gauge
}

// newMetrics registers the metrics, which are visible only with a registerer. Counters read the
// run's own.
func newMetrics(g *Generator) (*metrics, error) {
	times := func(what, help string) prometheus.Histogram {
		return prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_load_" + what + "_seconds", Help: help,
			// 100 us to 52 s: a local answer takes about 200 us, a timeout 30 s.
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		}))
	}
	m := &metrics{
		response: times("response", "Time from when a request was due until it was answered, failed, or was given up while waiting for a connection."),
		service:  times("service", "Time from when a request was sent to its answer."),
		offeredRate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "brim_load_offered_rate", Help: "Readings a second that are due now.",
		}),
		windowRatio: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "brim_load_window_ratio", Help: "Elapsed part of the window of event time: 0 at its start, 1 at its end.",
		}),
	}
	all := []prometheus.Collector{m.response, m.service, m.offeredRate, m.windowRatio, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_load_in_flight", Help: "Requests that are due and not answered, including those that wait for a connection.",
	}, func() float64 { return float64(g.outstanding.Load()) })}
	for _, c := range []struct {
		what, help string
		value      func() int64
	}{
		{"offered", "Readings that were due.", g.due.Load},
		{"sent", "Readings in requests that were sent.", g.sent.Load},
		{"acked", "Readings that the daemon acknowledged.", func() int64 { return g.tally.now().acked }},
		{"rejected", "Readings that the daemon rejected in requests that it answered.", func() int64 { return g.tally.now().rejected }},
		{"failed", "Readings in requests that failed.", func() int64 { return g.tally.now().failed }},
		{"dropped", "Readings that were due and never sent, because too many requests were in flight.", g.dropped.Load},
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "brim_load_" + c.what + "_readings_total", Help: c.help}, func() float64 { return float64(c.value()) }))
	}
	for result, value := range map[string]func(counts) int64{
		"ok":      func(c counts) int64 { return c.requests - c.partial - c.failedRequests },
		"partial": func(c counts) int64 { return c.partial },
		"failed":  func(c counts) int64 { return c.failedRequests },
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "brim_load_requests_total", Help: "Requests by result: ok, partial (some readings were rejected), failed.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(value(g.tally.now())) }))
	}
	if g.config.Registerer == nil {
		return m, nil
	}
	for _, c := range all {
		if err := g.config.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the load's metrics: %w", err)
		}
	}
	return m, nil
}

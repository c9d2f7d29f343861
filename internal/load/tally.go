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

// Response times are counted in microseconds, from 1 to 10 minutes, to 3 digits.
const (
	highestMicros = 600_000_000
	digits        = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, highestMicros, digits) }

func micros(d time.Duration) int64 { return min(max(d.Microseconds(), 1), highestMicros) }

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// tenths count readings by the tenth of their window.
type tenths [10]int32

// A tally counts the outcomes of requests. Senders note them in one of a few shards, so
// that they seldom wait for each other, and each second the recorder collects them.
type tally struct {
	shards   []*shard
	response *hdrhistogram.Histogram // of all intervals so far
	interval *hdrhistogram.Histogram // the last one
	answered *hdrhistogram.Histogram // of those in response, the answered requests
}

// A shard has the outcomes of some senders.
type shard struct {
	mu     sync.Mutex
	counts counts
	// Response times since the last interval: of answered requests, and of others.
	answered, lost *hdrhistogram.Histogram
	service        *hdrhistogram.Histogram
	fills          [10]*hdrhistogram.Histogram // response time, readings
	failures       map[string]int64            // requests
	errors         map[string]string           // the first message, by reason
}

// counts are of readings, but for requests.
type counts struct{ requests, sent, acked, rejected, failed int64 }

func (c *counts) add(more counts) {
	c.requests += more.requests
	c.sent += more.sent
	c.acked += more.acked
	c.rejected += more.rejected
	c.failed += more.failed
}

// mostShards bounds the memory for histograms, each of 180 KB.
const mostShards = 8

// shownErrors is the maximum of error messages in the result.
const shownErrors = 5

func newTally(senders int) *tally {
	t := &tally{response: newHistogram(), interval: newHistogram(), answered: newHistogram()}
	for range min(senders, mostShards) {
		s := &shard{
			answered: newHistogram(), lost: newHistogram(), service: newHistogram(),
			failures: make(map[string]int64), errors: make(map[string]string),
		}
		for i := range s.fills {
			s.fills[i] = newHistogram()
		}
		t.shards = append(t.shards, s)
	}
	return t
}

// A fate is the outcome of one request that was due.
type fate struct {
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
func (f *fate) answered() bool { return !f.unsent && f.answer.Failure == "" }

// reasonRefused of errors about rejected readings in an answered request.
const reasonRefused = "refused"

// note counts a request of a sender. Its response time counts in any case: a request
// without an answer took at least that long.
func (t *tally) note(sender int, f *fate) {
	s := t.shards[sender%len(t.shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	us := micros(f.response)
	times := s.lost
	if f.answered() {
		times = s.answered
	}
	_ = times.RecordValue(us) // cannot fail: it was clamped to the range
	for i, n := range f.fills {
		if n > 0 {
			_ = s.fills[i].RecordValues(us, int64(n))
		}
	}
	if f.unsent {
		return
	}
	s.counts.requests++
	s.counts.sent += int64(f.readings)
	if f.answer.Failure != "" {
		s.counts.failed += int64(f.readings)
		s.failures[f.answer.Failure]++
		s.keep(f.answer.Failure, f.err)
		return
	}
	s.keep(reasonRefused, f.err)
	s.counts.acked += int64(f.answer.Accepted)
	s.counts.rejected += int64(f.answer.Rejected)
	_ = s.service.RecordValue(micros(f.service))
}

// keep keeps the first error for a reason.
func (s *shard) keep(reason string, err error) {
	if err != nil && s.errors[reason] == "" && len(s.errors) < shownErrors {
		s.errors[reason] = err.Error()
	}
}

// gather returns the counts so far, and sets t.interval to the response times since the
// last call.
func (t *tally) gather() counts {
	t.interval.Reset()
	var all counts
	for _, s := range t.shards {
		s.mu.Lock()
		all.add(s.counts)
		for _, times := range []*hdrhistogram.Histogram{s.answered, s.lost} {
			if times.TotalCount() == 0 {
				continue
			}
			t.interval.Merge(times)
			if times == s.answered {
				t.answered.Merge(times)
			}
			times.Reset()
		}
		s.mu.Unlock()
	}
	t.response.Merge(t.interval)
	return all
}

// result fills in the counts, after all senders have ended and gather was called. due
// is the number of requests that were due.
func (t *tally) result(r *Result, due int64) {
	service := newHistogram()
	var all counts
	r.Failures = make(map[string]int64)
	errors := make(map[string]string)
	for _, s := range t.shards {
		all.add(s.counts)
		service.Merge(s.service)
		for reason, n := range s.failures {
			r.Failures[reason] += n
		}
		for reason, text := range s.errors {
			if errors[reason] == "" {
				errors[reason] = text
			}
		}
	}
	for _, reason := range slices.SortedFunc(maps.Keys(errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Failures[b], r.Failures[a]), cmp.Compare(a, b))
	}) {
		r.FirstErrors = append(r.FirstErrors, errors[reason])
	}
	r.FirstErrors = r.FirstErrors[:min(len(r.FirstErrors), shownErrors)]
	r.Requests, r.Sent, r.Acked, r.Rejected, r.Failed = all.requests, all.sent, all.acked, all.rejected, all.failed
	r.Response, r.Service = quantiles(t.response), quantiles(service)
	if lost := due - t.answered.TotalCount(); lost > 0 {
		strict := strictly(t.answered, due)
		r.Strict = &strict
	}
	r.Curve, r.ServiceCurve = curve(t.response), curve(service)
	t.byFill(r)
}

func (t *tally) byFill(r *Result) {
	for i := range t.shards[0].fills {
		fill := newHistogram()
		for _, s := range t.shards {
			fill.Merge(s.fills[i])
		}
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

// strictly returns the quantiles of the requests that were due, where those without an
// answer are slower than any. A quantile among these is 0.
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

// curve returns the percentile curve, with 5 points for each halving of the distance to
// 100 %.
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

// A recorder makes an Interval of each second, and finally the Result.
type recorder struct {
	g       *Generator
	rows    []Interval
	passed  time.Duration // end of the last row
	offered int64         // readings, up to there
	dropped int64
	counts  counts
}

func newRecorder(g *Generator) *recorder { return &recorder{g: g} }

// run records until over is closed.
func (r *recorder) run(over <-chan struct{}) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			now := time.Since(r.g.began)
			r.record(now)
			// The next tick is the next whole second, also after a late one.
			timer.Reset(now.Truncate(tick) + tick - now)
		case <-over:
			return
		}
	}
}

// record ends the present row, and reports it.
func (r *recorder) record(now time.Duration) {
	row, counts := r.gather(now)
	r.rows = append(r.rows, row)
	g := r.g
	draining := g.draining.Load()
	asked := g.source.rateAt(now)
	switch {
	case draining:
		asked = 0
	case asked < 0:
		asked = row.Offered
	}
	g.meters.offeredRate.Set(asked)
	g.meters.windowRatio.Set(row.Fill)
	if g.config.Progress != nil {
		length, _ := g.source.length()
		g.config.Progress(Progress{
			Interval: row, Elapsed: now, Duration: length, Asked: asked,
			Acked: counts.acked, TotalFailed: counts.failed, TotalDropped: r.dropped, Draining: draining,
		})
	}
}

// gather returns the row that ends now.
func (r *recorder) gather(now time.Duration) (Interval, counts) {
	g := r.g
	offered, dropped := g.due.Load(), g.dropped.Load()
	all := g.tally.gather()
	length := max((now - r.passed).Seconds(), 1e-6)
	window := int64(g.config.Stream.GranularitySeconds) * 1000
	row := Interval{
		Second:   now.Seconds(),
		Offered:  float64(offered-r.offered) / length,
		Achieved: float64(all.acked-r.counts.acked) / length,
		InFlight: int(g.outstanding.Load()),
		Failed:   all.failed - r.counts.failed,
		Dropped:  dropped - r.dropped,
	}
	// Event time ends with the schedule. The end of a window belongs to it here, not to
	// the next.
	event := now
	if length, known := g.source.length(); known {
		event = min(now, length)
	}
	row.Fill = float64(elapsedOf(g.source.eventAt(event)-1, window)) / float64(window)
	if h := g.tally.interval; h.TotalCount() > 0 {
		row.P50, row.P99 = seconds(h.ValueAtPercentile(50)), seconds(h.ValueAtPercentile(99))
	}
	r.passed, r.offered, r.dropped, r.counts = now, offered, dropped, all
	return row, all
}

// shortRow is too short for a row of its own, whose rates would be random.
const shortRow = tick / 4

// finish records what happened since the last tick.
func (r *recorder) finish(lasted time.Duration) {
	length := lasted - r.passed
	if length <= 0 {
		r.gather(r.passed) // only the counts are missing
		return
	}
	before := len(r.rows) - 1
	began := r.passed
	row, _ := r.gather(lasted)
	if length >= shortRow || before < 0 {
		r.rows = append(r.rows, row)
		return
	}
	last := &r.rows[before]
	start := 0.0
	if before > 0 {
		start = r.rows[before-1].Second
	}
	of := began.Seconds() - start // seconds of the last row
	all := of + length.Seconds()
	last.Second = lasted.Seconds()
	last.Offered = (last.Offered*of + row.Offered*length.Seconds()) / all
	last.Achieved = (last.Achieved*of + row.Achieved*length.Seconds()) / all
	last.Failed += row.Failed
	last.Dropped += row.Dropped
	last.InFlight = row.InFlight
	if last.P50 == 0 {
		last.P50, last.P99 = row.P50, row.P99
	}
}

// result makes the result of a run whose requests were due for length, and whose last
// answer came after lasted.
func (r *recorder) result(length, lasted time.Duration) *Result {
	r.finish(lasted)
	g := r.g
	g.meters.offeredRate.Set(0)
	out := &Result{
		Version: g.config.Version, Began: g.began.UTC(), Setup: g.setup(),
		Seconds:      max(length, lasted).Seconds(),
		DrainSeconds: max(lasted-length, 0).Seconds(),
		Dropped:      g.dropped.Load(),
		Intervals:    r.rows,
	}
	g.tally.result(out, g.dueRequests.Load())
	if len(out.FirstErrors) < shownErrors {
		out.FirstErrors = append(out.FirstErrors, g.notes...)
	}
	out.Setup.DurationSeconds = length.Seconds()
	// If the schedule ended early, so did event time.
	if end := time.UnixMilli(g.source.eventAt(length)).UTC(); end.Before(out.Setup.EventEnd) && g.endedEarly(length) {
		out.Setup.EventEnd = end
	}
	if length < shortestRate {
		out.AchievedRate = float64(out.Acked) / max(lasted, time.Microsecond).Seconds()
		return out
	}
	out.OfferedRate = float64(g.due.Load()) / length.Seconds()
	out.AchievedRate = float64(out.Acked) / length.Seconds()
	return out
}

// shortestRate is the minimum time for a rate: the readings of a file can all have the
// same timestamp.
const shortestRate = 10 * time.Millisecond

// endedEarly reports whether requests were due for less long than planned.
func (g *Generator) endedEarly(length time.Duration) bool {
	planned, known := g.source.length()
	return !known || length < planned
}

// setup describes the run.
func (g *Generator) setup() Setup {
	c := &g.config
	s := Setup{
		Target: c.Target, Stream: c.Stream.Name, Storage: c.Stream.Storage, GranularitySeconds: c.Stream.GranularitySeconds,
		Protocol: c.Protocol, Ack: c.Ack,
		IntervalSeconds: c.Interval.Seconds(), Speedup: c.Speedup, Batch: c.Batch, Fields: c.Fleet.Fields,
		Steps: c.Steps, From: c.From, DurationSeconds: c.Duration.Seconds(),
		Connections: c.Connections, MaxInFlight: c.MaxInFlight, Seed: c.Seed,
	}
	if g.rateGiven {
		s.Rate = c.Rate.String()
		if c.asked != c.Interval {
			s.AskedIntervalSeconds = c.asked.Seconds()
		}
	}
	if g.source != nil {
		g.source.describe(&s)
	}
	return s
}

// metrics of the generator.
type metrics struct {
	offered, sent, acked, rejected, failed, dropped prometheus.Counter // readings

	ok, partial, failedRequests prometheus.Counter
	response, service           prometheus.Histogram
	inFlight                    prometheus.GaugeFunc
	offeredRate, windowRatio    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, inFlight func() float64) (*metrics, error) {
	counter := func(what, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "brim_load_" + what + "_readings_total", Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "brim_load_" + name, Help: help})
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_load_requests_total",
		Help: "Requests by result: ok, partial (some readings were rejected), failed.",
	}, []string{"result"})
	m := &metrics{
		offered:        counter("offered", "Readings that were due."),
		sent:           counter("sent", "Readings in requests that were sent."),
		acked:          counter("acked", "Readings that the daemon acknowledged."),
		rejected:       counter("rejected", "Readings that the daemon rejected in requests that it answered."),
		failed:         counter("failed", "Readings in requests that failed."),
		dropped:        counter("dropped", "Readings that were due and never sent, because too many requests were in flight."),
		ok:             requests.WithLabelValues("ok"),
		partial:        requests.WithLabelValues("partial"),
		failedRequests: requests.WithLabelValues("failed"),
		response:       newTimes("response", "Time from when a request was due until it was answered, failed, or was given up while waiting for a connection."),
		service:        newTimes("service", "Time from when a request was sent to its answer."),
		offeredRate:    gauge("offered_rate", "Readings a second that are due now."),
		windowRatio:    gauge("window_ratio", "Elapsed part of the window of event time: 0 at its start, 1 at its end."),
		inFlight: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_load_in_flight",
			Help: "Requests that are due and not answered, including those that wait for a connection.",
		}, inFlight),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.offered, m.sent, m.acked, m.rejected, m.failed, m.dropped, requests, m.response, m.service, m.inFlight, m.offeredRate, m.windowRatio,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the load's metrics: %w", err)
		}
	}
	return m, nil
}

func newTimes(what, help string) prometheus.Histogram {
	return prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
		Name: "brim_load_" + what + "_seconds",
		Help: help,
		// 100 us to 52 s: a local answer takes some 200 us, one that timed out 30 s.
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
	}))
}

// note counts the outcome of a request.
func (m *metrics) note(f *fate) {
	m.response.Observe(f.response.Seconds())
	switch {
	case f.unsent:
		return // counted as dropped
	case f.answer.Failure != "":
		m.failed.Add(float64(f.readings))
		m.failedRequests.Inc()
		return
	case f.answer.Rejected > 0:
		m.partial.Inc()
	default:
		m.ok.Inc()
	}
	m.acked.Add(float64(f.answer.Accepted))
	m.rejected.Add(float64(f.answer.Rejected))
	m.service.Observe(f.service.Seconds())
}

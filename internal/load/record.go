package load

import (
	"time"
)

// tick is the length of an Interval.
const tick = time.Second

// A recorder makes an Interval of each second, and in the end the Result.
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

// record ends the row at hand and tells about it.
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

// gather returns the row that ends now, with what is counted since the last.
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
	// Event time ends with the schedule; the end of a window belongs to it here,
	// not to the next.
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

// shortRow is what no row of its own is made of: its rates would be chance.
const shortRow = tick / 4

// finish records what happened since the last tick.
func (r *recorder) finish(lasted time.Duration) {
	length := lasted - r.passed
	if length <= 0 {
		r.gather(r.passed) // the tick took it all, but for the counts
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

// result makes the result of a run whose requests were due for length, and
// which lasted until the last answer.
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
	// Where the schedule ended early, so did event time.
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

// shortestRate is the time that a rate of what was due must be over to tell
// anything: the readings of a file can all be of one instant.
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

package load

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Response times are counted in microseconds, from 1 to 10 minutes, to 3 digits.
const (
	highestMicros = 600_000_000
	digits        = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, highestMicros, digits) }

func micros(d time.Duration) int64 { return min(max(d.Microseconds(), 1), highestMicros) }

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// tenths are readings by the tenth of the window that they lie in.
type tenths [10]int32

// A tally counts what became of requests. Senders note it in one of a few
// shards, so that they seldom wait for each other, and each second the recorder
// gathers what is new.
type tally struct {
	shards   []*shard
	response *hdrhistogram.Histogram // of the intervals that are over
	interval *hdrhistogram.Histogram // the last gathered
}

// A shard is what some of the senders have noted.
type shard struct {
	mu       sync.Mutex
	counts   counts
	response *hdrhistogram.Histogram // since it was last gathered
	service  *hdrhistogram.Histogram
	fills    [10]*hdrhistogram.Histogram // response time, readings
	failures map[string]int64            // requests
	errors   []string
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

// mostShards bounds the memory for histograms, of which each takes 180 KB.
const mostShards = 8

// shownErrors is how many different ones the result has.
const shownErrors = 5

func newTally(senders int) *tally {
	t := &tally{response: newHistogram(), interval: newHistogram()}
	for range min(senders, mostShards) {
		s := &shard{response: newHistogram(), service: newHistogram(), failures: make(map[string]int64)}
		for i := range s.fills {
			s.fills[i] = newHistogram()
		}
		t.shards = append(t.shards, s)
	}
	return t
}

// A fate is what became of one request.
type fate struct {
	readings          int
	fills             tenths
	response, service time.Duration
	answer            Answer
	err               error
}

// note counts a request of the sender with this number.
func (t *tally) note(sender int, f *fate) {
	s := t.shards[sender%len(t.shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.requests++
	s.counts.sent += int64(f.readings)
	if f.answer.Failure != "" {
		s.counts.failed += int64(f.readings)
		s.failures[f.answer.Failure]++
		if f.err != nil {
			s.keep(f.err.Error())
		}
		return
	}
	s.counts.acked += int64(f.answer.Accepted)
	s.counts.rejected += int64(f.answer.Rejected)
	us := micros(f.response)
	// What was clamped to the range is always taken.
	_ = s.response.RecordValue(us)
	_ = s.service.RecordValue(micros(f.service))
	for i, n := range f.fills {
		if n > 0 {
			_ = s.fills[i].RecordValues(us, int64(n))
		}
	}
}

func (s *shard) keep(text string) {
	if len(s.errors) < shownErrors && !slices.Contains(s.errors, text) {
		s.errors = append(s.errors, text)
	}
}

// gather returns the counts so far, and leaves the response times since the last
// call in t.interval.
func (t *tally) gather() counts {
	t.interval.Reset()
	var all counts
	for _, s := range t.shards {
		s.mu.Lock()
		all.add(s.counts)
		if s.response.TotalCount() > 0 {
			t.interval.Merge(s.response)
			s.response.Reset()
		}
		s.mu.Unlock()
	}
	t.response.Merge(t.interval)
	return all
}

// result fills in what was counted, when all senders have ended and all was
// gathered.
func (t *tally) result(r *Result) {
	service := newHistogram()
	var all counts
	r.Failures = make(map[string]int64)
	for _, s := range t.shards {
		all.add(s.counts)
		service.Merge(s.service)
		for reason, n := range s.failures {
			r.Failures[reason] += n
		}
		for _, text := range s.errors {
			if len(r.FirstErrors) < shownErrors && !slices.Contains(r.FirstErrors, text) {
				r.FirstErrors = append(r.FirstErrors, text)
			}
		}
	}
	r.Requests, r.Sent, r.Acked, r.Rejected, r.Failed = all.requests, all.sent, all.acked, all.rejected, all.failed
	r.Response, r.Service = quantiles(t.response), quantiles(service)
	r.Curve, r.ServiceCurve = curve(t.response), curve(service)
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

// curve returns the percentile curve, with 5 points each time the distance to
// 100 % halves.
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

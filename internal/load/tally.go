package load

import (
	"cmp"
	"maps"
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
	taken    *hdrhistogram.Histogram // of those in response, what was taken
}

// A shard is what some of the senders have noted.
type shard struct {
	mu     sync.Mutex
	counts counts
	// Response times since they were last gathered: of requests that were taken,
	// and of the others until that was known.
	taken, lost *hdrhistogram.Histogram
	service     *hdrhistogram.Histogram
	fills       [10]*hdrhistogram.Histogram // response time, readings
	failures    map[string]int64            // requests
	errors      map[string]string           // the first in words, by reason
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

// shownErrors is for how many reasons the result has an error in words.
const shownErrors = 5

func newTally(senders int) *tally {
	t := &tally{response: newHistogram(), interval: newHistogram(), taken: newHistogram()}
	for range min(senders, mostShards) {
		s := &shard{
			taken: newHistogram(), lost: newHistogram(), service: newHistogram(),
			failures: make(map[string]int64), errors: make(map[string]string),
		}
		for i := range s.fills {
			s.fills[i] = newHistogram()
		}
		t.shards = append(t.shards, s)
	}
	return t
}

// A fate is what became of one request that was due.
type fate struct {
	readings int
	fills    tenths
	// response is the time from when the request was due until it was answered or
	// given up; service counts from when it was sent.
	response, service time.Duration
	unsent            bool // it was given up while it waited for a connection
	answer            Answer
	err               error
}

// taken reports whether the daemon answered to the readings of the request.
func (f *fate) taken() bool { return !f.unsent && f.answer.Failure == "" }

// reasonRefused is that of errors which tell of readings that were refused, in a
// request that was answered.
const reasonRefused = "refused"

// note counts a request of the sender with this number. Its response time counts
// whatever became of it: what has not been answered took at least that long.
func (t *tally) note(sender int, f *fate) {
	s := t.shards[sender%len(t.shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	us := micros(f.response)
	times := s.lost
	if f.taken() {
		times = s.taken
	}
	_ = times.RecordValue(us) // what was clamped to the range is always taken
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

// keep keeps the first error of a reason.
func (s *shard) keep(reason string, err error) {
	if err != nil && s.errors[reason] == "" && len(s.errors) < shownErrors {
		s.errors[reason] = err.Error()
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
		for _, times := range []*hdrhistogram.Histogram{s.taken, s.lost} {
			if times.TotalCount() == 0 {
				continue
			}
			t.interval.Merge(times)
			if times == s.taken {
				t.taken.Merge(times)
			}
			times.Reset()
		}
		s.mu.Unlock()
	}
	t.response.Merge(t.interval)
	return all
}

// result fills in what was counted, when all senders have ended and all was
// gathered. So many requests were due.
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
	if lost := due - t.taken.TotalCount(); lost > 0 {
		strict := strictly(t.taken, due)
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

// strictly returns the quantiles of the requests that were due, where those that
// were not taken are slower than any. What is among them is 0.
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

package promapi

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	// defaultLookback is the default of Prometheus.
	defaultLookback = 5 * time.Minute
	// maxAutoLookback is the maximum automatic look-back, for sensors that send less often: three
	// times an hour.
	maxAutoLookback = 3 * time.Hour
	// missedIntervals is the number of its sensor's intervals for which a sample stays valid.
	missedIntervals = 3
)

// A lookback is the maximum age of a sample at an instant of a query.
//
// The engine has one look-back for all series. If each series has its own, the engine gets the
// longest, and a series gets a stale marker where its own ends. Range selectors have no look-back
// and ignore the markers.
type lookback struct {
	longest time.Duration // of any series
	auto    bool          // each series has its own, based on the interval of its sensor
}

// lookback returns the look-back of the request or the stream.
func (x *exchange) lookback() (lookback, error) {
	if text := x.r.FormValue("lookback_delta"); text != "" {
		d, err := parseDuration(text)
		if err != nil || d <= 0 {
			return lookback{}, invalid("lookback_delta %s is not a positive duration", telemetry.Quote([]byte(text)))
		}
		return lookback{longest: d}, nil
	}
	if d := x.api.cfg.Lookback(x.active.stream); d > 0 {
		return lookback{longest: d}, nil
	}
	return lookback{longest: maxAutoLookback, auto: true}, nil
}

// extraLookback is the difference between maxAutoLookback and the default.
const extraLookback = maxAutoLookback - defaultLookback

// maxReach is how far lookBack goes back at most: if the newest sample is as old as allowed, there
// must be one or two before it to determine the interval.
const maxReach = extraLookback + 2*maxAutoLookback/missedIntervals

// reaches are how far lookBack goes back, in steps.
var reaches = [...]time.Duration{15 * time.Minute, time.Hour, maxReach}

// knownSamples is how many samples determine the interval of a sensor.
const knownSamples = 3

// lookBack reads samples older than defaultLookback, for sensors that have no newer sample at the
// beginning of a selection, or too few to determine their interval.
func (q *querier) lookBack(ctx context.Context, of []*collector) error {
	reached := time.Duration(0)
	for _, reach := range reaches {
		err := q.readSpans(ctx, of, func(c *collector) [][2]int64 {
			var older task
			for _, s := range c.task.of {
				if s.instants && (reached == 0 && !c.has(s, s.from, s.from+defaultLookback.Milliseconds(), 1) || !c.has(s, s.from-reached.Milliseconds(), s.to, knownSamples)) {
					older.of = append(older.of, &selection{from: max(0, s.from-reach.Milliseconds()), to: s.from - reached.Milliseconds()})
				}
			}
			return older.spans()
		})
		if err != nil {
			return err
		}
		reached = reach
	}
	return nil
}

// mergeSamples merges two lists of samples, both sorted by time, without changing them. Of two
// samples with the same time, the second one is kept.
func mergeSamples(times []int64, values []float64, moreTimes []int64, moreValues []float64) ([]int64, []float64) {
	switch {
	case len(times) == 0:
		return moreTimes, moreValues
	case len(moreTimes) == 0:
		return times, values
	case times[len(times)-1] < moreTimes[0]:
		return slices.Concat(times, moreTimes), slices.Concat(values, moreValues)
	case moreTimes[len(moreTimes)-1] < times[0]:
		return slices.Concat(moreTimes, times), slices.Concat(moreValues, values)
	}
	type sample struct {
		at int64
		v  float64
	}
	all := make([]sample, 0, len(times)+len(moreTimes))
	for i, at := range times {
		all = append(all, sample{at, values[i]})
	}
	for i, at := range moreTimes {
		all = append(all, sample{at, moreValues[i]})
	}
	slices.SortStableFunc(all, func(a, b sample) int { return int(min(max(a.at-b.at, -1), 1)) })
	times, values = make([]int64, 0, len(all)), make([]float64, 0, len(all))
	for _, one := range all {
		if n := len(times); n > 0 && times[n-1] == one.at {
			values[n-1] = one.v
			continue
		}
		times, values = append(times, one.at), append(values, one.v)
	}
	return times, values
}

// has reports whether each field of a selection has at least n samples in a time range, with some
// tags; if its fields are not known, whether some field has.
func (c *collector) has(s *selection, from, to int64, n int) bool {
	enough := make(map[string]bool)
	for _, set := range c.sets {
		for _, col := range set.columns {
			if times, _ := col.between(from, to); len(times) >= n && s.matchers.wantsField(col.name) {
				enough[col.name] = true
			}
		}
	}
	return len(enough) > 0 && !slices.ContainsFunc(c.task.known, func(name string) bool { return s.matchers.wantsField(name) && !enough[name] })
}

// seriesOf returns the column's samples for the selection.
func (s *selection) seriesOf(l labels.Labels, col *column) *series {
	from := s.from
	own := s.instants && s.querier.lookback.auto
	if own {
		from -= maxReach.Milliseconds()
	}
	out := &series{labels: l}
	if out.times, out.values = col.between(from, s.to); own {
		out.times, out.values = withMarkers(out.times, out.values, s.to)
	}
	return out
}

// withMarkers adds stale markers where a sample is older than the look-back of the series.
func withMarkers(times []int64, values []float64, end int64) ([]int64, []float64) {
	lasts := lookbackOf(times)
	gaps := 0
	for i, at := range times {
		if following(times, i, end)-at > lasts {
			gaps++
		}
	}
	if gaps == 0 {
		return times, values
	}
	outTimes, outValues := make([]int64, 0, len(times)+gaps), make([]float64, 0, len(times)+gaps)
	for i, at := range times {
		outTimes, outValues = append(outTimes, at), append(outValues, values[i])
		if following(times, i, end)-at > lasts {
			outTimes, outValues = append(outTimes, at+lasts), append(outValues, staleMarker())
		}
	}
	return outTimes, outValues
}

// following returns the time of the next sample, or the end.
func following(times []int64, i int, end int64) int64 {
	if i+1 < len(times) {
		return times[i+1]
	}
	return end
}

// staleMarker returns the value that marks the end of a series.
func staleMarker() float64 { return math.Float64frombits(value.StaleNaN) }

// lookbackOf returns the look-back of a series: missedIntervals times its usual interval,
// the median, from defaultLookback to maxAutoLookback.
func lookbackOf(times []int64) int64 {
	const shortest, longest = int64(defaultLookback / time.Millisecond), int64(maxAutoLookback / time.Millisecond)
	if len(times) < 2 {
		return shortest
	}
	short := 0
	for i, at := range times[1:] {
		if missedIntervals*(at-times[i]) <= shortest {
			short++
		}
	}
	if short >= len(times)/2 {
		return shortest // the median is one of them
	}
	intervals := make([]int64, len(times)-1)
	for i := range intervals {
		intervals[i] = times[i+1] - times[i]
	}
	slices.Sort(intervals)
	return min(max(missedIntervals*intervals[(len(intervals)-1)/2], shortest), longest)
}

package advise

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/store"
)

// Advice is what to set, why, what it costs, and what was not chosen.
type Advice struct {
	Needs       Needs             `json:"needs"`
	Environment bench.Environment `json:"environment"`
	Quick       bool              `json:"quick"`
	TookSeconds float64           `json:"took_seconds"`

	Chosen   Cost       `json:"chosen"`
	Choices  []Choice   `json:"choices"`
	Rejected []Rejected `json:"rejected"` // the cheapest first
	Warnings []string   `json:"warnings,omitempty"`
	Followed *Followed  `json:"followed,omitempty"`
	Figures  *Figures   `json:"figures"`
}

// A Choice is one setting with its reason.
type Choice struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Why     string `json:"why"`
}

// Rejected is what was not chosen, at the flush interval that suits it best.
type Rejected struct {
	Cost

	Why string `json:"why"`
}

// alikeShare is the part by which two prices may differ and still count as the same:
// what is measured in a minute is not more certain. Of such the simpler is
// taken: bucket documents, which keep a reading from being stored twice; then
// the smaller documents, then snappy. Of flush and checkpoint intervals the
// shorter is.
const alikeShare = 0.10

// flushes and checkpoints are the intervals that are tried.
var flushes = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

var checkpoints = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute}

var errNothing = errors.New("nothing was measured to choose from")

// Choose returns the advice that follows from what was measured. Needs must be
// complete.
func Choose(n Needs, f *Figures) (*Advice, error) {
	if !slices.ContainsFunc(f.Sizes, func(s Sized) bool { return s.may(n) }) {
		return nil, errNothing
	}
	all := make([]Cost, len(f.Sizes))
	for i, s := range f.Sizes {
		all[i] = f.cost(n, s, f.bestFlush(n, s, n.MaxWait), checkpoints[0])
	}
	best := choose(n, all)
	a := &Advice{Needs: n, Figures: f}
	sized := f.Sizes[best]
	limit := cheapest(n, all) * (1 + alikeShare)
	interval, within := f.bestCheckpoint(n, sized, all[best].Flush)
	a.Chosen = f.cost(n, sized, all[best].Flush, interval)
	for i := range all {
		if i != best {
			alike := all[i].Price() <= limit
			all[i] = f.cost(n, f.Sizes[i], all[i].Flush, interval)
			a.Rejected = append(a.Rejected, Rejected{Cost: all[i], Why: a.whyNot(all[i], alike)})
		}
	}
	slices.SortStableFunc(a.Rejected, func(x, y Rejected) int { return cmp.Compare(x.Price(), y.Price()) })
	a.explain(f, sized)
	a.warn(within)
	return a, nil
}

// choose returns the place of the one to take, of those that the needs allow.
func choose(n Needs, all []Cost) int {
	best, limit := -1, cheapest(n, all)*(1+alikeShare)
	for i := range all {
		if all[i].may(n) && all[i].Price() <= limit && (best < 0 || simpler(all[i].Candidate, all[best].Candidate)) {
			best = i
		}
	}
	return best
}

// cheapest is the least price of those that the needs allow.
func cheapest(n Needs, all []Cost) float64 {
	least := math.Inf(1)
	for i := range all {
		if all[i].may(n) {
			least = min(least, all[i].Price())
		}
	}
	return least
}

// simpler reports whether a is taken where both cost the same.
func simpler(a, b Candidate) bool {
	if a.Storage != b.Storage {
		return a.Storage == store.Bucket
	}
	if a.Granularity != b.Granularity {
		return a.Granularity < b.Granularity
	}
	if a.MaxReadings != b.MaxReadings {
		return a.MaxReadings < b.MaxReadings
	}
	return a.Compressor == store.Snappy && b.Compressor != store.Snappy
}

// bestFlush returns the shortest flush interval up to a longest wait whose price
// is about that of the best.
func (f *Figures) bestFlush(n Needs, s Sized, longest time.Duration) time.Duration {
	var can []time.Duration
	for _, flush := range flushes {
		if flush <= longest && (len(can) == 0 || held(n, flush) <= laneBytes) {
			can = append(can, flush)
		}
	}
	if len(can) == 0 {
		return longest
	}
	price := func(flush time.Duration) float64 { return f.cost(n, s, flush, checkpoints[0]).CPUPrice }
	least := price(can[0])
	for _, flush := range can {
		least = min(least, price(flush))
	}
	for _, flush := range can {
		if price(flush) <= least*(1+alikeShare) {
			return flush
		}
	}
	return can[0]
}

// bestCheckpoint returns the shortest interval with which checkpoints write no
// more than the disk should, and whether there is one.
func (f *Figures) bestCheckpoint(n Needs, s Sized, flush time.Duration) (interval time.Duration, within bool) {
	for _, interval = range checkpoints {
		if f.cost(n, s, flush, interval).Written <= float64(n.DiskWrites) {
			return interval, true
		}
	}
	return interval, false
}

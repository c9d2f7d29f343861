package advise

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
)

// Advice is what to set, why, what it costs, and what was rejected.
type Advice struct {
	Needs       Needs             `json:"needs"`
	Environment bench.Environment `json:"environment"`
	Quick       bool              `json:"quick"`
	TookSeconds float64           `json:"took_seconds"`

	Chosen   Cost       `json:"chosen"`
	Choices  []Choice   `json:"choices"`
	Rejected []Rejected `json:"rejected"` // cheapest first
	Fresh    []Cost     `json:"fresh"`    // the chosen candidate at each --flush-max
	Warnings []string   `json:"warnings,omitempty"`
	Followed *Followed  `json:"followed,omitempty"`
	Figures  *Figures   `json:"figures"`
}

// A Choice is the chosen value of a setting.
type Choice struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// Next is the cheapest candidate with another value, and NextPrice its price relative to
	// the chosen one. Empty: none was measured, or the setting does not change the candidate.
	Next      string  `json:"next_best,omitempty"`
	NextPrice float64 `json:"next_best_price_ratio,omitempty"`
	Why       string  `json:"why"`
}

// Rejected is a candidate that was not chosen, with its best --flush-max.
type Rejected struct {
	Cost

	Why string `json:"why"`
}

// alikePart is the fraction by which prices may differ and still count as equal: a one-minute
// measurement is no more precise. Among equals the simpler candidate wins: bucket documents,
// which prevent duplicates; then sub-documents, which every program can read; then smaller
// documents; then snappy. For --flush-max and checkpoint intervals, the shorter wins.
const alikePart = 0.10

// flushes are the --flush-max values to try, checkpoints the intervals.
var flushes = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

var checkpoints = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute}

var errNothing = errors.New("nothing was measured to choose from")

// choose derives the advice from the measurements. Needs must be complete.
func choose(n Needs, f *Figures) (*Advice, error) {
	all := make([]Cost, len(f.Candidates))
	for i, m := range f.Candidates {
		all[i] = f.cost(n, m, f.bestFlush(n, m), checkpoints[0])
	}
	best, limit := pick(n, all)
	if best < 0 {
		return nil, errNothing
	}
	a := &Advice{Needs: n, Figures: f}
	interval := f.bestCheckpoint(n, f.Candidates[best], all[best].Flush)
	a.Chosen = f.cost(n, f.Candidates[best], all[best].Flush, interval)
	for i, m := range f.Candidates {
		if i != best {
			c := f.cost(n, m, all[i].Flush, interval)
			a.Rejected = append(a.Rejected, Rejected{c, a.whyNot(c, all[i].Price() <= limit)})
		}
	}
	slices.SortStableFunc(a.Rejected, func(x, y Rejected) int { return cmp.Compare(x.Price(), y.Price()) })
	for _, flush := range flushes {
		if flush <= a.Chosen.Granularity {
			a.Fresh = append(a.Fresh, f.cost(n, f.Candidates[best], flush, interval))
		}
	}
	a.Choices = a.choices()
	return a, nil
}

// pick returns the index of the best candidate that the needs allow, -1 if there is none, and
// the price up to which others count as equal.
func pick(n Needs, all []Cost) (best int, limit float64) {
	best, limit = -1, math.Inf(1)
	for _, c := range all {
		if c.may(n) {
			limit = min(limit, c.Price()*(1+alikePart))
		}
	}
	for i, c := range all {
		if c.may(n) && c.Price() <= limit && (best < 0 || simpler(c.Candidate, all[best].Candidate) < 0) {
			best = i
		}
	}
	return best, limit
}

// simpler is below 0 if a is preferred at the same price.
func simpler(a, b Candidate) int {
	rankOf := func(c Candidate) []int64 {
		rank := []int64{0, 0, int64(c.Granularity), int64(c.MaxReadings), int64(slices.Index(compressors[:], c.Compressor))}
		if c.Storage != store.Bucket {
			rank[0] = 1
		}
		if c.Columns {
			rank[1] = 1
		}
		return rank
	}
	return slices.Compare(rankOf(a), rankOf(b))
}

// bestFlush returns the shortest --flush-max that costs about as little as the cheapest, among
// those that the needs, the window and the lanes' memory allow.
func (f *Figures) bestFlush(n Needs, m Measured) time.Duration {
	can, least := []time.Duration{min(flushes[0], n.MaxWait)}, math.Inf(1)
	for _, flush := range flushes[1:] {
		if flush <= min(n.MaxWait, m.Granularity) && held(n, gather(n, flush)) <= laneBytes {
			can = append(can, flush)
		}
	}
	prices := make([]float64, len(can))
	for i, flush := range can {
		prices[i] = f.cost(n, m, flush, checkpoints[0]).CPUPrice
		least = min(least, prices[i])
	}
	return can[slices.IndexFunc(prices, func(price float64) bool { return price <= least*(1+alikePart) })]
}

// bestCheckpoint returns the shortest interval that keeps checkpoint writes within the disk's
// limit, or the longest interval if none does.
func (f *Figures) bestCheckpoint(n Needs, m Measured, flush time.Duration) (interval time.Duration) {
	for _, interval = range checkpoints {
		if f.cost(n, m, flush, interval).Written <= float64(n.DiskWrites) {
			break
		}
	}
	return interval
}

// checkpointSetting belongs to mongod, not to Brim.
const checkpointSetting = "checkpoint interval"

// choices returns the advised settings.
func (a *Advice) choices() (all []Choice) {
	c := a.Chosen
	add := func(setting, value, why string, another func(o Candidate) bool) {
		choice := Choice{Setting: setting, Value: value, Why: why}
		for _, r := range a.Rejected { // cheapest first
			if another != nil && another(r.Candidate) {
				choice.Next, choice.NextPrice = r.String(), r.Price()/c.Price()
				break
			}
		}
		all = append(all, choice)
	}
	why := "The database prevents duplicates of bucket documents, and none of a time series (--duplicates rare allows one)."
	if c.Storage == store.TimeSeries {
		why = "The database does not prevent duplicates: when MongoDB's answer is lost, Brim looks for the readings before it sends them again. If that is not acceptable: --duplicates never."
	}
	add("storage", string(c.Storage), why, func(o Candidate) bool { return o.Storage != c.Storage })
	alike := func(o Candidate) bool { return o.Storage == c.Storage && o.Compressor == c.Compressor }
	if c.Storage == store.Bucket {
		format, why := store.Documents, "Any program can read sub-documents."
		if c.Columns {
			format, why = store.Columns, "Updates carry packed blocks, and windows are sealed when they have ended; programs other than Brim need a decoder or the stream's view."
		}
		add("bucket-format", string(format), why, func(o Candidate) bool { return o.Storage == c.Storage && o.Columns != c.Columns })
	}
	add("granularity", config.FormatDuration(c.Granularity), "At the same price, the shortest window wins.", func(o Candidate) bool { return alike(o) && o.Granularity != c.Granularity })
	if c.Storage == store.Bucket {
		add("bucket-max-readings", strconv.Itoa(c.MaxReadings), "A window with more readings continues in another document.", func(o Candidate) bool { return alike(o) && o.MaxReadings != c.MaxReadings })
		add("bucket-max-bytes", config.FormatSize(int64(c.MaxBytes)), "It leaves room for that many readings.", nil)
	}
	add("compressor", string(c.Compressor), "At the same price, snappy wins.", func(o Candidate) bool { return o.shape() == c.shape() })
	add("flush-max", config.FormatDuration(c.Flush), "A reading is only in Brim's journal for about that long, unless its sender asked for ack=stored. Queries through Brim return it meanwhile; programs that read MongoDB directly do not see it.", nil)
	if c.Flush < flushInterval {
		add("flush-interval", config.FormatDuration(c.Flush), "It is no longer than flush-max.", nil)
	}
	if c.MergeReadings > mergeReadings {
		add("merge-readings", strconv.Itoa(c.MergeReadings), "As many as a sensor sends within flush-max, so that updates are not sent earlier.", nil)
	}
	if a.Needs.Retention > 0 {
		add("retention", config.FormatDuration(a.Needs.Retention), "As asked for.", nil)
	}
	add(checkpointSetting, config.FormatDuration(c.Checkpoint), "Set it with storage.syncPeriodSecs on your own mongod; after a crash MongoDB replays up to that much of its journal.", nil)
	return all
}

// Flags returns the advised flags of `brim serve`.
func (a *Advice) Flags() (flags []string) {
	for _, c := range a.choices() {
		if c.Setting != checkpointSetting {
			flags = append(flags, "--"+c.Setting, c.Value)
		}
	}
	return flags
}

// YAML returns the advised configuration of the daemon.
func (a *Advice) YAML() string {
	n := a.Needs
	var b strings.Builder
	fmt.Fprintf(&b, "# brim advise: %d sensors, %d fields every %s, queries of %s\nstreams:\n  readings:\n", n.Sensors, n.Fields, config.FormatDuration(n.Interval), config.FormatDuration(n.QuerySpan))
	for _, c := range a.choices() {
		if c.Setting != checkpointSetting {
			fmt.Fprintf(&b, "    %s: %s\n", c.Setting, c.Value)
		}
	}
	fmt.Fprintf(&b, "# in mongod's own configuration: storage.syncPeriodSecs: %d\n", int(a.Chosen.Checkpoint.Seconds()))
	return b.String()
}

// warnings returns the problems that the advice leaves unsolved.
func (a *Advice) warnings() (all []string) {
	if a.Chosen.Written > float64(a.Needs.DiskWrites) {
		all = append(all, fmt.Sprintf("Checkpoints write %s a day, above --disk-writes: use a disk that is rated for it.", bench.Bytes.Format(a.Chosen.Written)))
	}
	if a.Chosen.Write.Mongod == 0 {
		all = append(all, "This MongoDB does not report its CPU time, so the prices include only Brim's: measure without --mongo-uri, in a mongod that advise starts.")
	}
	if used := a.processors(); used > float64(a.Environment.Cores) {
		all = append(all, fmt.Sprintf("This takes %s CPUs, more than the %d of this machine.", number(used), a.Environment.Cores))
	}
	return all
}

// ingest returns the CPU seconds Brim spends accepting a day's readings, whatever is chosen.
func (a *Advice) ingest() float64 { return a.Figures.Ingest * a.Needs.perDay() }

// processors returns the average number of CPUs in use.
func (a *Advice) processors() float64 { return (a.Chosen.CPU().Total() + a.ingest()) / day.Seconds() }

// whyNot briefly explains why a candidate was not chosen; alike: its price was about the
// lowest, so something else decided.
func (a *Advice) whyNot(c Cost, alike bool) string {
	switch {
	case !c.may(a.Needs):
		return "does not prevent duplicates (--duplicates rare)"
	case alike:
		return "costs the same within the measurement error, and is less simple"
	}
	b, name, most := a.Chosen, "", math.Inf(-1)
	for _, part := range []struct {
		name string
		more float64
	}{
		{"disk", c.DiskPrice - b.DiskPrice}, {"writing", a.Needs.cpuPrice(c.Write.Total() - b.Write.Total())}, {"sealing", a.Needs.cpuPrice(c.Seal.Total() - b.Seal.Total())},
		{"checkpoints", a.Needs.cpuPrice(c.Rewrite - b.Rewrite)}, {"queries", a.Needs.cpuPrice(c.Query.Total() - b.Query.Total())},
	} {
		if part.more > most {
			name, most = part.name, part.more
		}
	}
	return "more expensive: " + name // the largest difference
}

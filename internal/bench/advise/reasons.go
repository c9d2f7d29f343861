package advise

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/store"
)

// explain fills in the choices.
func (a *Advice) explain(f *Figures, s Sized) {
	a.Choices = []Choice{{"storage", string(a.Chosen.Storage), a.whyStorage()}}
	if a.Chosen.Storage == store.Bucket {
		a.Choices = append(a.Choices,
			Choice{"granularity", Span(a.Chosen.Granularity), a.whyGranularity()},
			Choice{"bucket-max-readings", strconv.Itoa(a.Chosen.MaxReadings), a.whyCap()})
	}
	a.Choices = append(a.Choices,
		Choice{"compressor", string(a.Chosen.Compressor), a.whyCompressor()},
		Choice{"flush-interval", Span(a.Chosen.Flush), a.whyFlush(f, s)},
		Choice{"checkpoint interval", Span(a.Chosen.Checkpoint), a.whyCheckpoint(f, s)})
}

// whyStorage holds the choice against the best of the other storage.
func (a *Advice) whyStorage() string {
	const notPrevented = "A time series has no unique index: when MongoDB's answer is lost, Brim looks what arrived before it sends again, but the database itself does not keep a reading from being stored twice."
	for _, r := range a.Rejected {
		switch {
		case r.Storage == a.Chosen.Storage:
			continue
		case a.Chosen.Storage == store.TimeSeries:
			return fmt.Sprintf("%s, the best of bucket documents, %s. %s Where that must not be: --duplicates never.", r.Candidate, a.against(r.Cost), notPrevented)
		case r.Price() < a.Chosen.Price()*(1-alikeShare):
			return fmt.Sprintf("Cheaper, but not allowed by --duplicates %s: %s would cost %s as much, with %s on disk instead of %s. %s Where that does no harm: --duplicates rare.", a.Needs.Duplicates,
				r.Candidate, bench.Times.Format(r.Price()/a.Chosen.Price()), bench.Bytes.Format(r.Disk), bench.Bytes.Format(a.Chosen.Disk), notPrevented)
		default:
			return fmt.Sprintf("%s, the best of the other storage, %s.", r.Candidate, a.against(r.Cost))
		}
	}
	return "Nothing else was measured."
}

// whyGranularity holds the choice against the same with the other lengths.
func (a *Advice) whyGranularity() string {
	c := a.Chosen
	why := fmt.Sprintf("A document has %s readings; at the mean fill an update of %s costs %s of processor and a query looks at %s documents in %s.",
		number(c.PerDocument), readings(c.PerUpdate), bench.Seconds.Format(c.UpdateTime), number(c.QueryDocuments), bench.Seconds.Format(c.QuerySeconds))
	for _, r := range a.Rejected { // the cheapest first
		if r.Storage == c.Storage && r.Granularity != c.Granularity && r.Compressor == c.Compressor {
			return why + fmt.Sprintf(" The next best, %s, %s.", Span(r.Granularity), a.against(r.Cost))
		}
	}
	return why
}

func (a *Advice) whyCap() string {
	c, window := a.Chosen, perWindow(a.Chosen.Granularity, a.Needs.Interval)
	if window <= c.MaxReadings {
		return fmt.Sprintf("A window of %s holds %s of a sensor, which is one part.", Span(c.Granularity), readings(float64(window)))
	}
	why := fmt.Sprintf("A window of %s holds %s of a sensor: %d parts.", Span(c.Granularity), readings(float64(window)), int(math.Ceil(float64(window)/c.PerDocument)))
	for _, r := range a.Rejected {
		if r.Storage == c.Storage && r.MaxReadings != c.MaxReadings && r.Compressor == c.Compressor {
			return why + fmt.Sprintf(" With parts of %d, it %s.", r.MaxReadings, a.against(r.Cost))
		}
	}
	return why
}

func (a *Advice) whyCompressor() string {
	for _, r := range a.Rejected {
		if r.shape() == a.Chosen.shape() {
			return fmt.Sprintf("%s bytes a reading on disk, with %s %s; it %s.", number(a.perReading(a.Chosen)), r.Compressor, number(a.perReading(r.Cost)), a.against(r.Cost))
		}
	}
	return "It is the only one that was measured."
}

// whyFlush says what is merged, and what a longer wait would gain.
func (a *Advice) whyFlush(f *Figures, s Sized) string {
	c := a.Chosen
	why := fmt.Sprintf("An update carries %s; for %s at most a reading is in Brim's journal alone, unless its sender asked for ack=stored.", readings(c.PerUpdate), Span(c.Gather))
	if c.Gather > c.Flush {
		why += " That is longer than the flush interval, because updates keep the lanes busy, which gather longer then by themselves."
	}
	withheld := ""
	for _, longer := range flushes {
		if longer <= a.Needs.MaxWait {
			continue
		}
		if held(a.Needs, longer) > laneBytes {
			withheld = fmt.Sprintf(" What gathers for %s is more than the lanes hold in memory.", Span(longer))
			break
		}
		further := f.cost(a.Needs, s, longer, c.Checkpoint)
		if saved := 1 - further.CPUPrice/c.CPUPrice; saved > 2*alikeShare {
			return why + fmt.Sprintf(" %s would merge %s and save %.0f %% of the processor time; allow it with --max-wait %s.%s",
				Span(longer), readings(further.PerUpdate), 100*saved, Span(longer), lagAlert(longer))
		}
	}
	if withheld != "" {
		return why + withheld
	}
	return why + " A longer wait would save less than a fifth of the processor time."
}

// lagLimit is the lag from which on the alert that comes with Brim is raised.
const lagLimit = 8 * time.Second

func lagAlert(flush time.Duration) string {
	if flush < lagLimit {
		return ""
	}
	return " The alert BrimLagHigh, at 8 s, must be raised then."
}

func (a *Advice) whyCheckpoint(f *Figures, s Sized) string {
	var written []string
	for _, interval := range checkpoints {
		c := f.cost(a.Needs, s, a.Chosen.Flush, interval)
		written = append(written, fmt.Sprintf("%s with one every %s", bench.Bytes.Format(c.Written), Span(interval)))
	}
	why := fmt.Sprintf("A day's checkpoints write %s; the limit is %s (--disk-writes).", strings.Join(written, ", "), bench.Bytes.Format(float64(a.Needs.DiskWrites)))
	if a.Chosen.Checkpoint == checkpoints[0] {
		return why + " It is MongoDB's own default."
	}
	return why + " After a crash MongoDB replays as much of its journal. It is storage.syncPeriodSecs of a mongod of your own."
}

// warn says what the advice does not make good.
func (a *Advice) warn(within bool) {
	c := a.Chosen
	if !within {
		a.Warnings = append(a.Warnings, fmt.Sprintf("Checkpoints write %s a day, above --disk-writes: take a disk that bears it.", bench.Bytes.Format(c.Written)))
	}
	if !a.Figures.tellMongod() {
		a.Warnings = append(a.Warnings, "This MongoDB does not tell its processor time, so that the prices have Brim's alone: measure in a mongod of advise's own, without --mongo-uri.")
	}
	if lagAlert(c.Flush) != "" {
		a.Warnings = append(a.Warnings, "Readings wait longer than 8 s, from which on the alert BrimLagHigh is raised: raise it too.")
	}
}

// warnProcessors says that the machine at hand does not do for it.
func (a *Advice) warnProcessors() {
	used := (a.Chosen.CPU().Total() + a.Figures.Door*a.Needs.perDay()) / day.Seconds()
	if used > float64(a.Environment.Cores) {
		a.Warnings = append(a.Warnings, fmt.Sprintf("This takes %s processors, more than the %d of this machine.", number(used), a.Environment.Cores))
	}
}

// whyNot says in a few words why a candidate was not chosen; alike: its price was
// about the least, so that something else decided.
func (a *Advice) whyNot(c Cost, alike bool) string {
	switch {
	case !c.may(a.Needs):
		return "does not prevent duplicates (--duplicates rare)"
	case !alike:
		return "dearer: " + a.deciding(c)
	case c.Storage != a.Chosen.Storage:
		return "as dear, as far as can be told; a time series"
	case c.Granularity != a.Chosen.Granularity || c.MaxReadings != a.Chosen.MaxReadings:
		return "as dear, as far as can be told; larger documents"
	}
	return "as dear, as far as can be told; snappy is the default"
}

// against holds a candidate against the chosen one, in a part of a sentence.
func (a *Advice) against(c Cost) string {
	times := c.Price() / a.Chosen.Price()
	switch {
	case times > 1+alikeShare:
		return fmt.Sprintf("costs %s as much, most of all for %s", bench.Times.Format(times), a.deciding(c))
	case times < 1:
		return fmt.Sprintf("costs %.0f %% less, which is too little to tell", 100*(1-times))
	}
	return fmt.Sprintf("costs %.0f %% more, which is too little to tell", 100*(times-1))
}

// deciding names what the candidate costs more for, most of all.
func (a *Advice) deciding(c Cost) string {
	b := a.Chosen
	core := a.Needs.CoreHour / 3600 * float64(month/day)
	parts := []struct {
		more float64
		text string
	}{
		{c.DiskPrice - b.DiskPrice, fmt.Sprintf("disk, %s instead of %s", bench.Bytes.Format(c.Disk), bench.Bytes.Format(b.Disk))},
		{(c.Write.Total() - b.Write.Total()) * core, "writing, " + seconds(c.Write.Total(), b.Write.Total())},
		{(c.Rewrite - b.Rewrite) * core, "checkpoints, " + seconds(c.Rewrite, b.Rewrite)},
		{(c.Query.Total() - b.Query.Total()) * core, "queries, " + seconds(c.Query.Total(), b.Query.Total())},
	}
	most := parts[0]
	for _, p := range parts[1:] {
		if p.more > most.more {
			most = p
		}
	}
	return most.text
}

func seconds(this, chosen float64) string {
	return fmt.Sprintf("%s CPU-s a day instead of %s", number(this), number(chosen))
}

func (a *Advice) perReading(c Cost) float64 { return c.Bytes() / a.Needs.perDay() }

func readings(n float64) string {
	if n == 1 {
		return "1 reading"
	}
	return number(n) + " readings"
}

// number writes one as people read it, with three digits or so.
func number(v float64) string { return bench.Count.Format(v) }

package checkpoint

import (
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A Cost is what a load costs with one checkpoint interval.
type Cost struct {
	Load    string   `json:"load"`
	Seconds float64  `json:"interval_seconds"`
	Periods []Period `json:"periods"`
	Looks   []Look   `json:"looks"`
	Counted int      `json:"checkpoints_counted"` // between the first checkpoint and the last
	Over    float64  `json:"counted_over_seconds"`
	Writes  int      `json:"writes"`
}

func (c *Cost) inserts() bool { return c.Load == nameInserts }

// samples are one figure of all periods.
func (c *Cost) samples(of func(Period) float64) bench.Samples {
	s := make(bench.Samples, len(c.Periods))
	for i, p := range c.Periods {
		s[i] = of(p)
	}
	return s
}

// Dirty bytes before each checkpoint.
func (c *Cost) Dirty() bench.Samples {
	return c.samples(func(p Period) float64 { return p.DirtyBytes })
}

// Gathered are the bytes that became dirty from one checkpoint to the next.
func (c *Cost) Gathered() bench.Samples {
	return c.samples(func(p Period) float64 { return p.GatheredBytes })
}

// WrittenEach are the bytes written to the files from one checkpoint to the next.
func (c *Cost) WrittenEach() bench.Samples {
	return c.samples(func(p Period) float64 { return p.WrittenBytes })
}

// Durations of the checkpoints, in seconds.
func (c *Cost) Durations() bench.Samples {
	return c.samples(func(p Period) float64 { return p.CheckpointSeconds })
}

// Inside is the p99 of the writes that met a checkpoint, in seconds.
func (c *Cost) Inside() bench.Samples {
	return known(c.samples(func(p Period) float64 { return p.Inside }))
}

// Outside is the p99 of the other writes, in seconds.
func (c *Cost) Outside() bench.Samples {
	return known(c.samples(func(p Period) float64 { return p.Outside }))
}

// known leaves out what no write was there for.
func known(s bench.Samples) bench.Samples {
	return slices.DeleteFunc(s, func(v float64) bool { return v == 0 })
}

// BytesPerHour are those written to the files, without the journal, at the rate
// of each period.
func (c *Cost) BytesPerHour() bench.Samples {
	return c.samples(func(p Period) float64 { return 3600 * p.WrittenBytes / p.Seconds() })
}

// CheckpointBytesPerHour are those of BytesPerHour that checkpoints wrote.
func (c *Cost) CheckpointBytesPerHour() bench.Samples {
	return c.samples(func(p Period) float64 { return 3600 * p.CheckpointWrittenBytes / p.Seconds() })
}

// JournalBytesPerHour are those written to the journal.
func (c *Cost) JournalBytesPerHour() bench.Samples {
	return c.samples(func(p Period) float64 { return 3600 * p.JournalBytes / p.Seconds() })
}

// Obeyed is how many checkpoints came of each that the interval asks for: 1 if it
// took.
func (c *Cost) Obeyed() float64 { return float64(c.Counted) * c.Seconds / c.Over }

// costOf sums up what was seen.
func costOf(l Load, interval time.Duration, s seenBy) *Cost {
	c := &Cost{
		Load: l.Name(), Seconds: interval.Seconds(), Looks: s.looks, Writes: len(s.operations), Periods: periodsOf(s, interval),
	}
	c.Counted, c.Over = counted(s.looks)
	return c
}

// counted returns how many checkpoints came after the first one until the last,
// and in what time.
func counted(looks []Look) (checkpoints int, seconds float64) {
	at := ends(looks)
	if len(at) < 2 {
		return 0, 0
	}
	first, last := looks[at[0]], looks[at[len(at)-1]]
	return int(last.Checkpoints - first.Checkpoints), last.At - first.At
}

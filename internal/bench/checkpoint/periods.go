package checkpoint

import (
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A Period is from the end of one checkpoint to the end of the next.
type Period struct {
	From float64 `json:"from"` // seconds since the writing began
	To   float64 `json:"to"`
	// DirtyBytes are those in the cache before the checkpoint began, and Gathered
	// what they had grown by since the end of the one before.
	DirtyBytes        float64 `json:"dirty_bytes"`
	GatheredBytes     float64 `json:"gathered_bytes"`
	CheckpointSeconds float64 `json:"checkpoint_seconds"`
	// Bytes written: to the files, by checkpoints among them, and to the journal.
	WrittenBytes           float64 `json:"written_bytes"`
	CheckpointWrittenBytes float64 `json:"checkpoint_written_bytes"`
	JournalBytes           float64 `json:"journal_bytes"`
	// P99 of the writes that met the checkpoint and of the others, in seconds; 0 if
	// there were none.
	Inside  float64 `json:"p99_inside_seconds"`
	Outside float64 `json:"p99_outside_seconds"`
	// Met is how many writes met the checkpoint.
	Met int `json:"met"`

	window float64 // when the checkpoint began, at the earliest
}

// Seconds is how long it was.
func (p Period) Seconds() float64 { return p.To - p.From }

// wholeFrom is the share of an interval that a period must last to count: the
// first one begins when the writing does.
const wholeFrom = 0.85

// seenBy is what was seen while a load was written.
type seenBy struct {
	looks      []Look
	operations []operation
	warm       time.Duration // periods that end earlier do not count
}

// periodsOf divides what was seen by its checkpoints, and leaves out periods
// that are not whole or too early.
func periodsOf(s seenBy, interval time.Duration) []Period {
	var periods []Period
	first := 0
	for _, end := range ends(s.looks) {
		p := periodOf(s.looks[first : end+1])
		if p.Seconds() >= wholeFrom*interval.Seconds() && p.To >= s.warm.Seconds() {
			p.latencies(s.operations)
			periods = append(periods, p)
		}
		first = end
	}
	return periods
}

// ends are the looks at which a checkpoint had ended that had not at the one
// before. The server counts a checkpoint already while it runs.
func ends(looks []Look) []int {
	var at []int
	counted := 0.0
	for i, l := range looks {
		if i == 0 {
			counted = l.Checkpoints
		}
		if l.Checkpoints > counted && !l.Running {
			counted = l.Checkpoints
			at = append(at, i)
		}
	}
	return at
}

// periodOf is that of looks of which the last is the first after a checkpoint.
func periodOf(looks []Look) Period {
	from, to := looks[0], looks[len(looks)-1]
	p := Period{
		From: from.At, To: to.At, CheckpointSeconds: to.CheckpointSeconds - from.CheckpointSeconds,
		WrittenBytes: to.WrittenBytes - from.WrittenBytes, CheckpointWrittenBytes: to.CheckpointWrittenBytes - from.CheckpointWrittenBytes,
		JournalBytes: to.JournalBytes - from.JournalBytes,
	}
	before := len(looks) - 2 // the last look before it ended
	p.window = min(looks[before].At, to.At-p.CheckpointSeconds)
	for i := before; i > 0 && looks[i].Running; i-- {
		p.window = min(p.window, looks[i-1].At)
	}
	for _, l := range looks[1:] { // the first may still be that of the checkpoint before
		p.DirtyBytes = max(p.DirtyBytes, l.DirtyBytes)
	}
	p.GatheredBytes = max(0, p.DirtyBytes-from.DirtyBytes)
	return p
}

// latencies divides the writes into those that met the checkpoint and those that
// did not.
func (p *Period) latencies(operations []operation) {
	var in, out bench.Samples
	for _, o := range operations {
		switch {
		case o.due < p.To && o.done > p.window:
			in = append(in, o.done-o.due)
		case o.due >= p.From && o.done <= p.window:
			out = append(out, o.done-o.due)
		}
	}
	p.Inside, p.Outside, p.Met = p99(in), p99(out), len(in)
}

// p99 of writes; 0 of none.
func p99(values bench.Samples) float64 {
	if len(values) == 0 {
		return 0
	}
	return values.Quantile(0.99)
}

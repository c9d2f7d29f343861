package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A Look is what the server's counters said at one moment.
type Look struct {
	At                float64 `json:"at"` // seconds since the writing began
	DirtyBytes        float64 `json:"dirty_bytes"`
	Running           bool    `json:"running"` // a checkpoint
	Checkpoints       float64 `json:"checkpoints"`
	CheckpointSeconds float64 `json:"checkpoint_seconds"` // of all so far
	// Bytes written so far: to the files, by checkpoints among them, and to the
	// journal.
	WrittenBytes           float64 `json:"written_bytes"`
	CheckpointWrittenBytes float64 `json:"checkpoint_written_bytes"`
	JournalBytes           float64 `json:"journal_bytes"`
}

func lookOf(c doctor.Counters, began time.Time) Look {
	return Look{
		At: c.At.Sub(began).Seconds(), DirtyBytes: c.Value("cache_dirty_bytes"), Running: c.Value("checkpoint_running") > 0,
		Checkpoints: c.Value("checkpoints_total"), CheckpointSeconds: c.Value("checkpoint_seconds_total"),
		WrittenBytes: c.Value("block_written_bytes_total"), CheckpointWrittenBytes: c.Value("block_checkpoint_written_bytes_total"),
		JournalBytes: c.Value("journal_written_bytes_total"),
	}
}

// An answer takes half a millisecond. Looks are many in the shortest interval, and
// fewer in long ones, whose checkpoints are long too.
const (
	lookEvery  = 100 * time.Millisecond
	lookRarely = 250 * time.Millisecond
	rarelyFrom = 30 * time.Second
)

// patience is how many intervals may pass without a checkpoint until it is clear
// that the interval is not the one that was set.
const patience = 3

// mostShort is how many checkpoints may come before their time, until that is
// clear too: one does, because the clock of the interval began before the writing.
const mostShort = 8

var errNoCheckpoint = errors.New("no checkpoint came, though several were due")

// A watcher looks at the counters until it has seen enough whole periods.
type watcher struct {
	m        *bench.MongoDB
	interval time.Duration
	periods  int
	warm     time.Duration   // periods that end earlier do not count
	each     func(whole int) // hears of each checkpoint how many periods count
	looks    []Look
}

func (w *watcher) watch(ctx context.Context, began time.Time) error {
	for ended, whole := 0, 0; ; {
		c, err := w.m.Counters(ctx)
		if err != nil {
			return err
		}
		w.looks = append(w.looks, lookOf(c, began))
		at := ends(w.looks)
		if len(at) > ended {
			ended = len(at)
			whole = len(periodsOf(seenBy{looks: w.looks, warm: w.warm}, w.interval))
			w.each(whole)
		}
		last := began
		if ended > 0 {
			last = began.Add(toDuration(w.looks[at[ended-1]].At))
		}
		switch {
		case whole >= w.periods || ended-whole >= mostShort:
			return nil
		case time.Since(last) > patience*w.interval+time.Second:
			return fmt.Errorf("wait for a checkpoint every %v: %w", w.interval, errNoCheckpoint)
		}
		pause := lookEvery
		if w.interval >= rarelyFrom {
			pause = lookRarely
		}
		if err := machine.Pause(ctx, pause); err != nil {
			return err
		}
	}
}

func toDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

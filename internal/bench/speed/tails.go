package speed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// Rows and a column of the table of tails.
const (
	withoutWork = "nothing else"
	withWork    = "checkpoints, sealing and compaction"
	p999Of      = "response p99.9"
)

// A tail is a load of single readings, and the work that the same disk has meanwhile.
type tail struct {
	sensors, windows int           // that are there before
	length           time.Duration // of the load
	checkpoints      time.Duration // between two of them
}

func fullTails() tail {
	return tail{sensors: 2000, windows: 10, length: time.Minute, checkpoints: 15 * time.Second}
}

// rarely is a mongod that writes no checkpoint by itself while something is measured.
func rarely() bench.Setting {
	return bench.Setting{CacheGB: bench.DefaultCache, CheckpointInterval: time.Hour}
}

// tails compares the slowest answers of a load with and without other work. Both daemons
// begin with the same windows.
func (t *trial) tails(ctx context.Context, c tail) {
	sides := []string{withoutWork, withWork}
	for i := range t.lab.Repeats {
		t.onMongoDB(ctx, rarely(), func(m *bench.MongoDB) {
			for n := range sides {
				side := sides[(i+n)%len(sides)]
				t.lab.Step("tails %d of %d: %s, %v", i+1, t.lab.Repeats, side, c.length)
				t.rig(ctx, m, []string{"--bucket-format", "columns", "--granularity", "1m", "--flush-max", "10s", "--seal-after", "0"}, func(ctx context.Context, r *rig) { r.tail(ctx, c, side) })
				bench.Check(m.Drop(ctx))
			}
		})
	}
}

// tail measures the answers of a load.
func (r *rig) tail(ctx context.Context, c tail, side string) {
	const each = 6 // readings of a window
	sensors := strconv.Itoa(c.sensors)
	span := time.Duration(c.windows) * time.Minute
	interval := time.Minute / each
	r.sends(ctx, c.sensors*c.windows*each, "--sensors", sensors, "--sensor-prefix", "before-", "--interval", interval.String(), "--batch", "1000",
		"--duration", (span / 60).String(), "--speedup", "60", "--start", "-2h")
	bench.Check(errors.Join(r.Flush(ctx, storedTimeout), r.m.Checkpoint(ctx)))
	var result *load.Result
	compacted, checkpoints := false, 0
	spent := r.Measure(ctx, r.m, func(ctx context.Context) error {
		stop := func() error { return nil }
		if side == withWork {
			r.beginSealing(ctx)
			stop = bench.Every(ctx, c.checkpoints, func(ctx context.Context) error {
				if compacted {
					checkpoints++
					return r.m.Checkpoint(ctx)
				}
				compacted = true
				if err := machine.Pause(ctx, c.checkpoints/2); err != nil { // in which something is sealed
					return fmt.Errorf("wait before compacting: %w", err)
				}
				return r.m.Compact(ctx, collection)
			})
		}
		result = bench.Must(r.Load(ctx, append(strings.Fields("--interval 1s --batch 1 --connections 64 --ack journaled"),
			"--sensors", sensors, "--sensor-prefix", "meanwhile-", "--duration", c.length.String(), "--start", time.Now().Format(time.RFC3339Nano))...))
		return stop()
	})
	r.lab.Row("tails", side, result.AchievedRate, result.Response.P50, result.Response.P99, result.Response.P999, result.Response.Max,
		sealedParts(spent.After)-sealedParts(spent.Before), float64(checkpoints))
}

func tailsTable() bench.Table {
	return bench.Table{
		Name: "tails", Title: "Single readings at 2,000/s, and what else the same disk has to do", Variant: "meanwhile",
		Measures: append(append(bench.In(bench.PerSecond, rateOf), bench.In(bench.Seconds, "response p50", responseOf, p999Of, "response at most")...),
			bench.In(bench.Count, "parts sealed", "checkpoints")...),
		Note: "Columns, windows of a minute, acknowledged as journaled. 2,000 sensors have windows of ten minutes when the load begins. One daemon is then asked to seal them; the collection is compacted, and " +
			"a checkpoint is written every 15 s. In the other run mongod writes none.",
	}
}

func tailsClaims() []bench.Claim {
	return []bench.Claim{{
		Says: "p99.9 of a journaled answer through checkpoints, sealing and compaction compared with that without", Published: 2, PublishedAs: "<= 2x", Unit: bench.Seconds, Rule: bench.FactorAtMost,
		From: bench.At("tails", withoutWork, p999Of), Of: bench.At("tails", withWork, p999Of),
	}}
}

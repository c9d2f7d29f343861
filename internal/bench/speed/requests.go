package speed

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// Names in the table of requests.
const (
	overHTTP, overGRPC, overTLS = "HTTP", "gRPC stream", "HTTP with TLS"
	responseOf, fsyncOf         = "response p99", "fsync p99"
)

// requestRates are in readings per second; unpaced is more than a daemon can answer.
var (
	requestRates = []int{500, 2000, 8000, unpaced}
	securedRates = []int{2000, unpaced}
)

const unpaced = 100_000

func requestsRow(way string, rate int) string {
	if rate == unpaced {
		return way + ", as fast as answers come"
	}
	return fmt.Sprintf("%s, %d/s", way, rate)
}

func requestsTable() bench.Table {
	return bench.Table{
		Name: "requests", Title: "Requests of a single JSON reading, and gRPC messages of one: open loop, 64 connections, 1,000 sensors, default settings", Variant: "requests",
		Measures: append(bench.In(bench.PerSecond, rateOf), bench.In(bench.Seconds, brimOf, mongodOf, generatorOf, "response p50", responseOf, fsyncOf)...),
		Note: "The daemon with TLS is another one. CPU is per reading, until all are stored, and includes what daemon and mongod use when idle. fsync: of the journal during the load. " +
			"When the generator sends as fast as answers come, response times say nothing, because requests wait for a connection.",
	}
}

// requests sends single readings at several rates: over HTTP and as gRPC stream messages by
// turns on one daemon, and over HTTP to a daemon with TLS.
func (t *trial) requests(ctx context.Context, length time.Duration, rates, secured []int) {
	for i := range t.lab.Repeats {
		each := func(ctx context.Context, r *rig, rates []int, ways ...string) {
			for _, way := range ways {
				for _, rate := range rates {
					t.lab.Step("requests %d of %d: %s, %v", i+1, t.lab.Repeats, requestsRow(way, rate), length)
					r.paced(ctx, way, rate, length)
					r.settle(ctx)
				}
			}
		}
		t.on(ctx, nil, func(ctx context.Context, r *rig) { each(ctx, r, rates, overHTTP, overGRPC) })
		t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) {
			t.measure(ctx, m, t.lab.SecuredDaemon(ctx, m), nil, func(ctx context.Context, r *rig) { each(ctx, r, secured, overTLS) })
		})
	}
}

// paced sends single readings at a rate.
func (r *rig) paced(ctx context.Context, way string, rate int, length time.Duration) {
	flags := strings.Fields(fmt.Sprintf("--sensors 1000 --interval 1s --speedup %g --batch 1 --connections 64 --ack journaled --duration %v", float64(rate)/1000, length))
	if way == overGRPC {
		flags = append(flags, "--target", "grpc://"+r.GRPC, "--http", "http://"+r.HTTP)
	}
	var sent *load.Result
	spent := r.Measure(ctx, r.m, func(ctx context.Context) {
		sent = r.Load(ctx, flags...)
		bench.Check(r.Flush(ctx, storedTimeout))
	})
	const fsyncs = "brim_journal_fsync_seconds"
	fsync := spent.After.Histogram(fsyncs, nil).Since(spent.Before.Histogram(fsyncs, nil))
	n := float64(sent.Acked)
	p50, p99 := sent.Response.P50, sent.Response.P99
	if rate == unpaced {
		p50, p99 = math.NaN(), math.NaN()
	}
	r.lab.Row("requests", requestsRow(way, rate), sent.AchievedRate, spent.Brim/n, spent.CPU/n, spent.Own/n, p50, p99, fsync.Quantile(0.99))
}

// Rows and a column of the table of tails.
const (
	withoutWork = "nothing else"
	withWork    = "checkpoints, sealing and compaction"
	p999Of      = "response p99.9"
)

// A tail is a load of single readings, with other work on the same disk.
type tail struct {
	sensors, windows int           // stored beforehand
	length           time.Duration // of the load
	checkpoints      time.Duration // between two of them
}

func fullTails() tail {
	return tail{sensors: 2000, windows: 10, length: time.Minute, checkpoints: 15 * time.Second}
}

// rarely is a mongod without timed checkpoints during a measurement.
func rarely() bench.Setting {
	return bench.Setting{CacheGB: bench.DefaultCache, CheckpointInterval: time.Hour}
}

// tails compares the slowest answers with and without other work. Both daemons start with the
// same windows.
func (t *trial) tails(ctx context.Context, c tail) {
	sides := []string{withoutWork, withWork}
	for i := range t.lab.Repeats {
		t.onMongoDB(ctx, rarely(), func(m *bench.MongoDB) {
			for n := range sides {
				side := sides[(i+n)%len(sides)]
				t.lab.Step("tails %d of %d: %s, %v", i+1, t.lab.Repeats, side, c.length)
				t.rig(ctx, m, []string{"--bucket-format", "columns", "--granularity", "1m", "--flush-max", "10s", "--seal-after", "0"}, func(ctx context.Context, r *rig) { r.tail(ctx, c, side) })
				m.Drop(ctx)
			}
		})
	}
}

// tail measures the answers under one load.
func (r *rig) tail(ctx context.Context, c tail, side string) {
	const each = 6 // per window
	sensors := strconv.Itoa(c.sensors)
	span := time.Duration(c.windows) * time.Minute
	interval := time.Minute / each
	r.sends(ctx, c.sensors*c.windows*each, "--sensors", sensors, "--sensor-prefix", "before-", "--interval", interval.String(), "--batch", "1000",
		"--duration", (span / 60).String(), "--speedup", "60", "--start", "-2h")
	bench.Check(r.Flush(ctx, storedTimeout))
	r.m.Checkpoint(ctx)
	var result *load.Result
	compacted, checkpoints := false, 0
	spent := r.Measure(ctx, r.m, func(ctx context.Context) {
		stop := func() error { return nil }
		if side == withWork {
			r.beginSealing(ctx)
			stop = bench.Every(ctx, c.checkpoints, func(ctx context.Context) {
				if compacted {
					checkpoints++
					r.m.Checkpoint(ctx)
					return
				}
				compacted = true
				bench.Check(machine.Pause(ctx, c.checkpoints/2)) // lets some sealing happen first
				bench.Check(r.m.Compact(ctx, collection))
			})
		}
		result = r.Load(ctx, append(strings.Fields("--interval 1s --batch 1 --connections 64 --ack journaled"),
			"--sensors", sensors, "--sensor-prefix", "meanwhile-", "--duration", c.length.String(), "--start", time.Now().Format(time.RFC3339Nano))...)
		bench.Check(stop())
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

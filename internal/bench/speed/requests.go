package speed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
)

// Names in the table of requests.
const (
	overHTTP, overGRPC, overTLS = "HTTP", "gRPC stream", "HTTP with TLS"
	responseOf, fsyncOf         = "response p99", "fsync p99"
)

// requestRates are readings per second; unpaced stands for more than a daemon can answer.
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

func requestsClaims() []bench.Claim {
	atMost := func(rate int, most float64) bench.Claim {
		return bench.Claim{
			Says:      fmt.Sprintf("Brim's CPU for a request of one JSON reading, until stored, at %d/s", rate),
			Published: most, PublishedAs: fmt.Sprintf("<= %.0f µs", most*1e6), Unit: bench.Seconds, Rule: bench.AtMost, Of: bench.At("requests", requestsRow(overHTTP, rate), brimOf),
		}
	}
	return []bench.Claim{
		atMost(500, 120e-6), atMost(2000, 80e-6), atMost(8000, 50e-6),
		{
			Says: "single readings as messages of a gRPC stream compared with HTTP requests", Published: 1.5, PublishedAs: ">= 1.5x", Unit: bench.PerSecond, Rule: bench.FactorAtLeast,
			From: bench.At("requests", requestsRow(overHTTP, unpaced), rateOf), Of: bench.At("requests", requestsRow(overGRPC, unpaced), rateOf),
		},
		{
			Says: "single readings over HTTP with TLS compared with those without", Published: 0.8, PublishedAs: ">= 0.8x", Unit: bench.PerSecond, Rule: bench.FactorAtLeast,
			From: bench.At("requests", requestsRow(overHTTP, unpaced), rateOf), Of: bench.At("requests", requestsRow(overTLS, unpaced), rateOf),
		},
		{
			Says: "p99 of a journaled answer at 2,000 requests/s compared with the p99 of an fsync of the journal", Published: 4, PublishedAs: "<= 4x", Unit: bench.Seconds, Rule: bench.FactorAtMost,
			From: bench.At("requests", requestsRow(overHTTP, 2000), fsyncOf), Of: bench.At("requests", requestsRow(overHTTP, 2000), responseOf),
		},
	}
}

// requests sends single readings at several rates, over HTTP and as messages of a gRPC
// stream, which take turns on the same daemon; and over HTTP to a daemon with TLS.
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
			t.measure(ctx, m, bench.Must(t.lab.SecuredDaemon(ctx, m)), nil, func(ctx context.Context, r *rig) { each(ctx, r, secured, overTLS) })
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
	spent := r.Measure(ctx, r.m, func(ctx context.Context) (err error) {
		sent, err = r.Load(ctx, flags...)
		return errors.Join(err, r.Flush(ctx, storedTimeout))
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

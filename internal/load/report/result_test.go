package report

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

// aResult is a run like the one in the README: 167 sensors, a window per minute, a stall in the
// middle.
func aResult() *load.Result {
	began := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	r := &load.Result{
		Version: "1.2.3", Began: began, Seconds: 60.02, OfferedRate: 2004, AchievedRate: 2003.3,
		Setup: load.Setup{
			Target: "http://127.0.0.1:8430", Stream: "readings", Storage: "bucket", GranularitySeconds: 3600, Protocol: "http", Ack: "stored",
			Sensors: 167, IntervalSeconds: 5, Speedup: 60, Batch: 1, Fields: 4, DurationSeconds: 60, Connections: 64, MaxInFlight: 10_000, Seed: 1,
			EventStart: began.Add(-time.Hour), EventEnd: began,
		},
		Sent: 120_240, Acked: 120_198, Rejected: 42, Requests: 120_240,
		Response: load.Quantiles{Mean: 0.00213, P50: 0.00176, P90: 0.00301, P99: 0.0072, P999: 0.0621, Max: 0.1043},
		Service:  load.Quantiles{Mean: 0.00171, P50: 0.00155, P90: 0.00241, P99: 0.0043, P999: 0.0101, Max: 0.1031},
	}
	for i := range 10 {
		from := float64(i) / 10
		r.ByFill = append(r.ByFill, load.FillRow{From: from, To: from + 0.1, Count: 12_024, P50: 0.0012 + 0.00011*float64(i), P99: 0.003 + 0.0006*float64(i)})
		r.StoreByFill = append(r.StoreByFill, load.FillRow{From: from, To: from + 0.1, Count: 1_670 + int64(i), P50: 0.0009 + 0.0001*float64(i), P99: 0.002 + 0.0005*float64(i)})
	}
	for i := range 60 {
		each := load.Interval{Second: float64(i + 1), Offered: 2004, Achieved: 2004 + 15*math.Sin(float64(i)), P50: 0.0012 + 0.00002*float64(i), P99: 0.003 + 0.0001*float64(i) + 0.001*math.Sin(float64(i*i)), InFlight: 3 + i%4, Fill: float64(i+1) / 60}
		if i == 30 {
			each.P99, each.Achieved, each.InFlight = 0.1, 1790, 210
		}
		r.Intervals = append(r.Intervals, each)
	}
	for i := range 60 {
		percent := 100 - 100*math.Pow(0.83, float64(i))
		if i == 59 {
			percent = 100
		}
		counted := int64(120_240 * percent / 100)
		slow := 0.0011 * math.Pow(1.08, float64(i))
		r.Curve = append(r.Curve, load.Percentile{Percent: percent, Seconds: slow, Count: counted})
		r.ServiceCurve = append(r.ServiceCurve, load.Percentile{Percent: percent, Seconds: slow * (1 - 0.006*float64(i)), Count: counted})
	}
	return r
}

// anOverload is a run that overloaded the daemon.
func anOverload() *load.Result {
	r := aResult()
	r.OfferedRate, r.AchievedRate = 20_040, 11_000
	r.DrainSeconds = 1.5
	r.Dropped, r.Failed, r.Acked = 400_000, 30_000, 90_198
	r.Strict = &load.Quantiles{} // four of five were not accepted
	r.Failures = map[string]int64{"503": 29_000, "timeout": 999, "connection": 1}
	r.FirstErrors = []string{"the answer is 503: journal_full: the journal is full\nand more", "wait for the answer: i/o timeout after 30s", "connect: refused", "a fourth"}
	return r
}

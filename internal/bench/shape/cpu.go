package shape

import "github.com/brim-telemetry/brim/internal/doctor"

// CPU returns the seconds of processor time that the server used between two
// looks, to the microsecond.
func CPU(before, after doctor.Counters) float64 {
	return after.Since(before, "cpu_seconds_total user") + after.Since(before, "cpu_seconds_total system")
}

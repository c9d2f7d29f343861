package granularity

import (
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// A rewrite is plain arithmetic: every append makes a new version of the whole
// document, which holds on average half of what it holds in the end.
type rewrite struct {
	Granularity string  `json:"granularity"`
	PerUpdate   int     `json:"per_update"`
	Appends     int     `json:"appends"`       // a bucket
	Bucket      float64 `json:"bucket_bytes"`  // over its life
	Reading     float64 `json:"reading_bytes"` // for each reading
	Day         float64 `json:"bytes_a_day"`   // of the workload
}

// rewriteOf is for a granularity, and for appends of so many readings or of all
// that a window has.
func rewriteOf(s *size, perUpdate int) rewrite {
	k := min(perUpdate, s.Readings)
	appends := (s.Readings + k - 1) / k
	r := rewrite{Granularity: s.Granularity, PerUpdate: k, Appends: appends}
	r.Bucket = float64(appends+1) / 2 * s.DocumentBytes
	r.Reading = r.Bucket / float64(s.Readings)
	r.Day = r.Bucket * s.DocumentsADay
	return r
}

// A burden is what the published workload keeps busy.
type burden struct {
	Granularity string  `json:"granularity"`
	PerUpdate   int     `json:"per_update"`
	Updates     float64 `json:"updates_per_second"`
	Held        float64 `json:"mean_held"` // readings in a bucket before an append, over its life
	Cores       float64 `json:"mongod_cores"`
}

// burdenOf is for a granularity, by the line of the curve.
func burdenOf(g time.Duration, c *curve) (b burden, ok bool) {
	if c.CPU == nil || c.PerUpdate > inWindow(g) {
		return b, false
	}
	b = burden{Granularity: config.FormatDuration(g), PerUpdate: c.PerUpdate}
	b.Updates = publishedSensors / publishedInterval.Seconds() / float64(c.PerUpdate)
	b.Held = float64(inWindow(g)-c.PerUpdate) / 2
	b.Cores = b.Updates * c.CPU.At(b.Held)
	return b, true
}

// merges are the readings an append that the arithmetic is done for.
var merges = [...]int{1, 5, 12, 60, 720}

// conclude computes what follows from what was measured.
func (f *found) conclude() {
	for _, s := range f.Sizes {
		for _, k := range merges {
			if k <= s.Readings {
				f.Rewritten = append(f.Rewritten, rewriteOf(s, k))
			}
		}
	}
	for _, g := range granularities {
		for _, c := range f.Curves {
			if c.Topology != f.Topology {
				continue
			}
			if b, ok := burdenOf(g, c); ok {
				f.Workload = append(f.Workload, b)
			}
		}
	}
}

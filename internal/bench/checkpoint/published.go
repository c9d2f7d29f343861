package checkpoint

import (
	"fmt"
	"math"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A figure is what was published about each interval.
type figure struct {
	unit   bench.Unit
	values [len(publishedSeconds)]float64
}

// publishedSeconds are the published intervals.
var publishedSeconds = [...]float64{30, 60, 120, 300}

// What was published.
func publishedDirty() figure {
	return figure{bench.Bytes, [...]float64{40e6, 80e6, 160e6, 400e6}}
}

func publishedDuration() figure {
	return figure{bench.Seconds, [...]float64{0.8, 1.8, 3.5, 8.2}}
}

func publishedP99() figure {
	return figure{bench.Seconds, [...]float64{0.045, 0.085, 0.150, 0.280}}
}

const (
	publishedCommit      = 0.1   // s
	publishedJournalFile = 100e6 // bytes
)

// factor is the published one between two intervals of which the second is so
// many times as long, and how it was published. Where no two are, it follows
// the growth from the first to the last.
func (f figure) factor(ratio float64) (factor float64, as string) {
	last := len(f.values) - 1
	for from := range f.values {
		for to := from + 1; to <= last; to++ {
			if math.Abs(publishedSeconds[to]/publishedSeconds[from]-ratio) < 1e-9 {
				return f.values[to] / f.values[from], f.between(from, to)
			}
		}
	}
	exponent := math.Log(f.values[last]/f.values[0]) / math.Log(publishedSeconds[last]/publishedSeconds[0])
	factor = math.Pow(ratio, exponent)
	return factor, fmt.Sprintf("%s, which makes %s for an interval of %s", f.between(0, last), bench.Times.Format(factor), bench.Times.Format(ratio))
}

func (f figure) between(from, to int) string {
	return fmt.Sprintf("%s → %s for %.0f → %.0f s",
		f.unit.Format(f.values[from]), f.unit.Format(f.values[to]), publishedSeconds[from], publishedSeconds[to])
}

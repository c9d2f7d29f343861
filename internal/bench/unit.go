package bench

import (
	"fmt"
	"math"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/chart"
)

// A Unit is what a figure is measured in.
type Unit string

// The units. Times are factors.
const (
	Seconds   Unit = "s"
	PerSecond Unit = "/s"
	Bytes     Unit = "bytes"
	Share     Unit = "ratio" // 1 is 100 %
	Count     Unit = ""
	Times     Unit = "x"
)

// Format tells a figure as people read it, with three digits: 1.25 ms, 4.20x.
func (u Unit) Format(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	switch u {
	case Seconds:
		return chart.Format(chart.Seconds, v)
	case PerSecond:
		return chart.Format(chart.PerSecond, v)
	case Bytes:
		return bytes(v)
	case Share:
		return chart.Format(chart.Ratio, v)
	case Times:
		return strconv.FormatFloat(v, 'f', decimals(v), 64) + "x"
	}
	return chart.Format(chart.Count, v)
}

// bytes are in powers of ten, as in what was published.
func bytes(v float64) string {
	if v == 0 {
		return "0 B"
	}
	if math.Abs(v) < 1000 {
		return strconv.FormatFloat(v, 'f', decimals(v), 64) + " B"
	}
	value, prefix := humanize.ComputeSI(v)
	if prefix == "k" {
		prefix = "K"
	}
	return fmt.Sprintf("%s %sB", strconv.FormatFloat(value, 'f', decimals(value), 64), prefix)
}

// decimals leaves three digits.
func decimals(v float64) int {
	switch v = math.Abs(v); {
	case v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 2
}

// Spread tells samples: the median, and the range if there are several.
func (u Unit) Spread(s Samples) string {
	if len(s) < 2 {
		return u.Format(s.Median())
	}
	return fmt.Sprintf("%s (%s to %s)", u.Format(s.Median()), u.Format(s.Min()), u.Format(s.Max()))
}

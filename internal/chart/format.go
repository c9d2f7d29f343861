package chart

import (
	"math"
	"strconv"

	"github.com/dustin/go-humanize"
)

// A Unit is what a value is measured in. chart.js has the same units.
type Unit int

// The units.
const (
	Seconds   Unit = iota
	PerSecond      // of readings, requests, …
	Ratio          // 1 is 100 %
	Bytes          // in powers of two
	Count
	DecimalBytes // in powers of ten, as published sizes
)

// MarshalText returns chart.js's name of the unit.
func (u Unit) MarshalText() ([]byte, error) {
	return []byte([...]string{"seconds", "perSecond", "ratio", "bytes", "count", "decimalBytes"}[u]), nil
}

// A scale is a readable multiple of a unit.
type scale struct {
	from   float64 // smallest value written in it
	factor float64
	suffix string
}

// scales are the multiples of each unit, largest first.
var scales = [...][]scale{
	Seconds: {
		{2 * 86400, 86400, " d"}, {2 * 3600, 3600, " h"}, {120, 60, " min"}, {1, 1, " s"}, {1e-3, 1e-3, " ms"}, {0, 1e-6, " µs"},
	},
	PerSecond: {{1e9, 1e9, "G/s"}, {1e6, 1e6, "M/s"}, {1e4, 1e3, "k/s"}, {0, 1, "/s"}},
	Ratio:     {{0, 0.01, " %"}},
	Bytes: {
		{1 << 40, 1 << 40, " TiB"}, {1 << 30, 1 << 30, " GiB"}, {1 << 20, 1 << 20, " MiB"}, {1 << 10, 1 << 10, " KiB"}, {0, 1, " B"},
	},
	Count:        {{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}},
	DecimalBytes: {{1e12, 1e12, " TB"}, {1e9, 1e9, " GB"}, {1e6, 1e6, " MB"}, {1e3, 1e3, " KB"}, {0, 1, " B"}},
}

// scaleOf returns the scale for v.
func (u Unit) scaleOf(v float64) scale {
	if v == 0 && u == Seconds {
		return scale{factor: 1, suffix: " s"}
	}
	of := scales[u]
	for _, s := range of {
		if math.Abs(v) >= s.from {
			return s
		}
	}
	return of[len(of)-1]
}

// Format formats v for people, with three digits: "1.25 ms", "850 µs", "12.3k/s", "45 %", "1.2
// GiB"; a dash if it is unknown.
func Format(u Unit, v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	// 999.9 µs become 1 ms after rounding; 1 GiB stays 1 GiB although three digits of its bytes
	// are less.
	s := u.scaleOf(max(math.Abs(v), math.Abs(threeDigits(v))))
	return number(threeDigits(v/s.factor)) + s.suffix
}

// threeDigits rounds to three digits, and above 100 to a whole number.
func threeDigits(v float64) float64 {
	if v == 0 {
		return 0
	}
	digits := 2 - math.Floor(math.Log10(math.Abs(v)))
	if digits < 0 && math.Abs(v) < 1e4 {
		digits = 0
	}
	unit := math.Pow(10, math.Abs(digits))
	if digits < 0 {
		return math.Round(v/unit) * unit
	}
	return math.Round(v*unit) / unit
}

// number writes v without needless zeros, and with commas from 1,000 on.
func number(v float64) string {
	if math.Abs(v) >= 1e15 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return humanize.Commaf(v)
}

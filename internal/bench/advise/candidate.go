package advise

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
)

// A Candidate is a way to store, with what can be chosen of it.
type Candidate struct {
	Storage     store.Storage    `json:"storage"`
	Granularity time.Duration    `json:"granularity_ns"`
	MaxReadings int              `json:"bucket_max_readings"` // in a part; 0 of a time series
	MaxBytes    int              `json:"bucket_max_bytes"`
	Compressor  store.Compressor `json:"compressor"`
}

// Caps of a part.
const (
	defaultReadings = 1000
	manyReadings    = 4000
	mostReadings    = 40_000 // of a part that is tried: one that takes a minute at 660 readings a second
	defaultBytes    = 256 << 10
	mostBytes       = 2 << 20
)

// granularities that are tried.
var granularities = [...]time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

var compressors = [...]store.Compressor{store.Snappy, store.Zstd}

// String names the candidate in tables.
func (c Candidate) String() string {
	if c.Storage == store.TimeSeries {
		return "time series, " + string(c.Compressor)
	}
	text := fmt.Sprintf("bucket %s, %s", Span(c.Granularity), c.Compressor)
	if c.MaxReadings != defaultReadings {
		text += fmt.Sprintf(", parts of %d", c.MaxReadings)
	}
	return text
}

// may reports whether the needs allow it.
func (c Candidate) may(n Needs) bool { return c.Storage == store.Bucket || n.Duplicates == Rare }

// shape is the candidate whatever its compressor.
func (c Candidate) shape() Candidate {
	c.Compressor = ""
	return c
}

// readingBytes is about what a reading counts for in a part's bytes: its element
// in the array with the time, and a double with a short name for each field.
func readingBytes(fields int) int { return 30 + 14*fields }

// perWindow is how many readings of a sensor are in a window.
func perWindow(granularity, interval time.Duration) int {
	return int(max(1, math.Ceil(float64(granularity)/float64(interval))))
}

// candidates lists what is to be considered. Where windows hold more than a part
// may, longer windows make no other documents, so the shortest stands for them;
// there, other caps are tried instead.
func candidates(n Needs, quick bool) []Candidate {
	var out []Candidate
	add := func(c Candidate) {
		for _, compressor := range compressors {
			c.Compressor = compressor
			out = append(out, c)
		}
	}
	var seen []int // readings of a full document
	for i, g := range granularities {
		if quick && i%2 == 1 {
			continue
		}
		for _, most := range caps(perWindow(g, n.Interval), n.Fields) {
			if document := min(most, perWindow(g, n.Interval)); !slices.Contains(seen, document) {
				seen = append(seen, document)
				add(Candidate{Storage: store.Bucket, Granularity: g, MaxReadings: most, MaxBytes: capBytes(document, n.Fields)})
			}
		}
	}
	// Servers that let the span be chosen get the longest, others know no other.
	add(Candidate{Storage: store.TimeSeries, Granularity: store.MaxGranularity})
	return out
}

// caps are those to be tried for windows of so many readings.
func caps(window, fields int) []int {
	most := min(mostReadings, mostBytes/readingBytes(fields))
	out := []int{min(defaultReadings, most)}
	for _, further := range []int{manyReadings, window} {
		if window >= further && further > out[len(out)-1] && further <= most {
			out = append(out, further)
		}
	}
	return out
}

// capBytes is the cap of bytes that leaves room for so many readings: the
// default where that does.
func capBytes(readings, fields int) int {
	for size := defaultBytes; size < mostBytes; size *= 2 {
		if readings*readingBytes(fields) <= size {
			return size
		}
	}
	return mostBytes
}

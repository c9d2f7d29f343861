package timeseries

import (
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Data is what was measured. Times are seconds, of each repeat.
type Data struct {
	Shapes      []ShapeData      `json:"shapes"`
	Late        []LateData       `json:"late,omitempty"`
	Compressors []CompressorData `json:"compressors,omitempty"`
	// SortLimit is the memory that a sort was given, in bytes.
	SortLimit int `json:"sort_limit_bytes,omitempty"`
}

// ShapeData is what was measured of a shape.
type ShapeData struct {
	Shape   string        `json:"shape"`
	Load    bench.Samples `json:"load_seconds,omitempty"`
	Updates int           `json:"updates,omitempty"` // of the load
	Size    shape.Size    `json:"size"`              // after the last load
	Data    bench.Samples `json:"data_bytes,omitempty"`
	Index   bench.Samples `json:"index_bytes,omitempty"`
	Total   bench.Samples `json:"total_bytes,omitempty"`
	Finds   bench.Samples `json:"finds_seconds,omitempty"` // all of a run
	Means   Means         `json:"means"`                   // of buckets: by unwinding them
	// StatsMeans are those made of buckets' statistics.
	StatsMeans Means      `json:"means_by_stats"`
	Sorts      []SortData `json:"sorts,omitempty"`
}

// Means are the seconds that queries took, one after another: a tenth of them,
// half of them, and all.
type Means struct {
	Tenth bench.Samples `json:"tenth,omitempty"`
	Half  bench.Samples `json:"half,omitempty"`
	All   bench.Samples `json:"all,omitempty"`
}

// note takes the time after i of n queries.
func (m *Means) note(i, n int, seconds float64) {
	switch i {
	case n / 10:
		m.Tenth = append(m.Tenth, seconds)
	case n / 2:
		m.Half = append(m.Half, seconds)
	case n:
		m.All = append(m.All, seconds)
	}
}

// SortData is how a sort of everything went.
type SortData struct {
	Disk    bool    `json:"allow_disk_use"`
	Failed  bool    `json:"failed_for_memory"`
	Seconds float64 `json:"seconds"`
}

// LateData is what late readings do to a shape.
type LateData struct {
	Shape   string     `json:"shape"`
	Share   float64    `json:"late_share"`
	Updates int        `json:"updates"` // or inserted readings
	Size    shape.Size `json:"size"`
}

// CompressorData is the size of a shape with a compressor.
type CompressorData struct {
	Shape      string           `json:"shape"`
	Compressor store.Compressor `json:"compressor"`
	Size       shape.Size       `json:"size"`
}

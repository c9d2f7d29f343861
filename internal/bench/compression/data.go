package compression

import (
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Data is what was measured. Times are seconds; samples have one for each
// repeat.
type Data struct {
	Sizes  []SizeData  `json:"sizes,omitempty"`
	Reads  []ReadData  `json:"reads,omitempty"`
	Writes []WriteData `json:"writes,omitempty"`
	// Checkpoints are by compressor.
	Checkpoints []CheckpointData `json:"checkpoints,omitempty"`
}

// SizeData is the size of a shape.
type SizeData struct {
	Shape      string           `json:"shape"`
	Values     Values           `json:"values"`
	Compressor store.Compressor `json:"compressor"`
	Size       shape.Size       `json:"size"`
	at, by     int              // places of the shape and of the compressor
}

// ReadData is how long a read took.
type ReadData struct {
	Shape      string           `json:"shape"`
	Compressor store.Compressor `json:"compressor"`
	WarmP50    bench.Samples    `json:"warm_p50_seconds"`
	WarmP99    bench.Samples    `json:"warm_p99_seconds"`
	ColdP50    bench.Samples    `json:"cold_p50_seconds,omitempty"`
	ColdP99    bench.Samples    `json:"cold_p99_seconds,omitempty"`
	// ColdBytes are those that the server read from its files, for each read.
	ColdBytes bench.Samples `json:"cold_bytes,omitempty"`
	at, by    int
}

// WriteData is what writes at a fixed rate took.
type WriteData struct {
	Shape      string           `json:"shape"`
	Compressor store.Compressor `json:"compressor"`
	P50        bench.Samples    `json:"p50_seconds"`
	P99        bench.Samples    `json:"p99_seconds"`
	Rate       bench.Samples    `json:"readings_per_second"` // achieved
	// CPU is the server's for each reading, its last checkpoint included; Blocks and
	// Journal the bytes that it wrote for each, to its files and to its journal.
	CPU     bench.Samples `json:"cpu_seconds_per_reading"`
	Blocks  bench.Samples `json:"block_bytes_per_reading"`
	Journal bench.Samples `json:"journal_bytes_per_reading"`
	at, by  int
}

// CheckpointData is what checkpoints took, all of them, that wrote readings, a
// document each.
type CheckpointData struct {
	Compressor store.Compressor `json:"compressor"`
	Count      int              `json:"checkpoints"`
	Readings   int              `json:"readings"`
	Seconds    bench.Samples    `json:"seconds"`
	CPU        bench.Samples    `json:"cpu_seconds"`
	Bytes      bench.Samples    `json:"bytes_written"`
}

// size returns one; nil if it was not measured.
func (d *Data) size(at, by int, values Values) *SizeData {
	for i := range d.Sizes {
		if s := &d.Sizes[i]; s.at == at && s.by == by && s.Values == values {
			return s
		}
	}
	return nil
}

// read returns one; nil if it was not measured.
func (d *Data) read(at, by int) *ReadData {
	for i := range d.Reads {
		if s := &d.Reads[i]; s.at == at && s.by == by {
			return s
		}
	}
	return nil
}

// write returns one; nil if it was not measured.
func (d *Data) write(at, by int) *WriteData {
	for i := range d.Writes {
		if s := &d.Writes[i]; s.at == at && s.by == by {
			return s
		}
	}
	return nil
}

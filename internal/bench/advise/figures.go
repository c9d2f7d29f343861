package advise

import (
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
)

// Figures are all that was measured, on one machine and of one user's readings.
type Figures struct {
	Updates  []Update  `json:"updates"`
	Command  CPU       `json:"command"` // of one, beside its updates
	Rewrites []Rewrite `json:"rewrites"`
	Sizes    []Sized   `json:"sizes"`
	// Door is what a reading costs in Brim before it is written: to take it in and
	// to journal it; seconds of a processor.
	Door float64 `json:"door_seconds"`
}

// tellMongod reports whether the processor time of mongod was to be seen.
func (f *Figures) tellMongod() bool {
	return slices.ContainsFunc(f.Updates, func(u Update) bool { return u.CPU.Mongod > 0 })
}

// CPU is processor time, in seconds.
type CPU struct {
	Mongod float64 `json:"mongod"`
	Brim   float64 `json:"brim"`
}

// Total is that of both.
func (c CPU) Total() float64 { return c.Mongod + c.Brim }

func (c CPU) plus(d CPU) CPU { return CPU{c.Mongod + d.Mongod, c.Brim + d.Brim} }

func (c CPU) times(n float64) CPU { return CPU{c.Mongod * n, c.Brim * n} }

// An Update is what it costs to add readings to a document that has some
// already, in commands of many updates.
type Update struct {
	Storage   store.Storage `json:"storage"`
	Resident  float64       `json:"resident"` // readings in the document, on average
	PerUpdate int           `json:"per_update"`
	CPU       CPU           `json:"cpu_seconds"` // of one update
	Seconds   float64       `json:"seconds"`     // by the clock, of one writer
}

// A Rewrite is what it costs that a checkpoint writes a document to which
// something was added.
type Rewrite struct {
	Storage    store.Storage    `json:"storage"`
	Compressor store.Compressor `json:"compressor"`
	Resident   float64          `json:"resident"` // readings in the document
	Bytes      float64          `json:"bytes"`    // written, of one document
	Mongod     float64          `json:"mongod_seconds"`
}

// Sized is what readings take in one way to store them.
type Sized struct {
	Candidate

	Readings  int   `json:"readings"`
	Documents int64 `json:"documents"`
	// Data and Index are bytes of the files after a checkpoint, without what is
	// free in them.
	Data  int64   `json:"data_bytes"`
	Index int64   `json:"index_bytes"`
	Query Queried `json:"query"`
}

// perDocument is the readings of a document.
func (s Sized) perDocument() float64 { return float64(s.Readings) / float64(s.Documents) }

// Queried is what a query costs that reads a span of one sensor, as the daemon
// reads it.
type Queried struct {
	Span      time.Duration `json:"span_ns"`   // that could be measured
	Documents float64       `json:"documents"` // that were looked at
	Seconds   float64       `json:"seconds"`   // by the clock, median
	CPU       CPU           `json:"cpu_seconds"`
}

// update returns what an update costs, between and beyond what was measured: a
// line through the documents' sizes for the fewest readings an update and one for
// the most, and a line between these two.
func (f *Figures) update(of store.Storage, resident, perUpdate float64) (CPU, float64) {
	few, many := 0, 0
	for _, u := range f.Updates {
		if u.Storage == of {
			if few == 0 || u.PerUpdate < few {
				few = u.PerUpdate
			}
			many = max(many, u.PerUpdate)
		}
	}
	at := func(k int, y func(Update) float64) float64 {
		var points line
		for _, u := range f.Updates {
			if u.Storage == of && u.PerUpdate == k {
				points.add(u.Resident, y(u))
			}
		}
		return points.at(resident)
	}
	between := func(y func(Update) float64) float64 {
		low := at(few, y)
		if many == few {
			return low
		}
		each := max(0, (at(many, y)-low)/float64(many-few))
		return low + each*(perUpdate-float64(few))
	}
	return CPU{
		Mongod: between(func(u Update) float64 { return u.CPU.Mongod }),
		Brim:   between(func(u Update) float64 { return u.CPU.Brim }),
	}, between(func(u Update) float64 { return u.Seconds })
}

// rewrite returns what a checkpoint's writing of a document costs.
func (f *Figures) rewrite(c Candidate, resident float64) (bytes, mongod float64) {
	var size, cpu line
	for _, r := range f.Rewrites {
		if r.Storage == c.Storage && r.Compressor == c.Compressor {
			size.add(r.Resident, r.Bytes)
			cpu.add(r.Resident, r.Mongod)
		}
	}
	return size.at(resident), cpu.at(resident)
}

package bench

import (
	"fmt"
	"html/template"
	"math"
	"time"
)

// A Result is what came of an experiment. Its fields are those of the JSON.
type Result struct {
	Experiment  string      `json:"experiment"`
	Question    string      `json:"question"`
	Environment Environment `json:"environment"`
	Quick       bool        `json:"quick"`
	Repeats     int         `json:"repeats"`
	Seed        uint64      `json:"seed"`
	TookSeconds float64     `json:"took_seconds"`
	Interrupted bool        `json:"interrupted,omitempty"`
	// Error is why it could not go on; empty if it came to its end or was
	// interrupted.
	Error string `json:"error,omitempty"`
	// Pinned is what was held fast while other things varied, in words.
	Pinned []string `json:"pinned"`
	// Reduced is what a quick run makes smaller, in words.
	Reduced []string  `json:"reduced,omitempty"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	Rows    []Row     `json:"rows"`
	Tables  []Table   `json:"tables"`
	// Notes say in plain words what was found: what differs from what was
	// published and why, and what follows for whoever has to choose.
	Notes []string `json:"notes"`
	// Data is all that was measured, in a form of the experiment's own.
	Data  any    `json:"data,omitempty"`
	Plots []Plot `json:"-"`
}

// A Row holds a published figure against the measured one.
type Row struct {
	Claim       string  `json:"claim"`
	Unit        Unit    `json:"unit"`
	Published   float64 `json:"published"`
	PublishedAs string  `json:"published_as"`
	Measured    float64 `json:"measured"` // median
	Min         float64 `json:"measured_min"`
	Max         float64 `json:"measured_max"`
	MeasuredAs  string  `json:"measured_as"`
	Verdict     Verdict `json:"verdict"`
	Why         string  `json:"why"` // one sentence
}

// LeftOut is something that was not measured.
type LeftOut struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// A Table shows what was measured, as text.
type Table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
	Notes []string   `json:"notes,omitempty"`
}

// A Plot is a drawing of the report.
type Plot struct {
	Drawing Drawing
	Caption string // what one sees in it
}

// A Drawing is one of internal/chart.
type Drawing interface {
	SVG() (template.HTML, error)
}

// Add appends rows. A row without figures is told as left out.
func (r *Result) Add(rows ...Row) {
	for _, row := range rows {
		if math.IsNaN(row.Measured) {
			r.LeaveOut(row.Claim, row.Why)
			continue
		}
		r.Rows = append(r.Rows, row)
	}
}

// LeaveOut says what was not measured, and why.
func (r *Result) LeaveOut(what, why string) { r.LeftOut = append(r.LeftOut, LeftOut{what, why}) }

// Measured reports whether there is anything to show.
func (r *Result) Measured() bool { return len(r.Rows)+len(r.Tables) > 0 }

// Pin says what was held fast.
func (r *Result) Pin(format string, args ...any) {
	r.Pinned = append(r.Pinned, fmt.Sprintf(format, args...))
}

// Reduce says what is smaller than in a full run.
func (r *Result) Reduce(format string, args ...any) {
	r.Reduced = append(r.Reduced, fmt.Sprintf(format, args...))
}

// Note says what was found.
func (r *Result) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Plot adds a drawing.
func (r *Result) Plot(d Drawing, caption string) { r.Plots = append(r.Plots, Plot{d, caption}) }

// An Environment is where and with what something was measured. What is not
// known is empty.
type Environment struct {
	Time       time.Time `json:"time"` // when it began
	Cores      int       `json:"cores"`
	Processor  string    `json:"processor"`
	MemoryMiB  int64     `json:"memory_mib"`
	FileSystem string    `json:"file_system"` // of the data; empty with a user's MongoDB
	Disk       string    `json:"disk"`        // its kind: nvme, ssd, hdd
	System     string    `json:"system"`
	Brim       string    `json:"brim"`
	Driver     string    `json:"driver"`
	Mongod     string    `json:"mongod"`     // version
	Topologies []string  `json:"topologies"` // standalone, replica_set, sharded
	Compressor []string  `json:"compressors"`
	CacheMiB   []int64   `json:"cache_mib"`
	// Database is the scratch database in a user's MongoDB; empty: mongods of the
	// experiment's own.
	Database string `json:"database,omitempty"`
}

package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Result is what an experiment measured; its fields are the JSON.
type Result struct {
	Experiment  string      `json:"experiment"`
	Question    string      `json:"question"`
	Answer      string      `json:"answer,omitempty"`
	Environment Environment `json:"environment"`
	Quick       bool        `json:"quick"`
	Repeats     int         `json:"repeats"`
	Seed        uint64      `json:"seed"`
	TookSeconds float64     `json:"took_seconds"`
	Interrupted bool        `json:"interrupted,omitempty"`
	Error       string      `json:"error,omitempty"`   // why it failed
	Pinned      []string    `json:"pinned"`            // what was held constant
	Reduced     []string    `json:"reduced,omitempty"` // what a quick run scales down
	LeftOut     []LeftOut   `json:"left_out,omitempty"`
	Rows        []Row       `json:"rows"`
	Tables      []*Table    `json:"tables"`
}

// A Row compares a published figure with the measured one.
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

// A Table holds measurements: variants in rows, measures in columns, repeats as samples in
// cells.
type Table struct {
	Name     string     `json:"name"` // how claims refer to it
	Title    string     `json:"title"`
	Variant  string     `json:"variant"` // what a row stands for
	Measures []Measure  `json:"measures"`
	Rows     []*Variant `json:"rows"`
	Note     string     `json:"note,omitempty"`

	Unit  Unit   `json:"-"` // of undeclared measures
	Plots []Plot `json:"-"`
	// Hidden tables are plotted and in the JSON, but too long for text.
	Hidden bool `json:"-"`
}

// A Measure is one column of a table.
type Measure struct {
	Name string `json:"name"`
	Unit Unit   `json:"unit"`
}

// A Variant is one row of a table.
type Variant struct {
	Name    string    `json:"variant"`
	Samples []Samples `json:"samples"` // in the order of Table.Measures
}

// A Plot draws measures of a table: as bars, or as lines over the variants.
type Plot struct {
	Title    string
	Caption  string
	Bars     bool
	Measures []string // empty: all
	LogX     bool     // for lines over numeric variants
	LogY     bool
}

// A Figure names a cell of a table.
type Figure struct{ Table, Variant, Measure string }

// At names a cell of a table.
func At(table, variant, measure string) Figure { return Figure{table, variant, measure} }

// In returns measures with a common unit.
func In(unit Unit, names ...string) (all []Measure) {
	for _, name := range names {
		all = append(all, Measure{name, unit})
	}
	return all
}

// Flag returns 1 for true and 0 for false, for use in tables.
func Flag(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// Table returns the named table; nil if it was not declared.
func (r *Result) Table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Add appends samples to a cell, adding the row and column if missing. It drops NaN, which
// stands for what a server does not report.
func (t *Table) Add(variant, measure string, values ...float64) {
	column := slices.IndexFunc(t.Measures, func(m Measure) bool { return m.Name == measure })
	if column < 0 {
		column = len(t.Measures)
		t.Measures = append(t.Measures, Measure{measure, t.Unit})
	}
	row := t.row(variant)
	if row == nil {
		row = &Variant{Name: variant}
		t.Rows = append(t.Rows, row)
	}
	for len(row.Samples) < len(t.Measures) {
		row.Samples = append(row.Samples, nil)
	}
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			row.Samples[column] = append(row.Samples[column], v)
		}
	}
}

func (t *Table) row(variant string) *Variant {
	for _, row := range t.Rows {
		if row.Name == variant {
			return row
		}
	}
	return nil
}

// Samples returns the samples in a cell; nil if there are none.
func (t *Table) Samples(variant, measure string) Samples {
	if t == nil {
		return nil
	}
	row := t.row(variant)
	column := slices.IndexFunc(t.Measures, func(m Measure) bool { return m.Name == measure })
	if row == nil || column < 0 || column >= len(row.Samples) {
		return nil
	}
	return row.Samples[column]
}

// Median returns the median of a cell; NaN if it is empty.
func (t *Table) Median(variant, measure string) float64 { return t.Samples(variant, measure).Median() }

// LeaveOut records what was not measured, and why.
func (r *Result) LeaveOut(what, why string) { r.LeftOut = append(r.LeftOut, LeftOut{what, why}) }

// Pin records what was held constant.
func (r *Result) Pin(format string, args ...any) {
	r.Pinned = append(r.Pinned, fmt.Sprintf(format, args...))
}

// Reduce records what is smaller than in a full run.
func (r *Result) Reduce(format string, args ...any) {
	r.Reduced = append(r.Reduced, fmt.Sprintf(format, args...))
}

// Measured reports whether there is anything to show.
func (r *Result) Measured() bool { return len(r.Rows)+len(r.Tables) > 0 }

// conclude checks the claims and drops empty tables.
func (r *Result) conclude(claims []Claim) {
	for _, c := range claims {
		if !r.has(c.Of) || c.Rule.compares() && !r.has(c.From) {
			continue // the cell was not run
		}
		row, ok := c.check(r.samples(c.From), r.samples(c.Of))
		if !ok {
			r.LeaveOut(c.Says, "nothing could be measured")
			continue
		}
		r.Rows = append(r.Rows, row)
	}
	r.Tables = slices.DeleteFunc(r.Tables, func(t *Table) bool { return len(t.Rows) == 0 })
}

func (r *Result) has(f Figure) bool {
	t := r.Table(f.Table)
	return t != nil && t.row(f.Variant) != nil
}

func (r *Result) samples(f Figure) Samples { return r.Table(f.Table).Samples(f.Variant, f.Measure) }

// An Environment is where and with what something was measured. Unknown fields are empty.
type Environment struct {
	Time       time.Time `json:"time"` // of the start
	Cores      int       `json:"cores"`
	Processor  string    `json:"processor"`
	MemoryMiB  int64     `json:"memory_mib"`
	FileSystem string    `json:"file_system"` // of the data; empty with a user's MongoDB
	Disk       string    `json:"disk"`        // nvme, ssd or hdd
	System     string    `json:"system"`
	Brim       string    `json:"brim"`
	Driver     string    `json:"driver"`
	Mongod     string    `json:"mongod"`     // version
	Topologies []string  `json:"topologies"` // standalone, replica_set, sharded
	Compressor []string  `json:"compressors"`
	CacheMiB   []int64   `json:"cache_mib"`
	// Database is the scratch database in a user's MongoDB; empty: the experiment's own
	// mongods.
	Database string `json:"database,omitempty"`
}

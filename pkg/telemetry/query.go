package telemetry

import (
	"context"
	"iter"
	"time"
)

// A Query asks for the readings of one sensor with From <= Time < To, both in
// milliseconds since the epoch.
type Query struct {
	Sensor   string
	From, To int64
	Limit    int // of readings, a hint; 0: none
	Expected int // expected number of readings if there is no Limit, a hint; 0: all
	// Fields are the names of the needed fields, a hint: readings may lack others. Nil:
	// all.
	Fields []string
	// Transient is a hint that the caller needs a reading's Fields only until it takes the next
	// one: the source may reuse their memory.
	Transient bool
	// LastWins asks for one reading per time, with the last value of each field. Only a
	// source that knows the order of arrival supports it.
	LastWins bool
	// Hidden are collections whose readings are being copied into the source's. The answer omits
	// these copies.
	Hidden []string
	// Unstored are readings of the sensor that were acknowledged and may not be
	// stored yet, in the order of their sequences. The answer includes those that are
	// not stored, each once. They must be collected before MongoDB is queried, so
	// that a reading stored in between is not missed.
	Unstored []Unstored
}

// An Unstored is an acknowledged reading, with what is needed to find out
// whether it is stored by now.
type Unstored struct {
	Session     string
	Sequence    uint64
	Arrival     int64         // of its request, in milliseconds since the epoch
	Granularity time.Duration // of the bucket that it goes to
	Target      string        // how it is stored, according to the journal; empty: unknown
	Reading     Reading
}

// A SummaryQuery asks for summaries of one sensor's readings. Its Limit is
// ignored.
type SummaryQuery struct {
	Query
	Every  int64 // length of a step in milliseconds; steps are aligned to the epoch
	Offset int64 // delay of the steps relative to that, from 0 to Every

	// Readings, if set, yields the readings to summarize, in time order, instead of the
	// source's.
	Readings func(context.Context, Query) iter.Seq2[Reading, error]
	// Gone requests something else: the steps of rollups within the span that count expired
	// readings. Every and Offset are ignored.
	Gone bool
}

// A Summary summarizes the readings in one step. Steps without readings have none.
type Summary struct {
	Start  int64 // of the step, in milliseconds since the epoch
	Count  int64 // readings
	Fields []FieldSummary

	First, Last int64 // times of readings; only in an answer to Gone
}

// A FieldSummary is about a field's numbers, not booleans and strings.
type FieldSummary struct {
	Name     string
	N        int64 // readings with a number in the field
	Min, Max Value // unconverted
	Sum      float64

	First, Last Value // only in an answer to Gone
}

// Mean returns the mean of the numbers.
func (f FieldSummary) Mean() float64 { return f.Sum / float64(f.N) }

// A SensorQuery asks for the sensors of a stream in the order of their ids' bytes.
type SensorQuery struct {
	Prefix string // of ids
	After  string // only ids after this one
	Limit  int    // of sensors, a hint; 0: none

	// Ignored by sources that do not know sensors' tags: see Sensor.Matches.
	Tags   []Matcher // of tags
	Sensor []Matcher // of ids
	// Fields is a hint: sensors without a number or boolean in any of these fields may be
	// omitted. Empty: none may.
	Fields []string
}

// A SensorSeen is a sensor, and the time of its newest reading in milliseconds
// since the epoch.
type SensorSeen struct {
	Sensor string
	Newest int64
}

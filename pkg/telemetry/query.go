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
	Expected int // readings that will probably be taken if there is no Limit, a hint; 0: all
	// Fields are the names of the fields that are needed, a hint: others may be missing in
	// readings. Nil: all.
	Fields []string
	// Transient says that the caller needs the Fields of a reading only until it takes the next
	// one, a hint: the source may use their memory again.
	Transient bool
	// LastWins asks for one reading per time, with the last value of each field. Only a
	// source that knows the order of arrival supports it.
	LastWins bool
	// Hidden are collections whose readings are being copied into that of the source. The answer
	// leaves out these copies.
	Hidden []string
	// Unstored are readings of the sensor that were acknowledged and may not be
	// stored yet, in the order of their sequences. The answer has those that are not
	// stored among the others, each once. They are collected before MongoDB is asked,
	// so that a reading that is stored meanwhile is not missed.
	Unstored []Unstored
}

// An Unstored is a reading that was acknowledged, with what tells whether it is
// stored by now.
type Unstored struct {
	Session     string
	Sequence    uint64
	Arrival     int64         // of its request, in milliseconds since the epoch
	Granularity time.Duration // of the bucket that it goes to
	Target      string        // how it is stored, as the journal says; empty: not known
	Reading     Reading
}

// A SummaryQuery asks for summaries of one sensor's readings. Its Limit is
// ignored.
type SummaryQuery struct {
	Query
	Every  int64 // length of a step in milliseconds; steps are aligned to the epoch
	Offset int64 // by which steps begin later than that, from 0 to Every

	// Readings, if set, yields the readings to sum up, in place of those that the source
	// stores. They are in time order.
	Readings func(context.Context, Query) iter.Seq2[Reading, error]
	// Gone asks for something else: the steps of rollups within the span that count readings
	// which have expired. Every and Offset are ignored.
	Gone bool
}

// A Summary of the readings in one step. Steps without readings have none.
type Summary struct {
	Start  int64 // of the step, in milliseconds since the epoch
	Count  int64 // readings
	Fields []FieldSummary

	First, Last int64 // times of readings; only in an answer to Gone
}

// A FieldSummary is of one field's numbers; booleans and strings have none.
type FieldSummary struct {
	Name     string
	N        int64 // readings in which the field is a number
	Min, Max Value // as they came
	Sum      float64

	First, Last Value // only in an answer to Gone
}

// Mean returns the mean of the numbers.
func (f FieldSummary) Mean() float64 { return f.Sum / float64(f.N) }

// A SensorQuery asks for the sensors of a stream in the order of their ids' bytes.
type SensorQuery struct {
	Prefix string // that ids begin with
	After  string // ids behind this one only
	Limit  int    // of sensors, a hint; 0: none

	// Only what knows sensors by their tags observes these: see Sensor.Matches.
	Tags   []Matcher // of tags
	Sensor []Matcher // of ids
	// Fields is a hint: sensors without a number or boolean in any of these fields may be
	// left out. Empty: none may.
	Fields []string
}

// A SensorSeen is a sensor, and the time of its newest reading in milliseconds
// since the epoch.
type SensorSeen struct {
	Sensor string
	Newest int64
}

// Package shape is the ways in which readings can rest in MongoDB, side by side:
// how each is made, loaded, sized and read. What Brim has is the store of
// production; the other two are what one would write without it.
//
//	Documents   a document per reading, a unique index on sensor and time, insertMany   naive
//	Buckets     internal/store/bucket, written by a lane                                Brim's
//	Series      a time-series collection with nothing but a timeField, insertMany       naive
//	TimeSeries  internal/store/timeseries, written by a lane                            Brim's
package shape

import (
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Kind is a way in which readings can rest.
type Kind string

// The kinds.
const (
	Documents  Kind = "documents"
	Buckets    Kind = "buckets"
	Series     Kind = "series"
	TimeSeries Kind = "timeseries"
)

// A Shape is a kind with what can be chosen of it.
type Shape struct {
	Kind Kind `json:"kind"`
	// Granularity is the length of a window of Buckets. Of the other kinds it is
	// none: a server before 6.3 lets a time-series bucket span an hour, whatever the
	// stream says.
	Granularity time.Duration `json:"granularity_ns,omitempty"`
}

// String names the shape as tables show it.
func (s Shape) String() string {
	switch s.Kind {
	case Documents:
		return "a document per reading"
	case Buckets:
		return "Brim's buckets, " + config.FormatDuration(s.Granularity)
	case Series:
		return "time series, no metaField"
	case TimeSeries:
		return "time series, metaField"
	}
	return string(s.Kind)
}

// Label names the shape as plots do, where there is little room.
func (s Shape) Label() string {
	switch s.Kind {
	case Buckets:
		return "buckets " + config.FormatDuration(s.Granularity)
	case Series:
		return "series, no meta"
	case TimeSeries:
		return "series, meta"
	}
	return string(s.Kind)
}

// naive reports whether the shape is written without Brim.
func (s Shape) naive() bool { return s.Kind == Documents || s.Kind == Series }

var (
	errManySensors = errors.New("a time-series collection without a metaField cannot tell sensors apart: it takes one")
	errNoReadings  = errors.New("there must be at least one sensor and one reading, at an interval of 1 ms or more")
)

// check refuses what cannot be loaded.
func (s Shape) check(r Readings) error {
	if r.Sensors < 1 || r.Count < 1 || r.Interval < time.Millisecond {
		return errNoReadings
	}
	switch s.Kind {
	case Documents, TimeSeries:
		return nil
	case Series:
		if r.Sensors > 1 {
			return errManySensors
		}
		return nil
	case Buckets:
		return store.CheckGranularity(s.Granularity)
	}
	return fmt.Errorf("shape %q is none of %s, %s, %s, %s", s.Kind, Documents, Buckets, Series, TimeSeries)
}

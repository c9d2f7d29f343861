package load

import "time"

// A Result is the outcome of a run. Its JSON form is what --output json prints and --compare
// reads. Durations are in seconds; rates are readings per second.
type Result struct {
	Version string    `json:"version"` // of the generator
	Began   time.Time `json:"began"`
	Setup   Setup     `json:"setup"`

	// Interrupted is whether the run was cut short.
	Interrupted bool `json:"interrupted"`
	// Seconds is how long the run took: the time in which requests were due
	// (Setup.DurationSeconds), or to the last answer if that came later.
	// DrainSeconds is the part after the last request was due.
	Seconds      float64 `json:"seconds"`
	DrainSeconds float64 `json:"drain_seconds"`
	// OfferedRate is the readings due per second of Setup.DurationSeconds, and AchievedRate the
	// acknowledged ones.
	OfferedRate  float64 `json:"offered_rate"`
	AchievedRate float64 `json:"achieved_rate"`
	Sent         int64   `json:"sent"` // readings, like the next four
	Acked        int64   `json:"acked"`
	Rejected     int64   `json:"rejected"` // in requests that were answered
	Failed       int64   `json:"failed"`   // in requests that failed
	Dropped      int64   `json:"dropped"`  // due while --max-in-flight requests were in flight, or still waiting at the end; never sent
	Requests     int64   `json:"requests"` // sent
	// Failures counts the failed requests by reason.
	Failures map[string]int64 `json:"failures,omitempty"`
	// FirstErrors are the first error messages, one each for a few reasons.
	FirstErrors []string `json:"first_errors,omitempty"`

	// Response counts from when a request was due until it was answered or given up. It covers
	// every request that was due, except those dropped because of --max-in-flight. For failed
	// requests, and those still waiting for a connection at the end, it is a lower bound.
	// Service counts from when a request was sent, and covers answered ones.
	Response Quantiles `json:"response_seconds"`
	Service  Quantiles `json:"service_seconds"`
	// Strict is Response with every failed or dropped request counted as slower than any other.
	// A quantile among those is 0, as are mean and max. nil: there were none, and it equals
	// Response.
	Strict *Quantiles `json:"response_strict_seconds,omitempty"`
	// ByFill is the response time by the elapsed part of the readings' windows, in ten rows; it
	// covers the same requests as Response.
	ByFill []FillRow `json:"by_fill"`
	// StoreByFill is the daemon's own time to write a bucket's update, in ten rows; absent
	// without --admin. It covers the run and the flush after it.
	StoreByFill []FillRow `json:"store_by_fill,omitempty"`
	// Intervals is the course of the run, one row per second.
	Intervals []Interval `json:"intervals"`
	// Curve and ServiceCurve are response and service time by percentile, for the plot and the
	// .hgrm file.
	Curve        []Percentile `json:"response_percentiles"`
	ServiceCurve []Percentile `json:"service_percentiles"`
}

// Setup is the requested load.
type Setup struct {
	Target             string `json:"target"` // without credentials
	Stream             string `json:"stream"`
	Storage            string `json:"storage"` // of the stream
	GranularitySeconds int    `json:"granularity_seconds"`
	Protocol           string `json:"protocol"` // http or grpc
	Ack                string `json:"ack"`      // requested; empty: the daemon's default
	Sensors            int    `json:"sensors"`
	SensorPrefix       string `json:"sensor_prefix"` // of the sensor IDs
	// IntervalSeconds is the event time between a sensor's readings; in a ramp, at its larger
	// end. AskedIntervalSeconds is the requested one, if --rate and a whole number of sensors
	// changed it.
	IntervalSeconds      float64 `json:"interval_seconds"`
	AskedIntervalSeconds float64 `json:"asked_interval_seconds,omitempty"`
	Speedup              float64 `json:"speedup"`
	Batch                int     `json:"batch"`
	Fields               int     `json:"fields"`
	Rate                 string  `json:"rate,omitempty"` // N or A..B, if --rate was given
	Steps                int     `json:"steps,omitempty"`
	DurationSeconds      float64 `json:"duration_seconds"` // in which requests were due; less than requested if interrupted
	Connections          int     `json:"connections"`
	MaxInFlight          int     `json:"max_in_flight"`
	Seed                 uint64  `json:"seed"`
	// EventStart and EventEnd are the span of the readings' timestamps.
	EventStart time.Time `json:"event_start"`
	EventEnd   time.Time `json:"event_end"`
}

// Quantiles of a duration, in seconds; all 0 if nothing was observed.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// A FillRow is one tenth of a window. P50 and P99 are 0 if Count is.
type FillRow struct {
	From  float64 `json:"fill_from"` // 0, 0.1, … 0.9
	To    float64 `json:"fill_to"`
	Count int64   `json:"count"` // by_fill: readings; store_by_fill: updates
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

// An Interval is one second of the run in wall-clock time.
type Interval struct {
	Second   float64 `json:"second"`  // since the run began, at the end of the interval
	Offered  float64 `json:"offered"` // readings due per second
	Achieved float64 `json:"achieved"`
	P50      float64 `json:"p50"` // response time, seconds; 0 if nothing was answered
	P99      float64 `json:"p99"`
	InFlight int     `json:"in_flight"` // requests due and not answered, at the end
	Failed   int64   `json:"failed"`    // readings
	Dropped  int64   `json:"dropped"`
	Fill     float64 `json:"fill"` // elapsed part of the current window of event time, 0 to 1, at the end
}

// A Percentile is one point of the percentile curve.
type Percentile struct {
	Percent float64 `json:"percent"` // 0 to 100
	Seconds float64 `json:"seconds"`
	Count   int64   `json:"count"` // requests up to here
}

package ingest

import (
	"cmp"
	"net/http"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// aboutStreams is the answer to GET /v1/streams.
type aboutStreams struct {
	Default string          `json:"default"`
	Acks    []telemetry.Ack `json:"acks"` // that can be had
	Streams []aboutStream   `json:"streams"`
}

type aboutStream struct {
	Name               string  `json:"name"`
	Storage            string  `json:"storage"`
	GranularitySeconds int64   `json:"granularity_seconds"`
	Granularity        string  `json:"granularity"`
	MaxReadings        int     `json:"bucket_max_readings,omitempty"`
	MaxBytes           int64   `json:"bucket_max_bytes,omitempty"`
	RetentionSeconds   float64 `json:"retention_seconds"` // 0: for ever

	Fields      []string `json:"fields,omitempty"`       // that readings may have; none: any
	OtherFields string   `json:"other_fields,omitempty"` // refuse or drop
}

func (d *Door) serveStreams(w http.ResponseWriter, _ *http.Request) {
	about := aboutStreams{Default: d.config.DefaultStream, Acks: d.config.Acks, Streams: []aboutStream{}}
	for i := range d.order {
		s := d.order[i].live.Load()
		others := ""
		if len(s.Fields) > 0 {
			others = cmp.Or(s.OtherFields, refuseOthers)
		}
		about.Streams = append(about.Streams, aboutStream{
			Name: s.Name, Storage: s.Storage,
			GranularitySeconds: int64(s.Granularity / time.Second), Granularity: config.FormatDuration(s.Granularity),
			MaxReadings: s.MaxReadings, MaxBytes: s.MaxBytes, RetentionSeconds: s.Retention.Seconds(),
			Fields: s.Fields, OtherFields: others,
		})
	}
	writeJSON(w, http.StatusOK, about)
}

// servePing answers what clients of InfluxDB ask before they write; some of
// them look for the header.
func (d *Door) servePing(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Influxdb-Version", "brim-"+d.config.Version)
	w.Header().Set("X-Influxdb-Build", "Brim")
	status := http.StatusNoContent
	if d.stopping.Load() {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
}

// aboutHealth has the shape that InfluxDB 2 answers in.
type aboutHealth struct {
	Name    string   `json:"name"`
	Message string   `json:"message"`
	Status  string   `json:"status"` // pass or fail
	Checks  []string `json:"checks"` // always empty
	Version string   `json:"version"`
}

func (d *Door) serveHealth(w http.ResponseWriter, _ *http.Request) {
	about := aboutHealth{Name: "brim", Message: "ready for readings", Status: "pass", Checks: []string{}, Version: d.config.Version}
	status := http.StatusOK
	switch available := d.config.Available; {
	case d.stopping.Load():
		about.Message, about.Status, status = "stopping", "fail", http.StatusServiceUnavailable
	case available != nil && available() != nil:
		about.Message, about.Status, status = "no readings can be taken now; /readyz of the admin listener says why", "fail", http.StatusServiceUnavailable
	}
	writeJSON(w, status, about)
}

package daemon

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/seal"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// parts returns which parts of the daemon are ready. With a journal on disk, MongoDB and the
// parts that depend on it are optional.
func (d *daemon) parts() []console.Part {
	j, s := d.journal.Load(), d.storage.Load()
	parts := []console.Part{part("daemon", d.phase(j != nil))}
	if j != nil {
		parts = append(parts, part("journal", j.Err()))
	}
	behind := len(parts)
	if server := d.mongod.Load(); server != nil {
		var err error
		if !server.Running() {
			err = fmt.Errorf("the embedded mongod is down; it is being restarted (%d times so far)", server.Restarts())
		}
		parts = append(parts, part("mongod", err))
	}
	if s == nil {
		parts = append(parts, part("storage", errNotReady))
	} else {
		if s.conn != nil {
			parts = append(parts, part("mongodb", s.available()), part("sessions", s.claims.Err()))
		}
		for _, stream := range d.cfg.Streams {
			parts = append(parts, part("stream "+stream.Name, s.reason(stream.Name)))
		}
	}
	for i := behind; i < len(parts); i++ {
		parts[i].Optional = d.cfg.journaling()
	}
	return slices.Concat(parts, d.mqttParts())
}

func part(name string, err error) console.Part {
	if err != nil {
		return console.Part{Name: name, Reason: err.Error()}
	}
	return console.Part{Name: name, Ready: true}
}

// phase returns why the daemon as a whole cannot accept readings.
func (d *daemon) phase(opened bool) error {
	switch {
	case d.draining.Load():
		return errDraining
	case !opened:
		return errNotReady
	default:
		return nil
	}
}

var errDraining = errors.New("the daemon is stopping")

// Status is the answer to GET /status.
type Status struct {
	Version       string          `json:"version"`
	Revision      string          `json:"revision,omitempty"`
	UptimeSeconds float64         `json:"uptime_seconds"`
	Session       string          `json:"session"`
	Ready         bool            `json:"ready"`
	Addresses     Addresses       `json:"addresses"`
	MongoURI      string          `json:"mongo_uri,omitempty"` // secrets masked; none without MongoDB
	Database      string          `json:"database,omitempty"`
	MongoDB       *availability   `json:"mongodb,omitempty"`
	Mongod        *EmbeddedStatus `json:"mongod,omitempty"` // the embedded one
	Streams       []StreamStatus  `json:"streams"`
	Journal       *journal.Status `json:"journal,omitempty"` // absent while the daemon starts
	Queue         *queue.Status   `json:"queue,omitempty"`   // absent until there is a MongoDB to try
	Config        *ConfigStatus   `json:"config,omitempty"`
}

// Addresses are the listeners' addresses, each HOST:PORT.
type Addresses struct {
	HTTP  string `json:"http"`
	GRPC  string `json:"grpc"`
	Admin string `json:"admin"`
	TLS   bool   `json:"tls,omitempty"` // on all of them
}

type availability struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

// EmbeddedStatus is the state of the daemon's own mongod.
type EmbeddedStatus struct {
	Running  bool   `json:"running"`
	Version  string `json:"version"`
	URI      string `json:"uri"`            // secrets masked
	URIFile  string `json:"uri_file"`       // path of the file with the complete URI, which only this user can read
	Auth     bool   `json:"authentication"` // it requires a password
	Pid      int    `json:"pid"`            // 0 while it is down
	Restarts int    `json:"restarts"`

	OtherUsers []string `json:"other_users,omitempty"` // MongoDB users that the daemon did not create, at most 20
}

// StreamStatus is the state of one stream.
type StreamStatus struct {
	Name                   string         `json:"name"`
	Default                bool           `json:"default"`
	Storage                string         `json:"storage"`
	Granularity            string         `json:"granularity"`
	GranularitySeconds     int            `json:"granularity_seconds"`
	BucketFormat           string         `json:"bucket_format,omitempty"`
	BucketMaxReadings      int            `json:"bucket_max_readings,omitempty"`
	BucketMaxBytes         int            `json:"bucket_max_bytes,omitempty"`
	MaxReadingsPerUpdate   int            `json:"max_readings_per_update,omitempty"`
	FlushIntervalSeconds   float64        `json:"flush_interval_seconds"`
	FlushMaxSeconds        float64        `json:"flush_max_seconds"`
	FlushBudgetPercent     float64        `json:"flush_budget_percent"` // of one core of MongoDB
	MergeReadings          int            `json:"merge_readings"`
	Collection             string         `json:"collection,omitempty"` // that is written now; empty before it is prepared
	Compressor             string         `json:"compressor,omitempty"` // of that collection
	RetentionSeconds       int64          `json:"retention_seconds"`    // 0: forever
	WriteConcern           string         `json:"write_concern,omitempty"`
	Fields                 []string       `json:"fields,omitempty"` // that readings may have; none: any
	OtherFields            string         `json:"other_fields,omitempty"`
	View                   string         `json:"view,omitempty"` // its name
	SealAfterSeconds       int64          `json:"seal_after_seconds,omitempty"`
	Sealing                *seal.Progress `json:"sealing,omitempty"`
	RollupSeconds          int64          `json:"rollup_seconds,omitempty"`
	RollupRetentionSeconds int64          `json:"rollup_retention_seconds,omitempty"` // 0: forever
	SilentAfterSeconds     int64          `json:"silent_after_seconds,omitempty"`
	Ready                  bool           `json:"ready"`
	Reason                 string         `json:"reason,omitempty"` // why it is not
}

func (d *daemon) status() any {
	out := Status{
		Version: d.version.Version, Revision: d.version.Revision,
		UptimeSeconds: time.Since(d.began).Seconds(), Session: d.session,
		Ready: ready(d.parts()),
		Addresses: Addresses{
			HTTP: d.listeners.http.Addr().String(), GRPC: d.listeners.grpc.Addr().String(), Admin: d.listeners.admin.Addr().String(), TLS: d.tls != nil,
		},
	}
	if d.cfg.needsMongoDB() {
		out.MongoURI, out.Database = config.MaskURI(d.cfg.MongoURI), d.cfg.Database
	}
	if server := d.mongod.Load(); server != nil {
		out.MongoURI = config.MaskURI(server.URI())
		out.Mongod = &EmbeddedStatus{
			Running: server.Running(), Version: server.Version(), URI: out.MongoURI, URIFile: server.URIFile(), Auth: server.RequiresAuth(), Pid: server.Pid(), Restarts: server.Restarts(),
			OtherUsers: server.OtherUsers(),
		}
	}
	if j := d.journal.Load(); j != nil {
		status := j.Status()
		out.Journal = &status
	}
	s := d.storage.Load()
	if s != nil {
		if s.conn != nil {
			p := part("", s.available())
			out.MongoDB = &availability{Available: p.Ready, Reason: p.Reason}
		}
		queued := s.queue.Status()
		out.Queue = &queued
	}
	if d.reloads != nil {
		config := d.reloads.status()
		out.Config = &config
	}
	for _, stream := range d.current().Streams {
		one := stream.status()
		one.Default = stream.Name == d.cfg.Default.Name
		state := part("", errNotReady)
		if s != nil {
			state = part("", s.reason(stream.Name))
			if of, ok := s.stores[stream.Name].(*generation.Store); ok && of.Current().Collection != "" {
				one.Collection, one.Compressor = of.Current().Collection, string(of.Current().Compressor)
			}
			if p, ok := s.sealer.Progress(stream.Name); ok {
				one.Sealing = &p
			}
		}
		one.Ready, one.Reason = state.Ready, state.Reason
		out.Streams = append(out.Streams, one)
	}
	return out
}

func (s Stream) hasBuckets() bool { return s.Storage == store.Bucket }

func (s Stream) status() StreamStatus {
	out := StreamStatus{
		Name: s.Name, Storage: string(s.Storage),
		Granularity: config.FormatDuration(s.Granularity), GranularitySeconds: int(s.Granularity / time.Second),
		RetentionSeconds: int64(s.Retention / time.Second), SilentAfterSeconds: int64(s.SilentAfter / time.Second),
		FlushIntervalSeconds: s.FlushInterval.Seconds(), FlushMaxSeconds: s.FlushMax.Seconds(), FlushBudgetPercent: 100 * s.FlushBudget, MergeReadings: s.MergeReadings,
	}
	if s.Storage != store.Memory {
		out.Compressor, out.WriteConcern = string(s.Compressor), s.WriteConcern.String()
	}
	if len(s.Fields) > 0 {
		out.Fields, out.OtherFields = s.Fields, string(s.OtherFields)
	}
	if s.hasBuckets() && s.View == On {
		out.View = store.ViewName(s.Name)
	}
	if s.hasBuckets() {
		out.BucketFormat, out.SealAfterSeconds = string(s.BucketFormat), int64(s.SealAfter/time.Second)
		out.RollupSeconds, out.RollupRetentionSeconds = int64(s.Rollup/time.Second), int64(s.RollupRetention/time.Second)
		out.BucketMaxReadings, out.BucketMaxBytes, out.MaxReadingsPerUpdate = s.BucketMaxReadings, s.BucketMaxBytes, s.MaxReadingsPerUpdate
	}
	return out
}

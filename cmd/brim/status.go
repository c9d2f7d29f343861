package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/admin"
	"github.com/brim-telemetry/brim/internal/store"
)

// parts tells what of the daemon is ready to take readings.
func (d *daemon) parts() []admin.Part {
	s := d.storage.Load()
	parts := []admin.Part{part("daemon", d.phase(s))}
	if server := d.mongod.Load(); server != nil {
		var err error
		if !server.Running() {
			err = fmt.Errorf("the embedded mongod is down; it is started again by itself (%d times so far)", server.Restarts())
		}
		parts = append(parts, part("mongod", err))
	}
	if s == nil {
		return parts
	}
	if s.conn != nil {
		parts = append(parts, part("mongodb", s.available()))
	}
	for _, stream := range d.cfg.Streams {
		parts = append(parts, part("stream "+stream.Name, s.reason(stream.Name)))
	}
	var full error
	if held := s.queue.Status().Bytes; held >= d.cfg.QueueMaxBytes {
		full = fmt.Errorf("%d bytes wait to be stored, --queue-max-bytes is %s", held, formatSize(d.cfg.QueueMaxBytes))
	}
	return append(parts, part("queue", full))
}

func part(name string, err error) admin.Part {
	if err != nil {
		return admin.Part{Name: name, Reason: err.Error()}
	}
	return admin.Part{Name: name, Ready: true}
}

// phase returns why the daemon as a whole cannot take readings.
func (d *daemon) phase(s *storage) error {
	switch {
	case d.draining.Load():
		return errDraining
	case s == nil:
		return admin.ErrNotReady
	default:
		return nil
	}
}

var errDraining = errors.New("the daemon is stopping")

// status is what GET /status shows.
type status struct {
	Version       string          `json:"version"`
	Revision      string          `json:"revision,omitempty"`
	UptimeSeconds float64         `json:"uptime_seconds"`
	Session       string          `json:"session"`
	Ready         bool            `json:"ready"`
	Addresses     addresses       `json:"addresses"`
	MongoURI      string          `json:"mongo_uri,omitempty"` // secrets masked; none without MongoDB
	Database      string          `json:"database,omitempty"`
	MongoDB       *availability   `json:"mongodb,omitempty"`
	Mongod        *embeddedStatus `json:"mongod,omitempty"` // the embedded one
	Streams       []streamStatus  `json:"streams"`
	Queue         *queueStatus    `json:"queue,omitempty"` // absent while the daemon starts
}

type addresses struct {
	HTTP  string `json:"http"`
	GRPC  string `json:"grpc"`
	Admin string `json:"admin"`
}

type availability struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

type embeddedStatus struct {
	Running  bool   `json:"running"`
	Version  string `json:"version"`
	URI      string `json:"uri"`
	Pid      int    `json:"pid"` // 0 while it is down
	Restarts int    `json:"restarts"`
}

type streamStatus struct {
	Name                 string `json:"name"`
	Default              bool   `json:"default"`
	Storage              string `json:"storage"`
	Granularity          string `json:"granularity"`
	GranularitySeconds   int    `json:"granularity_seconds"`
	BucketMaxReadings    int    `json:"bucket_max_readings,omitempty"`
	BucketMaxBytes       int    `json:"bucket_max_bytes,omitempty"`
	MaxReadingsPerUpdate int    `json:"max_readings_per_update,omitempty"`
	Compressor           string `json:"compressor,omitempty"`
	RetentionSeconds     int64  `json:"retention_seconds"` // 0: for ever
	Ready                bool   `json:"ready"`
}

type queueStatus struct {
	Readings      int     `json:"readings"`
	Bytes         int64   `json:"bytes"`
	MaxBytes      int64   `json:"max_bytes"`
	Buckets       int     `json:"buckets"`        // whose state is remembered
	OldestSeconds float64 `json:"oldest_seconds"` // age of the oldest reading; 0 if there is none
}

func (d *daemon) status() any {
	out := status{
		Version: d.version.Version, Revision: d.version.Revision,
		UptimeSeconds: time.Since(d.began).Seconds(), Session: d.session,
		Ready: !slices.ContainsFunc(d.parts(), func(p admin.Part) bool { return !p.Ready }),
		Addresses: addresses{
			HTTP: d.listeners.http.Addr().String(), GRPC: d.listeners.grpc.Addr().String(), Admin: d.listeners.admin.Addr().String(),
		},
	}
	if d.cfg.needsMongoDB() {
		out.MongoURI, out.Database = maskURI(d.cfg.MongoURI), d.cfg.Database
	}
	if server := d.mongod.Load(); server != nil {
		out.MongoURI = server.URI()
		out.Mongod = &embeddedStatus{
			Running: server.Running(), Version: server.Version(), URI: server.URI(), Pid: server.Pid(), Restarts: server.Restarts(),
		}
	}
	s := d.storage.Load()
	if s != nil {
		if s.conn != nil {
			p := part("", s.available())
			out.MongoDB = &availability{Available: p.Ready, Reason: p.Reason}
		}
		q := s.queue.Status()
		out.Queue = &queueStatus{
			Readings: q.Readings, Bytes: q.Bytes, MaxBytes: d.cfg.QueueMaxBytes, Buckets: q.Buckets, OldestSeconds: q.Oldest.Seconds(),
		}
	}
	for _, stream := range d.cfg.Streams {
		one := stream.status()
		one.Default = stream.Name == d.cfg.Default.Name
		one.Ready = s != nil && s.reason(stream.Name) == nil
		out.Streams = append(out.Streams, one)
	}
	return out
}

func (s stream) hasBuckets() bool { return s.Storage == store.Bucket }

func (s stream) status() streamStatus {
	out := streamStatus{
		Name: s.Name, Storage: string(s.Storage),
		Granularity: formatDuration(s.Granularity), GranularitySeconds: int(s.Granularity / time.Second),
		RetentionSeconds: int64(s.Retention / time.Second),
	}
	if s.Storage != store.Memory {
		out.Compressor = string(s.Compressor)
	}
	if s.hasBuckets() {
		out.BucketMaxReadings, out.BucketMaxBytes, out.MaxReadingsPerUpdate = s.BucketMaxReadings, s.BucketMaxBytes, s.MaxReadingsPerUpdate
	}
	return out
}

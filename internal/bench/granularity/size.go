package granularity

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// A size is what a granularity makes of the published workload, counted in a
// small run through the store and scaled to all sensors and a day.
type size struct {
	Granularity    string  `json:"granularity"`
	Readings       int     `json:"readings"`       // of a full bucket
	Documents      int64   `json:"documents"`      // counted
	DocumentBytes  float64 `json:"document_bytes"` // of one, before compression, when full
	DocumentsADay  float64 `json:"documents_a_day"`
	BytesADay      float64 `json:"bytes_a_day"`                 // before compression
	DiskBytesADay  float64 `json:"disk_bytes_a_day,omitempty"`  // of the collection's file, without what is free in it; 0: not known of a user's
	IndexBytesADay float64 `json:"index_bytes_a_day,omitempty"` // of the index on _id, the same

	window time.Duration
}

// sizePerWrite is how many readings of a sensor the run writes at once.
const sizePerWrite = 60

// sizes stores the workload of some sensors for some hours with each
// granularity.
func (t *trial) sizes(ctx context.Context, m *bench.MongoDB) error {
	t.lab.Step("documents and bytes of %d sensors in %d hours", t.sensors, t.hours)
	for _, g := range granularities {
		s, err := t.size(ctx, m, g)
		if err != nil {
			return err
		}
		t.Sizes = append(t.Sizes, s)
	}
	return nil
}

func (t *trial) size(ctx context.Context, m *bench.MongoDB, g time.Duration) (*size, error) {
	collection := "size_" + config.FormatDuration(g)
	if err := t.store(ctx, m, collection, g); err != nil {
		return nil, err
	}
	if t.lab.Own() { // what a checkpoint has not written is on no disk
		if err := m.Checkpoint(ctx); err != nil {
			return nil, err
		}
	}
	seen, err := shape.SizeOf(ctx, m.Database(), collection, false)
	if err != nil {
		return nil, err
	}
	if err := m.Database().Collection(collection).Drop(ctx); err != nil {
		return nil, fmt.Errorf("drop collection %q: %w", collection, err)
	}
	// From the sensors and hours of the run to those of the workload and a day.
	const hoursADay = 24
	scale := float64(publishedSensors) / float64(t.sensors) * hoursADay / float64(t.hours)
	z := &size{
		Granularity: config.FormatDuration(g), Readings: inWindow(g), Documents: seen.Documents, window: g,
		DocumentBytes: float64(seen.Logical) / float64(seen.Documents),
		DocumentsADay: float64(seen.Documents) * scale, BytesADay: float64(seen.Logical) * scale,
	}
	if t.lab.Own() {
		z.DiskBytesADay, z.IndexBytesADay = float64(seen.Data())*scale, float64(seen.Index())*scale
	}
	return z, nil
}

// store writes the run.
func (t *trial) store(ctx context.Context, m *bench.MongoDB, collection string, g time.Duration) error {
	sensors, err := load.NewSensors(load.SensorsConfig{Count: t.sensors, Fields: publishedFields, Seed: t.lab.Seed, Prefix: "sensor-"})
	if err != nil {
		return err
	}
	st, err := bucket.New(bucket.Config{
		Database: acknowledged(m), Stream: collection, Granularity: g, MaxReadings: capReadings, MaxBytes: capBytes,
		Compressor: store.Snappy, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	if err := st.Prepare(ctx); err != nil {
		return err
	}
	l := lane.New(lane.Config{Store: st, Source: sensors, Stream: collection, Granularity: g, Begin: beginning(), Interval: publishedInterval})
	portions := make([]lane.Portion, t.sensors)
	for first := 0; first < t.hours*inWindow(time.Hour); first += sizePerWrite {
		for i := range portions {
			portions[i] = lane.Portion{Sensor: i, First: uint64(first), Count: sizePerWrite} //nolint:gosec // counts from 0
		}
		if _, err := l.Write(ctx, portions); err != nil {
			return err
		}
	}
	return nil
}

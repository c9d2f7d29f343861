package speed

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// inColumns are the flags of a daemon whose updates carry blocks.
func inColumns() []string { return []string{"--bucket-format", string(store.Columns)} }

const hourlyColumns = hourly + ", columns"

// columns compares line protocol, stored in columns, with raw inserts, and then the cost of
// an update of sixty readings in both formats. The sides change places from round to round.
func (t *trial) columns(ctx context.Context) {
	hosts := newHosts(hostsOf)
	brim := bench.Must(newSender(lineProtocol, hosts))
	documents, series := pages(documentPage, hosts), pages(groupedPage, hosts)
	sides := []side{
		func(ctx context.Context, r *rig) { r.pass(ctx, brim, t.length, "columns", lineProtocol) },
		func(ctx context.Context, r *rig) { r.raw(ctx, documents, t.length, "columns", rawDocuments) },
		func(ctx context.Context, r *rig) { r.rawSeries(ctx, series, t.length, "columns") },
	}
	for i := range t.lab.Repeats {
		t.lab.Step("columns %d of %d", i+1, t.lab.Repeats)
		t.on(ctx, append(inColumns(), "--granularity", hourly), func(ctx context.Context, r *rig) {
			for n := range sides {
				sides[(i+n)%len(sides)](ctx, r)
				r.settle(ctx)
			}
		})
	}
	formats := []store.Format{store.Documents, store.Columns}
	for i := range t.lab.Repeats {
		t.lab.Step("columns and documents, 60 readings an update, %d of %d", i+1, t.lab.Repeats)
		t.onMongoDB(ctx, func(m *bench.MongoDB) {
			for n := range formats {
				t.format(ctx, m, formats[(i+n)%len(formats)])
			}
		})
	}
}

// rawSeries inserts into a fresh time-series collection, grouped by sensor, which costs
// MongoDB the least.
func (r *rig) rawSeries(ctx context.Context, pages []*page, length time.Duration, table string) {
	bench.Must(shape.New(ctx, r.m, shape.Config{Name: rawCollection, Shape: hourlySeries(), Compressor: store.Snappy}))
	r.raw(ctx, pages, length, table, rawSeries)
}

// format measures the cost of updates of sixty readings, written by lanes.
func (t *trial) format(ctx context.Context, m *bench.MongoDB, format store.Format) {
	w := t.write(ctx, m, writing{point{hostsOf, together, fieldsOf, rawWriters}, hourlyBuckets(format), interval, t.length})
	n := float64(w.readings)
	t.lab.Row("formats", string(format), n/w.spent.Seconds, w.spent.CPU/n, w.spent.Own/n, w.took.Quantile(0.5), w.took.Quantile(0.99))
}

// columnsFill is fill with columns.
func (t *trial) columnsFill(ctx context.Context) { t.fillOf(ctx, hourlyColumns, inColumns()...) }

package read

import (
	"context"
	"iter"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A distinctSource leaves out readings that are identical to an earlier one. Latest still
// returns the one that arrived last.
type distinctSource struct{ Source }

// Readings implements Source.
func (d distinctSource) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.DistinctReadings(ctx, q, d.Source.Readings)
}

// Summary implements Source.
func (d distinctSource) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return store.DistinctSummary(ctx, q, d.Source.Readings)
}

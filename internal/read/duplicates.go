package read

import (
	"context"
	"iter"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A distinctSource omits readings that are identical to an earlier one. Latest still returns
// the one that arrived last.
type distinctSource struct{ Source }

// Readings implements Source.
func (d distinctSource) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.DeduplicatedReadings(ctx, q, d.Source.Readings)
}

// ReadingsOf implements Source.
func (d distinctSource) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.ReadEach(ctx, qs, d.Readings)
}

// Summary implements Source.
func (d distinctSource) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	q.Readings = d.Readings
	return d.Source.Summary(ctx, q)
}

// A lastWinsSource returns one reading per time, with the last value of each field.
// Latest returns a reading of the newest time; see Session.latest.
type lastWinsSource struct{ Source }

// Readings implements Source.
func (l lastWinsSource) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	q.LastWins = true
	return l.Source.Readings(ctx, q)
}

// ReadingsOf implements Source.
func (l lastWinsSource) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	for i := range qs {
		qs[i].LastWins = true
	}
	return l.Source.ReadingsOf(ctx, qs)
}

// Summary implements Source.
func (l lastWinsSource) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	q.Limit, q.Readings = 0, l.Readings
	return l.Source.Summary(ctx, q)
}

// dropsReadings reports whether a source returns fewer readings than are stored or waiting.
func dropsReadings(s Source) bool {
	switch s.(type) {
	case distinctSource, lastWinsSource:
		return true
	}
	return false
}

package store

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestDistinctReadingsHaveTheFieldsInQuestion(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	one := func(a, b int64) telemetry.Reading {
		return telemetry.Reading{Sensor: "s", Time: at, Fields: []telemetry.Field{{Name: "a", Value: telemetry.IntValue(a)}, {Name: "b", Value: telemetry.IntValue(b)}}}
	}
	source := []telemetry.Reading{one(1, 1), one(1, 2), one(1, 2)}
	all := func(_ context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
		assert.Equal(t, telemetry.Query{Sensor: "s", Expected: 7}, q)
		return func(yield func(telemetry.Reading, error) bool) {
			for _, r := range source {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	var got []telemetry.Reading
	for r, err := range DeduplicatedReadings(t.Context(), telemetry.Query{Sensor: "s", Limit: 7, Fields: []string{"a"}}, all) {
		require.NoError(t, err)
		got = append(got, r)
	}
	require.Len(t, got, 2, "those that differ only in b are not identical")
	for _, r := range got {
		assert.Equal(t, []telemetry.Field{{Name: "a", Value: telemetry.IntValue(1)}}, r.Fields)
	}
	assert.Equal(t, []telemetry.Reading{one(1, 1), one(1, 2), one(1, 2)}, source, "what is given stays as it is")
}

package store

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// newestOf is the newest time of a sensor that a test has.
const newestOf = 7

// listed is an index over ids in order; the sensors that are gone have no reading
// any more, and looking at the broken one fails.
type listed struct {
	ids          []string
	gone, broken string
}

var errBroken = errors.New("broken")

func (l listed) index() SensorIndex {
	return SensorIndex{
		Next: func(_ context.Context, span NameSpan) (string, error) {
			for _, id := range l.ids {
				if (id > span.From || id == span.From && !span.Behind) && (span.To == "" || id < span.To) {
					return id, nil
				}
			}
			return "", nil
		},
		Newest: func(_ context.Context, sensor string) (int64, bool, error) {
			if sensor == l.broken {
				return 0, false, errBroken
			}
			return newestOf, sensor != l.gone, nil
		},
	}
}

func TestSensorsOfAnIndex(t *testing.T) {
	t.Parallel()
	all := listed{ids: []string{"a", "b1", "b2", "b\U0010ffff", "c"}, gone: "b1"}
	for _, tt := range []struct {
		q    telemetry.SensorQuery
		want []string
	}{
		{telemetry.SensorQuery{}, []string{"a", "b2", "b\U0010ffff", "c"}},
		{telemetry.SensorQuery{Limit: 2}, []string{"a", "b2"}},
		{telemetry.SensorQuery{Prefix: "b"}, []string{"b2", "b\U0010ffff"}},
		{telemetry.SensorQuery{Prefix: "b\xf4"}, []string{"b\U0010ffff"}},
		{telemetry.SensorQuery{After: "b2", Limit: 1}, []string{"b\U0010ffff"}},
		{telemetry.SensorQuery{Prefix: "d"}, nil},
	} {
		var got []string
		for seen, err := range all.index().Sensors(t.Context(), tt.q) {
			require.NoError(t, err)
			assert.EqualValues(t, newestOf, seen.Newest)
			got = append(got, seen.Sensor)
		}
		assert.Equal(t, tt.want, got, "%+v", tt.q)
	}
}

func TestSensorsEndWithTheError(t *testing.T) {
	t.Parallel()
	var got []string
	var last error
	for seen, err := range (listed{ids: []string{"a", "b", "c"}, broken: "b"}).index().Sensors(t.Context(), telemetry.SensorQuery{}) {
		require.NoError(t, last, "nothing comes behind an error")
		if last = err; err == nil {
			got = append(got, seen.Sensor)
		}
	}
	assert.Equal(t, []string{"a"}, got)
	require.ErrorIs(t, last, errBroken)
	assert.EqualError(t, last, `list sensors: look at sensor "b": broken`)
}

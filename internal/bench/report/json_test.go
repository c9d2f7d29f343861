package report

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := aResult()
	r.Rows[0].Min = math.Inf(1)
	require.NoError(t, JSON(&b, r))
	var got struct {
		Experiment  string
		Environment map[string]any
		Rows        []map[string]any
		Tables      []struct {
			Name     string
			Measures []bench.Measure
			Rows     []struct{ Samples [][]*float64 }
		}
		LeftOut []map[string]string `json:"left_out"`
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	assert.Equal(t, "granularity", got.Experiment)
	assert.Equal(t, "8.0.4", got.Environment["mongod"])
	require.Len(t, got.Rows, 4)
	for _, row := range got.Rows {
		for _, key := range []string{"claim", "unit", "published", "published_as", "measured", "measured_as", "verdict", "why"} {
			assert.Contains(t, row, key)
		}
	}
	assert.Nil(t, got.Rows[0]["measured_min"])
	require.Len(t, got.Tables, 2)
	assert.Equal(t, bench.Measure{Name: "round trip", Unit: bench.Seconds}, got.Tables[0].Measures[0])
	assert.InDelta(t, 111e-6, *got.Tables[0].Rows[0].Samples[0][1], 1e-12)
	assert.Equal(t, "the standalone mongod", got.LeftOut[0]["what"])
	for _, absent := range []string{`"interrupted"`, `"error"`, `"Plots"`} {
		assert.NotContains(t, b.String(), absent)
	}
	assert.Contains(t, b.String(), "a|b <b>", "read by people too")
}

func TestJSONOfAll(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, JSON(&b, []*bench.Result{aResult(), aFailure()}))
	var got []map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Len(t, got, 2)
	assert.Equal(t, []any{}, got[1]["rows"])
	assert.Contains(t, got[1]["error"], "mongod said")
	b.Reset()
	require.NoError(t, JSON(&b, []*bench.Result(nil)))
	assert.JSONEq(t, "[]", b.String())
}

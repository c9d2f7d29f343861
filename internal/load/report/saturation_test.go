package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

// aQueue is a run that was fully accepted in the end: 64 connections at 31 ms per answer are
// too few for 2,004 requests per second.
func aQueue() *load.Result {
	r := aResult()
	r.Service = load.Quantiles{Mean: 0.0312, P50: 0.031, P90: 0.04, P99: 0.06, P999: 0.08, Max: 0.1}
	r.Response = load.Quantiles{Mean: 0.9, P50: 0.85, P90: 1.6, P99: 1.8, P999: 1.81, Max: 1.82}
	return r
}

func TestSaturation(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*load.Result)
		want   []string // parts of the message; none: not saturated
	}{
		"as asked":           {func(*load.Result) {}, nil},
		"dropped":            {func(r *load.Result) { r.Dropped, r.Sent = 15_691, 104_549 }, []string{"15,691 of 120,240 readings (13.0 %) were dropped", "Lower the load"}},
		"one dropped":        {func(r *load.Result) { r.Dropped = 1 }, []string{"1 of 120,241 readings (<0.01 %) were dropped"}},
		"turned away":        {func(r *load.Result) { r.Failures, r.Failed = map[string]int64{"503": 1300, "timeout": 1}, 1301 }, []string{"1,301 of 120,240 requests (1.1 %) were turned away or not answered in time"}},
		"a few turned away":  {func(r *load.Result) { r.Failures, r.Failed = map[string]int64{"503": 100}, 100 }, nil},
		"not let in":         {func(r *load.Result) { r.Failures, r.Failed = map[string]int64{"401": 120_240}, 120_240 }, nil},
		"a queue":            {func(r *load.Result) { *r = *aQueue() }, []string{"the median response took 850 ms and the median service 31 ms, because requests waited to be sent: all 64 connections were waiting for answers"}},
		"a slow generator":   {func(r *load.Result) { *r = *aQueue(); r.Setup.Connections = 640 }, []string{"there was too little CPU for the generator"}},
		"slow, and in time":  {func(r *load.Result) { *r = *aQueue(); r.Response.P50 = 0.04 }, nil},
		"a stall":            {func(r *load.Result) { r.Response.P99, r.Response.Max = 8, 10 }, nil},
		"nothing was taken":  {func(r *load.Result) { *r = *aQueue(); r.Service = load.Quantiles{} }, nil},
		"interrupted, whole": {func(r *load.Result) { r.Interrupted = true }, nil},
	} {
		r := aResult()
		row.change(r)
		got := Saturation(r)
		if len(row.want) == 0 {
			assert.Empty(t, got, name)
			continue
		}
		for _, part := range row.want {
			assert.Contains(t, got, part, name)
		}
		assert.False(t, judge(r).Good, name)
	}
}

func TestReportsBeginWithSaturation(t *testing.T) {
	t.Parallel()
	first, rest, _ := strings.Cut(textOf(t, aQueue()), "\n")
	assert.True(t, strings.HasPrefix(first, "SATURATED: the median response took"), first)
	assert.NotContains(t, rest, "SATURATED")
	assert.Contains(t, rest, "The load was sustained, but with delay: ")
	assert.NotContains(t, textOf(t, aResult()), "SATURATED")

	assert.Contains(t, htmlOf(t, aQueue()), "<div class=\"box bad\">\n<p>SATURATED: the median response")
}

func TestJSONOfSaturation(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		result    *load.Result
		saturated bool
	}{{aResult(), false}, {aQueue(), true}} {
		var b bytes.Buffer
		require.NoError(t, JSON(&b, row.result))
		var told struct {
			Saturated    *bool  `json:"saturated"`
			SaturatedWhy string `json:"saturated_why"`
			Sent         int64  `json:"sent"`
		}
		require.NoError(t, json.Unmarshal(b.Bytes(), &told))
		require.NotNil(t, told.Saturated)
		assert.Equal(t, row.saturated, *told.Saturated)
		assert.Equal(t, Saturation(row.result), told.SaturatedWhy)
		assert.Equal(t, row.result.Sent, told.Sent)
	}
}

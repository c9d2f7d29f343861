package advise

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAdviceAsText(t *testing.T) {
	t.Parallel()
	a := advised(t, meters(t))
	a.Environment.Mongod, a.Environment.Topologies = "6.0.5", []string{"replica_set"}
	a.Followed = &Followed{
		Serve: []string{"--storage", "bucket"}, Load: []string{"--sensors", "5"}, Trial: Trial{5, time.Hour, time.Second},
		Documents: Against{1000, 1100}, Bytes: Against{2e9, 1.9e9},
	}
	var b strings.Builder
	require.NoError(t, Text(&b, a, "streams:\n  readings:\n    storage: bucket\n"))
	text := b.String()
	for _, want := range []string{
		"50k sensors", "kept for 1825d", "granularity", "value: 1h", "value: zstd", "bucket-max-readings\n  value: 1000\n", "x the price\n",
		"    storage: bucket\n", "time series, zstd", "| checkpoints ", "does not prevent duplicates", "| chosen ", "CPU-hours of a month x 0.04",
		"flush-max\n", "What freshness costs", "+10.0 %", "-5.0 %", "brim load --sensors 5",
	} {
		assert.Contains(t, text, want)
	}
	assert.Len(t, a.Rejected, len(a.Figures.Candidates)-1)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") { // a table
			assert.LessOrEqual(t, len([]rune(line)), 101, line)
		}
	}
}

func TestAdviceAsJSON(t *testing.T) {
	t.Parallel()
	encoded, err := json.Marshal(advised(t, signal(t)))
	require.NoError(t, err)
	var a struct {
		Chosen struct {
			Storage, Compressor string
			Granularity         int64   `json:"granularity_ns"`
			Documents           float64 `json:"documents"`
			Data                float64 `json:"data_bytes"`
			Write               CPU     `json:"write_cpu_seconds"`
		}
		Choices  []Choice
		Rejected []struct {
			Why   string
			Price float64 `json:"disk_price"`
		}
	}
	require.NoError(t, json.Unmarshal(encoded, &a))
	assert.Equal(t, "bucket", a.Chosen.Storage)
	assert.EqualValues(t, time.Minute, a.Chosen.Granularity)
	for _, v := range []float64{a.Chosen.Documents, a.Chosen.Data, a.Chosen.Write.Mongod, a.Rejected[0].Price} {
		assert.Positive(t, v)
	}
	assert.NotContains(t, string(encoded), "NaN")
	for _, c := range a.Choices {
		assert.NotEmpty(t, c.Why, c.Setting)
		assert.NotContains(t, c.Why, "NaN")
	}
}

func TestTrialHasWholeWindowsWithinTheRetention(t *testing.T) {
	t.Parallel()
	a := advised(t, meters(t))
	at := a.trial(600_000, 20*time.Second)
	assert.Equal(t, Trial{500, 20 * time.Hour, 20 * time.Second}, at)
	assert.Equal(t, "3600", a.LoadFlags(at)[7])
	a.Needs.Retention = 10 * time.Hour
	assert.Equal(t, 9*time.Hour, a.trial(600_000, time.Second).Event)
	few := advised(t, signal(t)).trial(600_000, time.Second)
	assert.Equal(t, 1, few.Sensors)
	assert.Zero(t, math.Mod(few.Event.Minutes(), 1))
}

// TestTrialOfRareReadingsBeginsAfter1970 even if 600,000 readings of a sensor overflow a
// duration.
func TestTrialOfRareReadingsBeginsAfter1970(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{time.Hour, day, 30 * day} {
		for _, retention := range []time.Duration{0, MaxRetention} {
			n := needs(t, Needs{Sensors: 1, Interval: interval, Fields: 1, QuerySpan: 30 * day, Retention: retention})
			at := advised(t, n).trial(600_000, time.Second)
			assert.GreaterOrEqual(t, at.Event, 19*365*day, interval)
			assert.LessOrEqual(t, at.Event, 20*365*day, interval)
			assert.Equal(t, 1, at.Sensors)
		}
	}
}

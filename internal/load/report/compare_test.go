package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func comparison(t *testing.T, a, b *load.Result) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Compare(&out, File{a, "a.json"}, File{b, "b.json"}))
	return out.String()
}

func TestCompareShowsFiguresBesideEachOther(t *testing.T) {
	t.Parallel()
	a, b := aResult(), aResult()
	b.AchievedRate, b.Failed = a.AchievedRate/2, 7
	b.Response.P99, b.ByFill[9].P99, b.StoreByFill[0].P99 = 0.0144, 0.0042, 0.0005
	b.StoreByFill[3].Count, b.StoreByFill[3].P50, b.StoreByFill[3].P99 = 0, 0, 0
	b.Setup.EventStart = b.Setup.EventStart.Add(time.Hour) // in every run another
	text := comparison(t, a, b)
	for _, want := range []string{
		"| achieved            | 2,003/s | 1,002/s | 0.50 |\n",
		"| readings failed     |       0 |       7 |    – |\n",
		"| response p99        |  7.2 ms | 14.4 ms | 2.00 |\n",
		"| service p999        | 10.1 ms | 10.1 ms | 1.00 |\n",
		"| 30–40 %  | 1.2 ms |      – |    – | 3.5 ms |      – |    – |\n",
		"| 0–10 %   | 900 µs | 900 µs | 1.00 |   2 ms | 500 µs | 0.25 |\n",
		"- A: a.json, of 2026-11-21 10:00:00, http://127.0.0.1:8430, stream readings (bucket), brim 1.2.3\n", "- B: b.json, of",
		"A and B had the same load.\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "differ")
	assert.NotContains(t, text, "Response time by", "the store's time says more about the fill")
	a.StoreByFill = nil
	text = comparison(t, a, b)
	assert.Contains(t, text, "Response time by elapsed part of the window")
	assert.Contains(t, text, "| 90–100 % | 2.19 ms | 2.19 ms | 1.00 | 8.4 ms | 4.2 ms | 0.50 |\n")
	assert.NotContains(t, text, ackNote)
	a.Setup.Ack = ""
	assert.Contains(t, comparison(t, a, b), ackNote)
}

func TestCompareWarnsOfOtherLoad(t *testing.T) {
	t.Parallel()
	b := aResult()
	b.Setup.Storage, b.Setup.Target, b.Setup.GranularitySeconds = "timeseries", "grpc://h:1", 60
	b.Setup.Ack, b.Setup.Protocol = "journaled", "grpc"
	text := comparison(t, aResult(), b)
	assert.Contains(t, text, "Differences between the runs\n")
	assert.Contains(t, text, "A and B had the same load.\n")
	assert.Regexp(t, `storage +\| bucket +\| timeseries \|\n`, text)

	b.Setup.Batch, b.Setup.Rate, b.StoreByFill = 10, "1..2", nil
	text = comparison(t, aResult(), b)
	assert.Contains(t, text, "Warning: A and B had different loads, which differ in\n")
	assert.Regexp(t, `batch +\| +1 +\| +10 +\|\n`, text)
	assert.Regexp(t, `rate +\| +– +\| +1\.\.2 +\|\n`, text)
	assert.NotContains(t, text, "daemon's own time")
}

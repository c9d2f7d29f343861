package report

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func textOf(t *testing.T, r *load.Result) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Text(&b, r))
	return b.String()
}

func TestTextHasEveryFigure(t *testing.T) {
	t.Parallel()
	text := textOf(t, aResult())
	for _, want := range []string{
		"http://127.0.0.1:8430, stream readings (bucket, windows of 1h)", "sensors 167, interval 5 s of event time, speed-up 60, fields 4, seed 1",
		"batch 1, ack stored, connections 64, in flight at most 10,000", "due for 60 s", "brim 1.2.3",
		"2026-11-21 09:00:00 to 2026-11-21 10:00:00 UTC",
		"2,003 of 2,004 readings a second were acknowledged (99.96 %), none dropped, none failed.", "Rejected readings: 42 (0.03 % of those sent), in requests that were answered.",
		"| readings | 120,240 | 120,198 |       42 |      0 |       0 |  120,240 |",
		"| response | 2.13 ms | 1.76 ms | 3.01 ms | 7.2 ms | 62.1 ms | 104 ms | from when a request was due ",
		"| service  | 1.71 ms | 1.55 ms | 2.41 ms | 4.3 ms | 10.1 ms | 103 ms | from when it was sent",
		"| 0–10 %   |   12,024 |  1.2 ms |   3 ms |   1,670 | 900 µs |   2 ms |\n",
		"| 90–100 % |   12,024 | 2.19 ms | 8.4 ms |   1,679 | 1.8 ms | 6.5 ms |\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, " \n")
}

func TestTextWithoutTheDaemonsTimes(t *testing.T) {
	t.Parallel()
	r := aResult()
	r.StoreByFill = nil
	text := textOf(t, r)
	assert.Contains(t, text, "| 0–10 %   |   12,024 |  1.2 ms |   3 ms |\n")
	assert.NotContains(t, text, "updates")
}

func TestTextOfAnOverload(t *testing.T) {
	t.Parallel()
	r := anOverload()
	r.FirstErrors[1] = "\x1b[2J\tgone"
	text := textOf(t, r)
	for _, want := range []string{
		"The load was not sustained: 11,000 of 20,040 readings a second were acknowledged (54.9 %).",
		"Dropped readings: 400,000 (76.9 % of those due).",
		"Failed readings: 30,000 (25.0 % of those sent). Requests by reason: 503 29,000, timeout 999, connection 1.",
		"Failed and dropped readings were never answered, so each percentile of the response time is a lower bound.",
		"- the answer is 503: journal_full: the journal is full and more\n", "- ?[2J gone\n",
	} {
		assert.Contains(t, text, want)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*load.Result)
		good   bool
		head   string
	}{
		"as asked":       {func(*load.Result) {}, true, "was sustained: 2,003"},
		"a bit slow":     {func(r *load.Result) { r.AchievedRate = 0.985 * r.OfferedRate }, false, "not sustained: "},
		"a few dropped":  {func(r *load.Result) { r.Dropped = 1 }, false, "not sustained: "},
		"a few failed":   {func(r *load.Result) { r.Failed, r.Failures = 1, map[string]int64{"503": 1} }, false, "not sustained: "},
		"a slow end":     {func(r *load.Result) { r.DrainSeconds = 3.1 }, false, "not sustained: the last answer came 3.1 s after the end of the schedule; 2,003"},
		"an end":         {func(r *load.Result) { r.DrainSeconds = 2.9 }, true, "was sustained: "},
		"a short run":    {func(r *load.Result) { r.DrainSeconds, r.Setup.DurationSeconds = 1.1, 5 }, false, "not sustained: the last"},
		"interrupted":    {func(r *load.Result) { r.Interrupted = true }, false, "interrupted; until then 2,003 of 2,004 readings a second"},
		"one a second":   {func(r *load.Result) { r.OfferedRate, r.AchievedRate = 1, 1 }, true, "1 of 1 readings a second were acknowledged (100 %)"},
		"less than that": {func(r *load.Result) { r.OfferedRate, r.AchievedRate = 0.4, 0.4 }, true, "0.4 of 0.4 readings a second were acknowledged (100 %)"},
		"just not":       {func(r *load.Result) { r.AchievedRate = 0.989999 * r.OfferedRate }, false, "(98.9 %)"},
		"nothing at all": {func(r *load.Result) { *r = load.Result{} }, false, "Nothing was sent."},
	} {
		r := aResult()
		row.change(r)
		v := judge(r)
		assert.Equal(t, row.good, v.Good, name)
		assert.Contains(t, v.Head, row.head, name)
	}
}

func TestSetupHasTheActualInterval(t *testing.T) {
	t.Parallel()
	r := aResult()
	r.Setup.IntervalSeconds, r.Setup.AskedIntervalSeconds, r.Setup.Rate, r.Setup.Sensors = 5.01, 5, "2000", 1
	assert.Contains(t, textOf(t, r), "sensors 1, interval 5.01 s of event time (5 s requested), speed-up 60")
}

func TestReportsOfNothing(t *testing.T) {
	t.Parallel()
	r := &load.Result{ByFill: make([]load.FillRow, 10)}
	text := textOf(t, r)
	assert.NotContains(t, text, "NaN")
	assert.Contains(t, text, "| response | –    | –   | –   | –   | –    | –   | from")
	var b bytes.Buffer
	require.NoError(t, HTML(&b, r))
	assert.NotContains(t, b.String(), "NaN")
	assert.Contains(t, b.String(), "no data yet")
	require.NoError(t, JSON(&b, r))
}

func TestPercentIsNeverRoundedToAll(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{0: "0.00 %", 0.0001: "<0.01 %", 0.5: "0.50 %", 54.88: "54.9 %", 98.9999: "98.9 %", 99.95: "99.95 %", 99.994: "99.99 %", 99.9999: "100 %", 100: "100 %", 103: "103.0 %"} {
		assert.Equal(t, want, percent(part, 100))
	}
	assert.Equal(t, "–", percent(1, 0))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	r := aResult()
	for _, err := range []error{Text(brokenWriter{}, r), JSON(brokenWriter{}, r), HTML(brokenWriter{}, r)} {
		require.ErrorContains(t, err, "no room")
	}
}

package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"p99>50ms":            "",
		"p99>7ms":             "p99>7ms: p99 is 7.2 ms",
		" p99 > 7000 us ":     "p99>7000us: p99 is 7.2 ms",
		"p99>=0.0072s":        "p99>=0.0072s: p99 is 7.2 ms",
		"p99>0.0072s":         "",
		"response.max>100ms":  "response.max>100ms: response.max is 104.3 ms",
		"service.p99>4.2ms":   "service.p99>4.2ms: service.p99 is 4.3 ms",
		"service.p99>4.4ms":   "",
		"mean<=2130µs":        "mean<=2130µs: mean is 2.13 ms",
		"p50<1ms":             "",
		"store.p99>6ms":       "store.p99>6ms: store.p99 is 6.5 ms",
		"store.p99>7ms":       "",
		"store.p50>1.7ms":     "store.p50>1.7ms: store.p50 is 1.8 ms",
		"achieved<99%":        "achieved<99%: achieved is 54.89 %",
		"achieved<50%":        "",
		"achieved<11001/s":    "achieved<11001/s: achieved is 11000",
		"achieved<11000":      "",
		"dropped>0":           "dropped>0: dropped is 400000",
		"dropped>80%":         "",
		"failed>20%":          "failed>20%: failed is 24.95 %",
		"rejected>42":         "",
		"rejected>=42":        "rejected>=42: rejected is 42",
		"rejected>1e2":        "",
		"drain>1s":            "drain>1s: drain is 1500 ms",
		"drain>2s":            "",
		"p99<7.2004ms":        "p99<7.2004ms: p99 is 7.2 ms",
		"response.p90>3.0 ms": "response.p90>3.0ms: response.p90 is 3.01 ms",
	} {
		c, err := ParseCondition(condition)
		require.NoError(t, err, condition)
		r := anOverload()
		r.Strict = nil // as if everything had been accepted
		if err := c.Check(r); want == "" {
			assert.NoError(t, err, condition)
		} else {
			assert.EqualError(t, err, want, condition)
		}
	}
}

func TestUnobservedFiguresFailTheirConditions(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"p99>50ms":          "p99>50ms: p99 is unknown, because no request was due",
		"service.mean<50ms": "service.mean<50ms: service.mean is unknown, because no request was answered",
		"store.p99>1s":      "store.p99>1s: store.p99 is unknown, because the daemon was not asked (--admin), or wrote nothing",
	} {
		c, err := ParseCondition(condition)
		require.NoError(t, err)
		assert.EqualError(t, c.Check(&load.Result{StoreByFill: make([]load.FillRow, 10)}), want)
	}
}

// TestFailedRequestsExceedAnyBound uses Result.Strict with a p99 among failed requests.
func TestFailedRequestsExceedAnyBound(t *testing.T) {
	t.Parallel()
	r := aResult()
	r.Failed, r.Dropped = 1300, 7
	r.Strict = &load.Quantiles{P50: 0.00176, P90: 0.004}
	const unknown = " is unknown, because it is among the readings that failed (1,300) or were dropped (7)"
	for condition, want := range map[string]string{
		"p50>1.8ms":            "",
		"p90>3.5ms":            "p90>3.5ms: p90 is 4 ms",
		"p99>50ms":             "p99>50ms: p99" + unknown,
		"response.p99>=1000s":  "response.p99>=1000s: response.p99" + unknown,
		"p99<50ms":             "",
		"p99<=50ms":            "",
		"max>1000s":            "max>1000s: max" + unknown,
		"mean>1000s":           "mean>1000s: mean" + unknown,
		"service.p99>50ms":     "",
		"service.p999<=10.1ms": "service.p999<=10.1ms: service.p999 is 10.1 ms",
	} {
		c, err := ParseCondition(condition)
		require.NoError(t, err)
		if err := c.Check(r); want == "" {
			assert.NoError(t, err, condition)
		} else {
			assert.EqualError(t, err, want, condition)
		}
	}
}

// TestMessageNeverRoundsToTheBound uses values that round to the bound.
func TestMessageNeverRoundsToTheBound(t *testing.T) {
	t.Parallel()
	r := aResult()
	r.OfferedRate, r.AchievedRate, r.Response.P99 = 1000, 989.999, 0.007201
	r.StoreByFill[4].P99 = 0.0099 // the maximum need not be last
	for condition, want := range map[string]string{
		"achieved<99%":  "achieved is 98.999 %",
		"achieved<990":  "achieved is 989.999",
		"p99>7.2ms":     "p99 is 7.201 ms",
		"store.p99>9ms": "store.p99 is 9.9 ms",
	} {
		c, err := ParseCondition(condition)
		require.NoError(t, err)
		assert.EqualError(t, c.Check(r), condition+": "+want)
	}
}

func TestInvalidConditions(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"":                "allowed: > >= < <=",
		"p99":             "allowed: > >= < <=",
		"p99=5ms":         "allowed: > >= < <=",
		"p98>5ms":         "allowed: p50, p90, p99",
		"store.max>5ms":   "allowed: p50, p90, p99",
		"server.p99>5ms":  "allowed: p50, p90, p99",
		">5ms":            "allowed: p50, p90, p99",
		"p99>5":           "allowed: us, ms and s",
		"p99>5m":          "allowed: us, ms and s",
		"p99>5%":          "allowed: us, ms and s",
		"p99>ms":          `the bound "" is not a number`,
		"p99>>5ms":        `the bound ">5" is not a number`,
		"p99>-5ms":        "is not a number of 0 or more",
		"p99>NaNs":        "is not a number",
		"p99>1e999s":      "is not a number",
		"dropped>5ms":     `unit "ms" is unknown for dropped; allowed: % and none`,
		"dropped>5/s":     `unit "/s" is unknown for dropped; allowed: % and none`,
		"achieved<5 % ms": `unit "% ms" is unknown`,
	} {
		_, err := ParseCondition(condition)
		require.ErrorContains(t, err, want, condition)
	}
}

func FuzzParseCondition(f *testing.F) {
	for _, s := range []string{"p99>50ms", "service.p999 >= 1.5s", "achieved<99%", "dropped>0", "store.p99<=10us", "mean<1e-3s", "p50<<1s", "failed>µ"} {
		f.Add(s)
	}
	r := anOverload()
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCondition(s)
		if err != nil {
			return
		}
		again, err := ParseCondition(c.String())
		require.NoError(t, err, "%q became %q", s, c)
		assert.Equal(t, c.String(), again.String())
		assert.Equal(t, c.bound, again.bound)
		assert.Equal(t, c.Check(r) == nil, again.Check(r) == nil)
	})
}

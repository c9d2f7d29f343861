package read

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// FuzzParse parses requests: the result is within the bounds, or an error for
// the client.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "from=2026-11-21T10:00:00Z&to=2026-11-21T11:00:00+01:00&limit=5&after=1795255200000.1", "every=5m&from=0&to=1000", "every=1d",
		"prefix=a%2F&after=%C3%A4&limit=10000", "unstored=off&stream=x", "from=-1", "%zz", "limit=1;after=2", "every=-1h&from=1", "from=9999-12-31T23:59:59.999999Z",
	} {
		for i := range calls {
			f.Add(uint8(i), "s-1", s, "application/x-ndjson, */*;q=0.1")
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, sensor, query, accept string) {
		c := calls[int(which)%len(calls)]
		p, err := parse(c, sensor, &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{"Accept": {accept}}})
		if err != nil {
			kind := telemetry.KindOf(err)
			assert.True(t, kind == telemetry.Invalid || kind == telemetry.NotAcceptable, "%v", err)
			return
		}
		q := p.query
		assert.True(t, 0 <= q.From && q.From <= q.To && q.To <= maxTime, "%+v", q)
		switch c {
		case callReadings:
			assert.True(t, 1 <= q.Limit && q.Limit <= MaxLimit)
		case callSummary:
			to := q.To
			if to == maxTime { // without to, steps in the future do not count
				to = time.Now().UnixMilli()
			}
			if p.every > 0 && q.From < to {
				assert.LessOrEqual(t, (to-1)/p.every-q.From/p.every, int64(maxSteps))
			}
		case callSensors:
			assert.True(t, 1 <= p.list.Limit && p.list.Limit <= maxSensors)
		}
	})
}

// FuzzCursor parses cursors: a valid one is unchanged by a round trip, and
// never precedes the readings that it follows.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"0.1", "1795255200000.1", "1.0", "-1.1", "1.", ".1", "+1.+1", "01.1", "9999999999999999999.1", "1.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(c.String())
		assert.NoError(t, err)
		assert.Equal(t, c, again)
		assert.True(t, c.Millis >= 0 && c.Seen >= 0)
	})
}

// FuzzRoute finds the sensor in a path.
func FuzzRoute(f *testing.F) {
	for _, s := range []string{"/v1/sensors", "/v1/sensors/", "/v1/sensors/a", "/v1/sensors/a/readings", "/v1/sensors/%2F%2e/latest", "/v1/sensors/%zz/summary", "/v1/sensorsx", "//v1/sensors/a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		c, sensor, ok := parsePath(path)
		if !ok || c == callSensors {
			return
		}
		behind := "/" + string(c)
		if c == callDelete {
			behind = ""
		}
		again, same, ok := parsePath("/v1/sensors/" + strings.ReplaceAll(url.QueryEscape(sensor), "+", "%20") + behind)
		assert.True(t, ok)
		assert.Equal(t, c, again)
		assert.Equal(t, sensor, same)
	})
}

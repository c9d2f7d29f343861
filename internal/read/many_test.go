package read

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestReadingsOfManySensors pages through answers, with any page size and in each format.
func TestReadingsOfManySensors(t *testing.T) {
	t.Parallel()
	var all []telemetry.Reading
	want := []int64{}
	for at := range 3 {
		for s, id := range []string{"a.1", "b", "c d%/\u00e9", "other"} {
			all = append(all, reading(id, time.Duration(at)*time.Second, int64(10*s+at)))
		}
	}
	for _, s := range []int64{0, 10, 20} {
		want = append(want, s, s+1, s+2)
	}
	r := newReader(t, fakeSource{readings: all})
	sensors := url.Values{"sensor": {"c d%/\u00e9", "none", "b", "a.1", "b"}}.Encode()
	for limit := 1; limit <= 10; limit++ {
		for _, lines := range []bool{false, true} {
			var got []int64
			for after, first := "", true; first || after != ""; first = false {
				var page []int64
				page, after = getPage(t, r, fmt.Sprintf("%s?limit=%d&after=%s&%s", readingsPath, limit, url.QueryEscape(after), sensors), lines)
				if lines {
					var err error
					after, err = url.PathUnescape(after) // escaped in the header
					require.NoError(t, err)
				}
				require.LessOrEqual(t, len(page), limit)
				got = append(got, page...)
			}
			assert.Equal(t, want, got, "limit %d, lines %v", limit, lines)
		}
	}
	span := get(r, fmt.Sprintf("%s?sensor=b&sensor=a.1&from=%d&to=%d", readingsPath, base.Add(time.Second).UnixMilli(), base.Add(2*time.Second).UnixMilli()), "text/csv")
	assert.Equal(t, 2, strings.Count(span.body, "2026-11-21T10:00:01.000Z"), span.body)
}

// TestPagesOfManySensorsEndBeforeAMillisecond, which may be a sensor's first one.
func TestPagesOfManySensorsEndBeforeAMillisecond(t *testing.T) {
	t.Parallel()
	at := func(sensor string, ms, v int64) telemetry.Reading {
		r := reading(sensor, 0, v)
		r.Time = time.UnixMilli(ms).UTC()
		return r
	}
	r := newReader(t, fakeSource{readings: []telemetry.Reading{at("b", 0, 3), at("b", 0, 4), at("a", 5, 1), at("a", 6, 2)}})
	page, after := getPage(t, r, readingsPath+"?sensor=a&sensor=b&limit=3", false)
	assert.Equal(t, []int64{1, 2}, page)
	page, after = getPage(t, r, readingsPath+"?sensor=a&sensor=b&limit=3&after="+after, false)
	assert.Equal(t, []int64{3, 4}, page)
	assert.Empty(t, after)
}

// TestASensorAmongManyMayCostAsMuchAsAlone: the page ends before the next one.
func TestASensorAmongManyMayCostAsMuchAsAlone(t *testing.T) {
	t.Parallel()
	var all []telemetry.Reading
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, reading(id, 0, 1), reading(id, time.Second, 2))
	}
	r := newReader(t, fakeSource{readings: all, cost: 400 << 10}, func(c *Config, _ *Stored) { c.MaxBytes = 1 << 20 })
	n, pages := 0, 0
	for after, first := "", true; first || after != ""; first = false {
		var page []int64
		page, after = getPage(t, r, readingsPath+"?sensor=a&sensor=b&sensor=c&after="+after, false)
		n, pages = n+len(page), pages+1
	}
	assert.Equal(t, 6, n)
	assert.Equal(t, 3, pages)
}

func TestRequestsForManySensorsAreChecked(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}})
	for query, want := range map[string]string{
		"":                                   "parameter sensor is missing",
		"sensor=":                            "has no value",
		"sensor=a&unstored=only":             "allowed: on and off",
		"sensor=a&after=1.2":                 "is not a cursor",
		"sensor=a&after=1.2.b":               "is not a cursor of these sensors",
		"sensor=a&after=x.2.a":               "is not a cursor",
		"sensor=%ff":                         "sensor ",
		"sensor=a&x=1":                       "is unknown",
		strings.Repeat("&sensor=a", 101)[1:]: "given 101 times",
	} {
		got := get(r, readingsPath+"?"+query)
		assert.Equal(t, http.StatusTeapot, got.status, query)
		assert.Contains(t, got.body, want, query)
	}
	assert.False(t, Serves(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: readingsPath}}), "that is ingest's")

	guard, token := guardFor(t, "read", "a")
	who, err := guard.Identify(access.Credentials{Secret: token})
	require.NoError(t, err)
	req := httptest.NewRequest(http.MethodGet, readingsPath+"?sensor=a&sensor=b", http.NoBody)
	w := httptest.NewRecorder()
	r.UnguardedHandler().ServeHTTP(w, req.WithContext(access.With(req.Context(), who)))
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.NotContains(t, w.Body.String(), "readings\":", "nothing of a is shown either")
}

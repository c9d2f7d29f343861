package read

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestPagesAddUp pages through readings, many with the same time, with any page
// size: each is returned once.
func TestPagesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		times := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 40).Draw(rt, "times")
		slices.Sort(times)
		all := make([]telemetry.Reading, len(times))
		for i, at := range times {
			all[i] = reading("a", time.Duration(at)*time.Second, int64(i))
		}
		r := newReader(rt, fakeSource{readings: all})
		limit := rapid.IntRange(1, 10).Draw(rt, "limit")
		lines := rapid.Bool().Draw(rt, "lines")
		var got []int64
		for after, first := "", true; first || after != ""; first = false {
			target := fmt.Sprintf("/v1/sensors/a/readings?limit=%d&after=%s&from=%d", limit, url.QueryEscape(after), base.UnixMilli())
			var page []int64
			page, after = getPage(rt, r, target, lines)
			require.LessOrEqual(rt, len(page), limit)
			got = append(got, page...)
		}
		want := make([]int64, 0, len(all))
		for i := range all {
			want = append(want, int64(i))
		}
		require.Equal(rt, want, append([]int64{}, got...))
	})
}

// TestMillisecondIsOnOnePage: its readings change order when they are stored,
// and another daemon's readings are inserted between them.
func TestMillisecondIsOnOnePage(t *testing.T) {
	t.Parallel()
	for _, lines := range []bool{false, true} {
		before := newReader(t, fakeSource{readings: []telemetry.Reading{
			reading("a", 0, 1), reading("a", time.Second, 2), reading("a", time.Second, 3), reading("a", 2*time.Second, 4),
		}})
		then := newReader(t, fakeSource{readings: []telemetry.Reading{
			reading("a", 0, 8), reading("a", 0, 1), reading("a", time.Second, 9), reading("a", time.Second, 3), reading("a", time.Second, 2), reading("a", 2*time.Second, 4),
		}})
		page, after := getPage(t, before, "/v1/sensors/a/readings?limit=1", lines)
		assert.Equal(t, []int64{1}, page)
		page, _ = getPage(t, then, "/v1/sensors/a/readings?after="+after, lines)
		assert.Equal(t, []int64{9, 3, 2, 4}, page, "the page before ended with its millisecond")
		page, after = getPage(t, before, "/v1/sensors/a/readings?limit=2", lines)
		assert.Equal(t, []int64{1}, page, "it does not end inside a millisecond")
		page, _ = getPage(t, then, "/v1/sensors/a/readings?after="+after, lines)
		assert.Equal(t, []int64{9, 3, 2, 4}, page)
		page, after = getPage(t, before, "/v1/sensors/a/readings?limit=1&after="+after, lines)
		assert.Equal(t, []int64{2}, page, "one that is longer than a page is cut")
		page, _ = getPage(t, before, "/v1/sensors/a/readings?after="+after, lines)
		assert.Equal(t, []int64{3, 4}, page)
	}
}

// TestPieceDoesNotEndInsideAMillisecond, since sent readings cannot be revoked.
func TestPieceDoesNotEndInsideAMillisecond(t *testing.T) {
	t.Parallel()
	large := make([]telemetry.Reading, 24)
	for i := range large {
		large[i] = reading("a", time.Duration(i/4)*time.Second, int64(i))
		large[i].Fields = append(large[i].Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", firstPiece/3))})
	}
	r := newReader(t, fakeSource{readings: large})
	var got []int64
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		var page []int64
		page, after = getPage(t, r, "/v1/sensors/a/readings?limit=11&after="+after, true)
		require.Zero(t, len(page)%4, "page %d", pages)
		got = append(got, page...)
	}
	assert.Len(t, got, len(large))
	assert.True(t, slices.IsSorted(got))
}

func TestPageOfLargeReadingsEndsEarly(t *testing.T) {
	t.Parallel()
	large := make([]telemetry.Reading, 30)
	for i := range large {
		large[i] = reading("a", time.Duration(i)*time.Second, int64(i))
		large[i].Fields = append(large[i].Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", maxPageBytes/10))})
	}
	r := newReader(t, fakeSource{readings: large})
	first, after := getPage(t, r, "/v1/sensors/a/readings", false)
	assert.Less(t, len(first), 12)
	require.NotEmpty(t, after)
	second, _ := getPage(t, r, "/v1/sensors/a/readings?after="+after, false)
	assert.EqualValues(t, len(first), second[0], "the next page goes on where the first ended")
}

func TestPageAfterTheSpanIsEmpty(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1), reading("a", time.Minute, 2)}})
	got, after := getPage(t, r, fmt.Sprintf("/v1/sensors/a/readings?to=%d&after=%d.1", base.UnixMilli(), base.Add(time.Hour).UnixMilli()), false)
	assert.Empty(t, got)
	assert.Empty(t, after)
	got, _ = getPage(t, r, fmt.Sprintf("/v1/sensors/a/readings?from=%d&after=%d.1", base.Add(time.Minute).UnixMilli(), base.UnixMilli()), false)
	assert.Equal(t, []int64{2}, got, "a cursor before the span skips nothing")
}

func TestSensorsOfAllPagesAddUp(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "a%", "a/b", "ä", "ä b", "𝄞"}
	var all []telemetry.Reading
	for _, id := range ids {
		all = append(all, reading(id, 0, 1))
	}
	r := newReader(t, fakeSource{readings: all})
	var got []string
	for after := ""; ; {
		page := get(r, "/v1/sensors?limit=2&after="+after, asLines)
		for line := range strings.Lines(page.body) {
			var s struct{ SensorID string }
			require.NoError(t, json.Unmarshal([]byte(line), &s))
			got = append(got, s.SensorID)
		}
		if after = page.header.Get(telemetry.AfterHeader); after == "" {
			break
		}
	}
	assert.Equal(t, ids, got)
}

func getPage(t require.TestingT, r *Reader, target string, lines bool) (values []int64, after string) {
	type line struct {
		Fields struct{ V int64 }
	}
	var body struct {
		Readings []line
		After    string
	}
	if lines {
		got := get(r, target, asLines)
		body.After = got.header.Get("Brim-After")
		for s := range strings.Lines(got.body) {
			var l line
			require.NoError(t, json.Unmarshal([]byte(s), &l))
			body.Readings = append(body.Readings, l)
		}
	} else {
		require.NoError(t, json.Unmarshal([]byte(get(r, target).body), &body))
	}
	for _, r := range body.Readings {
		values = append(values, r.Fields.V)
	}
	return values, body.After
}

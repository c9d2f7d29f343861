package read

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// listed fetches all pages of a list of sensors, and returns a line for each.
func listed(t *testing.T, r *Reader, query string) (sensors []string, pages int) {
	t.Helper()
	for after := ""; ; {
		got := get(r, "/v1/sensors?"+query+after)
		require.Equal(t, http.StatusOK, got.status, got.body)
		var page struct {
			Sensors []struct {
				SensorID string
				Newest   time.Time
			}
			After string
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &page))
		for _, s := range page.Sensors {
			sensors = append(sensors, s.SensorID+" "+s.Newest.Sub(base).String())
		}
		if pages++; page.After == "" {
			return sensors, pages
		}
		after = "&after=" + url.QueryEscape(page.After)
	}
}

// TestPendingSensorsAreListed: sensors are stored, journaled, or both, with the
// newest reading in either.
func TestPendingSensorsAreListed(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	journaled(t, j, readingsOf("readings", 0, "given-up"))
	begin := j.End()
	journaled(t, j, readingsOf("other", 50, "elsewhere"))
	journaled(t, j, readingsOf("readings", 10, "a", "north/new", "stored", "a"))
	journaled(t, j, readingsOf("readings", 5, "a", "north/old", "north/new"))
	stored := fakeSource{readings: []telemetry.Reading{reading("b", 0, 1), reading("north/old", time.Minute, 1), reading("stored", time.Second, 1)}}
	r := newReader(t, stored, func(_ *Config, s *Stored) {
		s.Sources["other"] = fakeSource{}
		s.Backlog = Backlog{
			Journal: j, WaitingSensors: func(stream string, visit func(string, int64, func() [][]telemetry.Tag)) (uint64, func(uint64) uint64) {
				if stream == "readings" {
					visit("a", base.UnixMilli(), func() [][]telemetry.Tag { return nil })
				}
				return j.Oldest(), func(hash uint64) uint64 {
					if hash == batch.SeriesHash("readings", "given-up") {
						return begin // this lane is ahead of the others
					}
					return j.Oldest()
				}
			},
		}
	})
	all := []string{"a 13s", "b 0s", "north/new 11s", "north/old 1m0s", "stored 12s"}
	for limit := 1; limit <= 6; limit++ {
		got, pages := listed(t, r, fmt.Sprintf("limit=%d", limit))
		assert.Equal(t, all, got, "%d a page", limit)
		assert.Equal(t, (len(all)+limit-1)/limit, pages)
	}
	for query, want := range map[string][]string{
		"prefix=north/":            all[2:4],
		"prefix=north/&limit=1":    all[2:4],
		"after=b":                  all[2:],
		"after=north/new&prefix=n": all[3:4],
		"prefix=nowhere":           nil,
		"stream=other":             {"elsewhere 50s"},
		"unstored=off":             {"b 0s", "north/old 1m0s", "stored 1s"},
	} {
		got, _ := listed(t, r, query)
		assert.Equal(t, want, got, query)
	}
}

// TestPagesOfPendingSensorsAddUp: there are many more sensors than a page holds
// in memory, unordered and partly stored; nothing changes between pages.
func TestPagesOfPendingSensorsAddUp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	v := openJournal(t)
	newest := make(map[string]time.Duration)
	var stored fakeSource
	for range 40 {
		ids, first := make([]string, 50), random.IntN(10_000)
		for i := range ids {
			ids[i] = fmt.Sprintf("s-%d", random.IntN(600))
			at := time.Duration(first+i) * time.Second
			newest[ids[i]] = max(newest[ids[i]], at)
			if random.IntN(10) == 0 {
				stored.readings = append(stored.readings, reading(ids[i], 2*at, 1))
				newest[ids[i]] = max(newest[ids[i]], 2*at)
			}
		}
		journaled(t, v, readingsOf("readings", first, ids...))
	}
	var want []string
	for id, at := range newest {
		want = append(want, id+" "+at.String())
	}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	r := newReader(t, stored, func(_ *Config, s *Stored) {
		var rest atomic.Uint64
		rest.Store(v.Oldest())
		s.Backlog = backlogOf(v, &rest)
	})
	for _, limit := range []int{1, 7, 100, 599, 10_000} {
		got, pages := listed(t, r, fmt.Sprintf("limit=%d", limit))
		require.Equal(t, want, got, "%d a page", limit)
		assert.Equal(t, (len(want)+limit-1)/limit, pages)
	}
}

func TestPendingSensorsAreSearchedWithinABound(t *testing.T) {
	t.Parallel()
	j := openJournal(t, func(c *journal.Config) { c.TailBytes = 1 })
	long := strings.Repeat("x", 1000)
	for i := range 12 {
		b := batch.NewBuilder(base)
		for k := range 100 {
			b.Begin("readings", k, telemetry.TimeRange{Newest: math.MaxInt64})
			b.Sensor(fmt.Appendf(nil, "%d%s", 100*i+k, long))
			b.Time(base.UnixMilli())
			b.Int([]byte("v"), 1)
			require.Nil(t, b.End())
		}
		journaled(t, j, b.Batch())
	}
	var rest, collected atomic.Uint64
	rest.Store(j.Oldest())
	peer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		collected.Add(1)
		w.WriteHeader(http.StatusNotFound)
	})
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}}, func(c *Config, s *Stored) {
		c.MaxBacklog, s.Backlog = 1<<20, backlogOf(j, &rest)
		s.Others = &others{daemons: map[string]http.Handler{"there:8430": peer}}
	})
	got := get(r, "/v1/sensors").body
	assert.Contains(t, got, "backlog_too_long")
	assert.EqualValues(t, 1, collected.Load(), "the answers of peers, though they are not used")
	assert.Contains(t, got, "unstored=off")
	assert.Contains(t, get(r, "/v1/sensors?unstored=off").body, `"a"`)
	rest.Store(j.End())
	assert.Contains(t, get(r, "/v1/sensors").body, `"a"`)

	p := newPending(telemetry.SensorQuery{Limit: 10})
	for i := range 100_000 {
		p.add(fmt.Sprint(i), int64(i), func() telemetry.Sensor { return telemetry.Sensor{} })
		require.LessOrEqual(t, len(p.found), 20)
	}
	for i, want := range []string{"0", "1", "10"} {
		assert.Equal(t, want, p.sorted()[i].ID)
		assert.Equal(t, want, fmt.Sprint(p.sorted()[i].Newest))
	}
}

// TestTrimmingMayOvertakeAListOfSensors trims a journal during the search: what
// was trimmed is stored.
func TestTrimmingMayOvertakeAListOfSensors(t *testing.T) {
	t.Parallel()
	j := openJournal(t, func(c *journal.Config) { c.TailBytes, c.SegmentBytes = 1, 4<<10 })
	var ends []uint64
	for i := range 40 {
		ids := make([]string, 100)
		for k := range ids {
			ids[k] = fmt.Sprintf("s-%d", i)
		}
		journaled(t, j, readingsOf("readings", 1000*i, ids...))
		ends = append(ends, j.End())
	}
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	trimming := &trimmed{Journal: j, at: 3, trim: func() {
		rest.Store(ends[29])
		j.Trim(ends[29])
		require.Eventually(t, func() bool { return j.Status().Segments <= 12 }, time.Minute, time.Millisecond)
	}}
	r := newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(trimming, &rest) })
	got, _ := listed(t, r, "")
	for _, id := range []string{"s-0 ", "s-1 ", "s-2 ", "s-30 ", "s-35 ", "s-39 "} {
		assert.True(t, slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, id) }), id)
	}
	assert.Less(t, len(got), 40)

	r = newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(&broken{j}, &rest) })
	assert.Contains(t, get(r, "/v1/sensors").body, "search the journal: broken")
}

package read

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// waitingAt returns a batch with a reading of "a" at each second; its field v is the second.
func waitingAt(text string, seconds ...int) *batch.Batch {
	b := batch.NewBuilder(base)
	for i, at := range seconds {
		b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte("a"))
		b.Time(base.Add(time.Duration(at) * time.Second).UnixMilli())
		b.Int([]byte("v"), int64(at))
		if text != "" {
			b.Text([]byte("text"), []byte(text))
		}
		b.End()
	}
	return b.Batch()
}

func dropIdentical(s *Stored) {
	s.Duplicates = func(string) store.Duplicates { return store.DropIdentical }
}

// TestRepeatsDoNotHideWhatWaits pages through answers, with any page size, while readings
// and their duplicates wait in both daemons.
func TestRepeatsDoNotHideWhatWaits(t *testing.T) {
	t.Parallel()
	here, _, o := twoDaemons(t)
	dropIdentical(here.stored.Load())
	theirs := openJournal(t, func(c *journal.Config) { c.Session = "s3" })
	journaled(t, theirs, waitingAt("", 0, 1, 1, 1, 1, 2, 2, 3, 5, 6))
	var rest atomic.Uint64
	rest.Store(theirs.Oldest())
	o.daemons["third:8430"] = newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(theirs, &rest) }).Handler()
	for limit := 1; limit <= 8; limit++ {
		for path, sensors := range map[string]string{"/v1/sensors/a/readings": "", readingsPath: "&sensor=a"} {
			var got []int64
			for after, first := "", true; first || after != ""; first = false {
				var page []int64
				page, after = getPage(t, here, fmt.Sprintf("%s?limit=%d&after=%s%s", path, limit, url.QueryEscape(after), sensors), false)
				got = append(got, page...)
			}
			assert.Equal(t, []int64{0, 1, 2, 3, 5, 6, 10}, got, "limit %d, %s", limit, path)
		}
	}
}

// TestTooManyRepeatsAreNoEnd: more duplicates wait than one answer may hold.
func TestTooManyRepeatsAreNoEnd(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	long := strings.Repeat("x", 1000)
	for range 8 {
		journaled(t, j, waitingAt(long, make([]int, 1000)...))
	}
	journaled(t, j, waitingAt(long, 1))
	var rest atomic.Uint64
	rest.Store(j.Oldest())
	r := newReader(t, fakeSource{}, func(_ *Config, s *Stored) {
		s.Backlog = backlogOf(j, &rest)
		dropIdentical(s)
	})
	assert.Contains(t, get(r, "/v1/sensors/a/readings?limit=1").body, "backlog_too_long")
	from := base.Add(time.Second).UnixMilli()
	got := get(r, fmt.Sprintf("/v1/sensors/a/readings?limit=1&from=%d", from))
	require.Equal(t, http.StatusOK, got.status)
	assert.Contains(t, got.body, `"v":1`)
}

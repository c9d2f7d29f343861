package read

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// askAs sends a request with the identity of this name; without one if it is empty.
func askAs(r *Reader, w http.ResponseWriter, name, accept string) {
	req := httptest.NewRequest(http.MethodGet, "/v1/sensors/a/readings?limit=100000", http.NoBody)
	req.Header.Set("Accept", accept)
	if name != "" {
		req = req.WithContext(access.With(req.Context(), &access.Identity{Name: name}))
	}
	r.answerAll(w, req)
}

// answerAll serves a request after authentication.
func (r *Reader) answerAll(w http.ResponseWriter, req *http.Request) {
	defer func() { _ = recover() }() // net/http aborts connections by panicking
	r.serve(w, req, callReadings, "a")
}

func TestOneIdentityLeavesSlotsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, leavePlaces)
}

func leavePlaces(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	r := newReader(t, fakeSource{asked: func(context.Context) { inside <- struct{}{}; <-leave }}, func(c *Config, _ *Stored) { c.MaxQueries = 4 })
	var asked sync.WaitGroup
	begin := func(name string) {
		asked.Go(func() { askAs(r, httptest.NewRecorder(), name, asJSON) })
		<-inside
	}
	refused := func(name string) string {
		w := httptest.NewRecorder()
		askAs(r, w, name, asJSON)
		assert.Contains(t, w.Body.String(), "queries_too_many")
		return w.Body.String()
	}
	begin("greedy")
	begin("greedy")
	assert.Contains(t, refused("greedy"), "2 queries of greedy")
	begin("other")
	begin("")
	assert.Contains(t, refused("third"), "4 queries are being answered")
	close(leave)
	asked.Wait()
	assert.Zero(t, r.slots.used())
	assert.Empty(t, r.slots.of, "no identity is kept")
}

func TestSlotsAreGivenInTheOrderOfDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSlots(1)
		leave, err := p.enter(t.Context(), &access.Identity{}, time.Second)
		require.NoError(t, err)
		got := make(chan string, 4)
		var waiting sync.WaitGroup
		wait := func(name string, d time.Duration) {
			waiting.Go(func() {
				leave, err := p.enter(t.Context(), &access.Identity{}, d)
				if err != nil {
					name += " refused"
				}
				got <- name
				if err == nil {
					leave()
				}
			})
			synctest.Wait()
		}
		wait("impatient", time.Millisecond)
		wait("first", 30*time.Second)
		wait("second", 30*time.Second)
		wait("urgent", time.Second)
		<-time.After(10 * time.Millisecond) // in the bubble's time
		leave()
		waiting.Wait()
		for _, name := range []string{"impatient refused", "urgent", "first", "second"} {
			assert.Equal(t, name, <-got)
		}
		assert.Zero(t, p.used())
		assert.Empty(t, p.waiting)
	})
}

// A stuckClient reads nothing at all.
type stuckClient struct {
	*httptest.ResponseRecorder

	mu    sync.Mutex
	until time.Time
}

func (c *stuckClient) SetWriteDeadline(until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
	return nil
}

func (c *stuckClient) Write([]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	<-time.After(time.Until(c.until)) // in the bubble's time
	return 0, os.ErrDeadlineExceeded
}

func TestClientThatReadsNothingLosesItsSlot(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{asJSON, asLines} {
		synctest.Test(t, func(t *testing.T) {
			r := newReader(t, fakeSource{readings: many()})
			began := time.Now()
			askAs(r, &stuckClient{ResponseRecorder: httptest.NewRecorder()}, "", accept)
			assert.Equal(t, pieceTimeout, time.Since(began), "and not after --query-timeout")
			assert.Zero(t, r.slots.used())
		})
	}
}

// A pacedClient reads a piece per second.
type pacedClient struct {
	stuckClient

	longest time.Duration // longest deadline for a piece
}

func (c *pacedClient) Write(b []byte) (int, error) {
	c.longest = max(c.longest, time.Until(c.until))
	<-time.After(time.Second) // in the bubble's time
	return len(b), nil
}

func TestSlowClientGetsTheWholeAnswerInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, fakeSource{readings: many()})
		c := &pacedClient{stuckClient: stuckClient{ResponseRecorder: httptest.NewRecorder()}}
		began := time.Now()
		askAs(r, c, "", asJSON)
		assert.Greater(t, time.Since(began), 5*time.Second, "it took more pieces than one")
		assert.Equal(t, pieceTimeout, c.longest)
		assert.True(t, c.until.IsZero(), "the connection's next answer has its own time")
	})
}

func TestSummaryAsJSONIsBounded(t *testing.T) {
	t.Parallel()
	wide := make([]telemetry.FieldSummary, 256)
	for i := range wide {
		wide[i] = telemetry.FieldSummary{Name: strings.Repeat("n", 117) + string(rune('a'+i%26)), N: 1, Min: telemetry.IntValue(1), Max: telemetry.IntValue(1)}
	}
	r := newReader(t, wideSource{fields: wide})
	got := get(r, "/v1/sensors/a/summary?every=5m&from=2026-11-01T00:00:00Z&to=2026-11-14T00:00:00Z")
	assert.Contains(t, got.body, "query_too_costly")
	assert.Contains(t, got.body, "application/x-ndjson")
	lines := get(r, "/v1/sensors/a/summary?every=5m&from=2026-11-01T00:00:00Z&to=2026-11-14T00:00:00Z", asLines)
	assert.Equal(t, http.StatusOK, lines.status)
	assert.Equal(t, wideSteps, strings.Count(lines.body, "\n"), "lines are not held, and come all")
}

// A wideSource has summaries with many fields.
type wideSource struct {
	fakeSource

	fields []telemetry.FieldSummary
}

const wideSteps = 300

func (s wideSource) Summary(_ context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		for i := range wideSteps {
			if !yield(telemetry.Summary{Start: q.From + int64(i)*q.Every, Count: 1, Fields: s.fields}, nil) {
				return
			}
		}
	}
}

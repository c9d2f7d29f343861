package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// notingStore stores everything and notes what it received.
type notingStore struct {
	mu     sync.Mutex
	rows   map[string]int // how often each reading was written, with its sequence
	waited time.Duration  // longest from a reading's receipt to its update
}

func (s *notingStore) Write(_ context.Context, writes []*batch.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pending := range writes {
		for _, r := range pending.Rows {
			s.rows[fmt.Sprint(r.Seq(), r.Batch.Reading(r.Index))]++
			s.waited = max(s.waited, time.Since(parcelOf(r).arrived))
		}
		pending.Verdict, pending.Err = batch.Stored, nil
		pending.Drop(len(pending.Rows))
	}
}

// gathered is what a store received when readings arrived steadily.
type gathered struct {
	accepted, lost, twice int
	waited                time.Duration
}

// runGathering sends a reading a second from each of a few sensors. Readings gather for at
// most half a minute.
func runGathering(t *testing.T) (g gathered) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &notingStore{rows: make(map[string]int)}
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: gatherAtMost}))
		accepted := make(map[string]bool)
		for i := range 50 { // fewer readings than --merge-readings
			b := mixed(i, names(20)...)
			q.add(b, nil)
			for k := range uint32(b.Len()) {
				accepted[fmt.Sprint(b.FirstSeq+uint64(k), b.Reading(k))] = true
			}
			pass(time.Second)
		}
		assert.NoError(t, q.Flush(t.Context()))
		g.accepted, g.waited = len(accepted), store.waited
		for reading := range accepted {
			switch n := store.rows[reading]; {
			case n == 0:
				g.lost++
			case n > 1:
				g.twice++
			}
		}
		q.Close(context.Background())
	})
	return g
}

const gatherAtMost = 30 * time.Second

// TestMERGE1Gathering lets readings gather and be packed. None may be lost, stored twice,
// or wait for longer than --flush-max, although its bucket keeps getting readings.
func TestMERGE1Gathering(t *testing.T) {
	t.Parallel()
	began := time.Now()
	got := runGathering(t)
	assert.Zero(t, got.lost, "readings lost")
	assert.Zero(t, got.twice, "readings stored twice")
	assert.LessOrEqual(t, got.waited, gatherAtMost+time.Second, "longest wait of a reading")
	row := faulttest.Row{Test: "MERGE-1", Faults: 1, Acked: got.accepted, Lost: got.lost, Twice: got.twice}
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

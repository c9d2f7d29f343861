package queue

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	bucketstore "github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// race is the outcome of many concurrent requests for one sensor.
type race struct {
	accepted int // readings that were acknowledged as stored
	refused  int
	stored   int
	twice    int
}

// TestRace2 posts 64 concurrent requests, again and again, for one sensor: not
// one of their readings may be taken for one that is stored already.
func TestRace2(t *testing.T) {
	t.Parallel()
	got := runRace(t, false)
	assert.Equal(t, race{accepted: got.accepted, stored: got.accepted}, got)
	assert.Equal(t, racers*racesEach*raceReadings, got.accepted)
}

// TestRace2Sabotaged takes the sequence outside the critical section that gives
// the position in the lane: the check above must see it.
func TestRace2Sabotaged(t *testing.T) {
	t.Parallel()
	got := runRace(t, true)
	assert.NotEqual(t, race{accepted: racers * racesEach * raceReadings, stored: racers * racesEach * raceReadings}, got,
		"the race test passes without the protection that it is for")
	assert.LessOrEqual(t, got.accepted, got.stored, "even then, nothing that was acknowledged is lost")
}

const (
	racers       = 64
	racesEach    = 10
	raceReadings = 3
)

func runRace(t *testing.T, sabotage bool) race {
	t.Helper()
	db := mongodtest.Database(t)
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	s, err := bucketstore.New(bucketstore.Config{
		Database: conn.Database(), Stream: stream, Granularity: 5 * time.Minute,
		MaxReadings: 500, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	q := start(t, s, Config{})
	if sabotage {
		// Each request holds its sequence until another has drawn one, too, or
		// for a moment when there is no other left.
		var turn atomic.Int64
		met := make(chan struct{})
		q.faults.sequenceOutside = func() {
			alone := time.After(50 * time.Millisecond)
			if turn.Add(1)%2 == 0 {
				select {
				case met <- struct{}{}:
				case <-alone:
				}
				return
			}
			select {
			case <-met:
			case <-alone:
			}
		}
	}
	var result race
	var mu sync.Mutex
	var group sync.WaitGroup
	for range racers {
		group.Go(func() {
			for range racesEach {
				receipt, err := q.Append(t.Context(), request("one", raceReadings), telemetry.Stored)
				assert.NoError(t, err)
				mu.Lock()
				result.accepted += raceReadings - len(receipt.Refused)
				result.refused += len(receipt.Refused)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for _, err := range s.Readings(t.Context(), telemetry.Query{Sensor: "one", To: math.MaxInt64 / 2}) {
		require.NoError(t, err)
		result.stored++
	}
	// Every reading looks the same to a reader; what came twice is beyond what
	// was ever taken in.
	result.twice = max(0, result.stored-result.accepted)
	return result
}

package queue

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	bucketstore "github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// race is the outcome of many concurrent requests for one sensor.
type race struct {
	accepted int // readings that were acknowledged as stored
	stored   int
}

const (
	racers       = 64
	racesEach    = 4
	raceReadings = 3
)

// TestRACE2 posts 64 concurrent requests, again and again, for one sensor: not
// one of their readings may be taken for one that is stored already.
func TestRACE2(t *testing.T) {
	t.Parallel()
	row := faulttest.Row{Test: "RACE-2"}
	began := time.Now()
	for _, kind := range []string{"on disk", "in memory"} {
		got := runRace(t, kind == "on disk")
		assert.Equal(t, race{accepted: racers * racesEach * raceReadings, stored: racers * racesEach * raceReadings}, got)
		row.Faults += racers * racesEach
		row.Acked += got.accepted
		row.Lost += max(0, got.accepted-got.stored)
		row.Twice += max(0, got.stored-got.accepted)
	}
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

func openRaceJournal(t *testing.T, onDisk bool) *journal.Journal {
	t.Helper()
	session := batch.NewSession()
	streams := map[string]journal.Stream{stream: {Granularity: 5 * time.Minute}}
	j, err := journal.Open(journal.Config{Dir: t.TempDir(), Memory: !onDisk, Session: session, Streams: streams})
	require.NoError(t, err)
	return j
}

func runRace(t *testing.T, onDisk bool) race {
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
	j := openRaceJournal(t, onDisk)
	q, err := New(Config{
		Journal: j, Streams: map[string]Stream{stream: {Store: s, Granularity: 5 * time.Minute}},
		DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	var result race
	var mu sync.Mutex
	var group sync.WaitGroup
	for range racers {
		group.Go(func() {
			for range racesEach {
				receipt, err := j.Append(t.Context(), request("one", raceReadings), batch.Request{Want: telemetry.Stored})
				assert.NoError(t, err)
				mu.Lock()
				result.accepted += raceReadings - len(receipt.Refused)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	j.Stop()
	assert.Zero(t, q.Close(t.Context()))
	require.NoError(t, j.Close())
	for _, err := range s.Readings(t.Context(), telemetry.Query{Sensor: "one", To: math.MaxInt64 / 2}) {
		require.NoError(t, err)
		result.stored++
	}
	return result
}

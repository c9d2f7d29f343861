package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
)

// TestEverythingComesToRestOnce lets buckets fail, recover, be stored by halves
// and hold poison at random, with memory for a fraction of it: in the end each
// reading is stored or put aside once, in the order of its bucket (the fake store
// and the fake letters see to the order).
func TestEverythingComesToRestOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomRun(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomRun(t *testing.T, random *rand.Rand) {
	store, letters := newFakeStore(t), &fakeLetters{}
	failing := make(map[string]bool)
	healed := false
	isPoison := func(r batch.Ref) bool { return r.Seq()%97 == 0 }
	lanes := rand.New(rand.NewPCG(random.Uint64(), 2)) // under the store's lock
	store.verdict = func(share *batch.Share) (batch.Verdict, error) {
		good := 0 // leading rows that can be stored
		for good < len(share.Rows) && !isPoison(share.Rows[good]) {
			good++
		}
		switch {
		case good == 0:
			return batch.Poison, errAway
		case !healed && (failing[share.Sensor] || lanes.IntN(10) == 0):
			return batch.Wait, errAway
		case good == len(share.Rows) && (healed || lanes.IntN(10) > 0):
			return batch.Stored, nil
		}
		// A part is stored, the rest can be sent at once.
		store.keepSome(share, max(1, min(good, len(share.Rows)/2)))
		return batch.Again, nil
	}
	q := start(t, store, Config{Lanes: 1 + random.IntN(4), MaxBytes: 1 << 20, DeadLetters: letters})
	taken, poison := 0, 0
	for range 300 {
		var sensors []string
		for range 1 + random.IntN(60) {
			sensors = append(sensors, fmt.Sprint("s-", random.IntN(12)))
		}
		for i := range sensors {
			if (taken+i+1)%97 == 0 {
				poison++
			}
		}
		q.add(mixed(random.IntN(900_000), sensors...), nil)
		taken += len(sensors)
		if random.IntN(10) == 0 {
			store.mu.Lock()
			failing[fmt.Sprint("s-", random.IntN(12))] = random.IntN(3) > 0
			store.mu.Unlock()
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) //nolint:forbidigo // fake time
	}
	store.mu.Lock()
	healed = true
	store.mu.Unlock()
	require.NoError(t, q.Flush(t.Context()))
	s := q.Status()
	assert.Zero(t, s.Readings)
	assert.Zero(t, s.Bytes)
	assert.Zero(t, s.SetAside)
	assert.Equal(t, uint64(300), s.Rest)
	assert.Len(t, letters.letters, poison)
	assert.Equal(t, taken-poison, store.count())
	assert.Zero(t, q.Close(context.Background()))
}

package memory_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store/memory"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

func newStore(t *testing.T, cfg memory.Config) *memory.Store {
	t.Helper()
	cfg.Stream, cfg.Registerer = storetest.Stream, prometheus.NewRegistry()
	s, err := memory.New(cfg)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return newStore(t, memory.Config{Granularity: time.Minute})
	})
}

func TestStoreForgetsTheOlderHalf(t *testing.T) {
	t.Parallel()
	s := newStore(t, memory.Config{Granularity: time.Minute, MaxReadings: 100})
	for i := range uint64(1000) {
		r := storetest.Reading("a", time.Duration(i)*time.Second, float64(i))
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", i+1, r), time.Minute))
	}
	kept := storetest.ReadAll(t, s, "a")
	assert.LessOrEqual(t, len(kept), 100)
	assert.GreaterOrEqual(t, len(kept), 50)
	assert.Equal(t, storetest.Base.Add(999*time.Second), kept[len(kept)-1].Time)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := memory.New(memory.Config{Granularity: 7 * time.Minute})
	require.ErrorContains(t, err, "granularity 7m")
	_, err = memory.New(memory.Config{Granularity: time.Minute, MaxReadings: 1})
	require.ErrorContains(t, err, "too small")
}

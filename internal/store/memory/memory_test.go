package memory_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store/memory"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
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
	s := newStore(t, memory.Config{Granularity: time.Hour})
	const all, some = 410_000, 1000
	readings := make([]telemetry.Reading, some)
	for i := range all {
		readings[i%some] = storetest.Reading("a", time.Duration(i)*100*time.Millisecond, float64(i))
		if (i+1)%some == 0 {
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(i+2-some), readings...), time.Hour))
		}
	}
	kept := storetest.ReadAll(t, s, "a")
	assert.LessOrEqual(t, len(kept), 200_000)
	assert.GreaterOrEqual(t, len(kept), 100_000)
	assert.Equal(t, storetest.Base.Add((all-1)*100*time.Millisecond), kept[len(kept)-1].Time)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := memory.New(memory.Config{Granularity: 7 * time.Minute})
	require.ErrorContains(t, err, "granularity 7m")
}

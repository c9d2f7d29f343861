package staleness

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newWatch(t testing.TB, cfg Config) *Watch {
	t.Helper()
	cfg.Registerer = prometheus.NewRegistry()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return New(cfg)
}

// show is the metrics' values: known and silent, by stream.
func show(t *testing.T, w *Watch) string {
	t.Helper()
	var out []string
	for _, name := range []string{"brim_sensors_known", "brim_sensors_silent"} {
		text, err := testutil.CollectAndFormat(w.cfg.Registerer.(*prometheus.Registry), expfmt.TypeTextPlain, name)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				out = append(out, strings.TrimPrefix(strings.TrimSpace(line), "brim_sensors_"))
			}
		}
	}
	return strings.Join(out, " ")
}

// pass advances the bubble's time.
func pass(d time.Duration) { <-time.After(d) }

func TestSensorFallsSilentAndReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute}})
		s := w.Stream("r")
		for i := range 10 {
			s.Came(fmt.Sprint(i), time.Now())
		}
		assert.Equal(t, `known{stream="r"} 10 silent{stream="r"} 0`, show(t, w))
		pass(45 * time.Second)
		for i := range 7 {
			s.Came(fmt.Sprint(i), time.Now())
		}
		s.Came("0", time.Now().Add(-time.Hour)) // replayed from the journal
		pass(30 * time.Second)
		assert.Equal(t, `known{stream="r"} 10 silent{stream="r"} 3`, show(t, w))
		s.Came("9", time.Now())
		s.Forget("8")
		s.Forget("8")
		s.Forget("never there")
		pass(countAgain)
		assert.Equal(t, `known{stream="r"} 9 silent{stream="r"} 1`, show(t, w))
		pass(8 * 24 * time.Hour)
		assert.Equal(t, `known{stream="r"} 0 silent{stream="r"} 0`, show(t, w), "a silent sensor is forgotten after a week")
		assert.Zero(t, s.sensors.Load())
	})
}

func TestNoSensorFallsSilentWhileReadingsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute}})
		known := time.Now()
		w.SetKnownUntil(func(string) time.Time { return known })
		w.Stream("r").Came("a", time.Now())
		pass(time.Hour)
		assert.Equal(t, `known{stream="r"} 1 silent{stream="r"} 0`, show(t, w))
		known = time.Now()
		pass(countAgain)
		assert.Equal(t, `known{stream="r"} 1 silent{stream="r"} 1`, show(t, w))
	})
}

func TestUnwatchedStreamKnowsNoSensors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, Config{After: map[string]time.Duration{"r": 0, "s": time.Second}})
		w.Stream("r").Came("a", time.Now())
		w.Stream("unknown").Came("a", time.Now())
		w.Stream("unknown").Forget("a")
		assert.Equal(t, `known{stream="r"} 0 known{stream="s"} 0 silent{stream="r"} 0 silent{stream="s"} 0`, show(t, w))
		assert.Zero(t, w.Stream("r").sensors.Load())
		w.Stream("r").SetAfter(time.Minute)
		w.Stream("r").Came("a", time.Now())
		assert.Contains(t, show(t, w), `known{stream="r"} 1`)
	})
}

func TestSensorsBeyondMaximumAreNotCounted(t *testing.T) {
	t.Parallel()
	w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute}, MaxSensors: 100})
	s := w.Stream("r")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 1000 {
				s.Came(fmt.Sprint(g, i), time.Now())
			}
		})
	}
	all.Wait()
	// Concurrent goroutines may each exceed the limit by one.
	assert.InDelta(t, 100, s.sensors.Load(), 4)
	for i := range 90 {
		s.Came(fmt.Sprint("0 ", i), time.Now()) // known or not, none replaces another
	}
	assert.InDelta(t, 100, s.sensors.Load(), 4)
}

// stored is a store with sensors last seen some time ago, by stream.
func stored(failures int, ages ...time.Duration) Sensors {
	return func(_ context.Context, stream string) iter.Seq2[telemetry.SensorSeen, error] {
		return func(yield func(telemetry.SensorSeen, error) bool) {
			if failures--; failures >= 0 {
				yield(telemetry.SensorSeen{}, errors.New("away"))
				return
			}
			for i, age := range ages {
				if !yield(telemetry.SensorSeen{Sensor: fmt.Sprint(stream, i), Newest: time.Now().Add(-age).UnixMilli()}, nil) {
					return
				}
			}
		}
	}
}

func TestSensorsAreRecalledAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute, "off": 0}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			w.Run(ctx, stored(1, 10*time.Second, time.Hour, 30*24*time.Hour, -time.Hour))
		})
		synctest.Wait()
		assert.Contains(t, show(t, w), `known{stream="r"} 0`, "the store did not answer")
		pass(recallAgain + time.Second)
		assert.Equal(t, `known{stream="off"} 0 known{stream="r"} 3 silent{stream="off"} 0 silent{stream="r"} 1`, show(t, w))
		pass(time.Minute)
		assert.Contains(t, show(t, w), `silent{stream="r"} 3`, "a reading from the future does not speak for its sensor")
		w.Stream("off").SetAfter(30 * time.Minute)
		synctest.Wait()
		assert.Contains(t, show(t, w), `silent{stream="off"} 1`, "a stream that begins to be watched is recalled, too")
		cancel()
		running.Wait()
	})
}

func TestRecallEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx, stored(0, make([]time.Duration, 100_000)...)) })
		pass(time.Second) // 100 pauses in all
		cancel()
		running.Wait()
		assert.False(t, w.Stream("r").recalled.Load())
		assert.InDelta(t, 10_000, w.Stream("r").sensors.Load(), 2000, "gently")
	})
}

// As documented in the configuration, for a million sensors.
func TestMemoryPerSensor(t *testing.T) {
	w := newWatch(t, Config{After: map[string]time.Duration{"r": time.Minute}})
	s := w.Stream("r")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 200_000
	now := time.Now()
	id := make([]byte, 0, 16)
	for i := range n {
		id = fmt.Appendf(id[:0], "s-%d", i)
		s.Came(string(id), now)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.1f bytes a sensor", each)
	assert.Less(t, each, 40.)
	assert.Equal(t, n, s.count(now).known)
}

func BenchmarkCame(b *testing.B) {
	for _, after := range []time.Duration{0, time.Minute} {
		b.Run("after="+after.String(), func(b *testing.B) {
			s := newWatch(b, Config{After: map[string]time.Duration{"r": after}}).Stream("r")
			ids := make([]string, 10_000)
			for i := range ids {
				ids[i] = fmt.Sprintf("weather,station=s-%d", i)
			}
			now := time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Came(ids[i%len(ids)], now)
			}
		})
	}
}

func BenchmarkCountAMillion(b *testing.B) {
	s := newWatch(b, Config{After: map[string]time.Duration{"r": time.Minute}}).Stream("r")
	now := time.Now()
	for i := range 1_000_000 {
		s.Came(fmt.Sprint(i), now)
	}
	for b.Loop() {
		s.counted = time.Time{}
		s.count(now)
	}
}

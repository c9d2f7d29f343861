package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// batches is a transport that records what is sent.
type batches struct {
	mu    sync.Mutex
	sent  [][]telemetry.Reading
	at    []time.Time
	busy  map[string]bool // sensors with a request in flight
	took  time.Duration   // per attempt
	fails int             // how many of the first attempts
	with  attempt
}

func (b *batches) try(ctx context.Context, _ int, w *write) attempt {
	b.mu.Lock()
	for _, r := range w.readings {
		if b.busy[r.Sensor] {
			b.mu.Unlock()
			return attempt{err: fmt.Errorf("two requests of sensor %s at once", r.Sensor)}
		}
	}
	b.mark(w.readings, true)
	b.mu.Unlock()
	timer := time.NewTimer(b.took)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark(w.readings, false)
	if err != nil {
		return attempt{err: err, again: true, unknown: true}
	}
	if b.fails > 0 {
		b.fails--
		return b.with
	}
	b.sent, b.at = append(b.sent, append([]telemetry.Reading(nil), w.readings...)), append(b.at, time.Now())
	return attempt{result: Result{Accepted: len(w.readings), Ack: telemetry.Journaled}}
}

func (b *batches) mark(readings []telemetry.Reading, busy bool) {
	if b.busy == nil {
		b.busy = make(map[string]bool)
	}
	for _, r := range readings {
		b.busy[r.Sensor] = busy
	}
}

func (b *batches) close() error { return nil }

// batching returns a Batcher with its own network, for a bubble.
func batching(t *testing.T, b *batches, config BatcherConfig) *Batcher {
	t.Helper()
	c, err := New(Config{Addresses: []string{"http://a"}, Timeout: time.Hour})
	require.NoError(t, err)
	c.transport = b
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	batcher, err := c.NewBatcher(config)
	require.NoError(t, err)
	return batcher
}

func TestABatchGoesWhenItIsOldOrLargeEnough(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		config BatcherConfig
		want   []int // sizes
		after  time.Duration
	}{
		"by age":   {BatcherConfig{MaxAge: 3 * time.Second}, []int{10}, 3 * time.Second},
		"by count": {BatcherConfig{MaxReadings: 5, MaxAge: time.Hour}, []int{5, 5}, 0},
		"by bytes": {BatcherConfig{MaxBytes: 3 * int(sizeOf(&weather("s", 1)[0])), MaxAge: time.Minute}, []int{3, 3, 3, 1}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network, start := new(batches), time.Now()
				b := batching(t, network, row.config)
				sent := weather("s", 10)
				for _, r := range sent {
					require.NoError(t, b.Add(t.Context(), r))
				}
				<-time.After(row.after) // fake clock
				synctest.Wait()
				var sizes []int
				var all []telemetry.Reading
				for _, batch := range network.sent {
					sizes, all = append(sizes, len(batch)), append(all, batch...)
				}
				assert.Equal(t, row.want, sizes)
				assert.Equal(t, sent, all)
				assert.Equal(t, row.after, network.at[len(network.at)-1].Sub(start))
				require.NoError(t, b.Close(t.Context()))
				assert.Equal(t, Stats{Added: 10, Delivered: 10, Requests: int64(len(row.want))}, b.Stats())
			})
		})
	}
}

func TestFlushReturnsWhenAllIsDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &batches{took: time.Second}
		b := batching(t, network, BatcherConfig{MaxAge: time.Hour})
		for i := range 20 {
			require.NoError(t, b.Add(t.Context(), one(fmt.Sprint("s", i), 1)))
		}
		start := time.Now()
		require.NoError(t, b.Flush(t.Context()))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, int64(20), b.Stats().Delivered)
		require.NoError(t, b.Flush(t.Context()), "there is nothing")
		require.NoError(t, b.Add(t.Context(), one("s", 1)))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Flush(ctx), context.DeadlineExceeded)
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestEachSensorsReadingsArriveInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &batches{took: 10 * time.Millisecond, fails: 20, with: away}
		b := batching(t, network, BatcherConfig{MaxReadings: 7, InFlight: 3})
		for i := range 300 {
			require.NoError(t, b.Add(t.Context(), one(fmt.Sprint("s", i%11), float64(i))))
		}
		require.NoError(t, b.Close(t.Context()))
		last, n := map[string]float64{}, 0
		for _, batch := range network.sent {
			for _, r := range batch {
				v := r.Fields[0].Value.Float()
				if before, ok := last[r.Sensor]; ok {
					assert.Greater(t, v, before)
				}
				last[r.Sensor] = v
				n++
			}
		}
		assert.Equal(t, 300, n)
		stats := b.Stats()
		assert.Equal(t, int64(20), stats.Repeated)
		assert.Zero(t, stats.Lost, "no sensor had two requests at once")
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := int(sizeOf(&weather("s", 1)[0]))
		network := &batches{took: time.Minute}
		b := batching(t, network, BatcherConfig{MaxReadings: 1, MaxBytes: size, MaxBuffered: 3 * size, InFlight: 1})
		r := weather("s", 1)[0]
		for range 3 {
			require.NoError(t, b.TryAdd(r))
		}
		require.ErrorIs(t, b.TryAdd(r), ErrFull)
		assert.Equal(t, int64(3*size), b.Stats().Bytes)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Add(ctx, r), context.DeadlineExceeded)
		start := time.Now()
		r.Time = time.Time{}
		require.NoError(t, b.Add(t.Context(), r))
		assert.Equal(t, 59*time.Second, time.Since(start), "a request was over")
		assert.Equal(t, Stats{Added: 4, Delivered: 1, Buffered: 3, Bytes: int64(3 * size), Requests: 2}, b.Stats())
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, start, network.sent[3][0].Time, "that of the call, which waited")
	})
}

func TestCloseSaysWhatIsNotDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &batches{took: time.Hour}
		var lost []telemetry.Reading
		b := batching(t, network, BatcherConfig{MaxReadings: 4, InFlight: 1, OnLost: func(readings []telemetry.Reading, err error) {
			lost = append(lost, readings...)
			assert.Error(t, err)
		}})
		for _, r := range weather("s", 10) {
			require.NoError(t, b.Add(t.Context(), r))
		}
		synctest.Wait() // four are in flight
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := b.Close(ctx)
		var undelivered *UndeliveredError
		require.ErrorAs(t, err, &undelivered)
		assert.Equal(t, int64(10), undelivered.Readings)
		assert.Equal(t, int64(4), undelivered.Unknown)
		assert.Equal(t, weather("s", 10), lost)
		assert.Equal(t, Stats{Added: 10, Lost: 10, Unknown: 4, Requests: 3}, b.Stats())
		require.ErrorIs(t, b.TryAdd(one("s", 1)), ErrClosed)
		require.NoError(t, b.Close(t.Context()), "nothing is left")
	})
}

func TestWhatIsRefusedForGoodIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := telemetry.Errorf(telemetry.NotFound, "stream_unknown", "m")
		network := &batches{fails: 1, with: attempt{err: gone}}
		var why error
		b := batching(t, network, BatcherConfig{InFlight: 1, OnLost: func(_ []telemetry.Reading, err error) { why = err }})
		require.NoError(t, b.Add(t.Context(), one("s", 1)))
		require.NoError(t, b.Flush(t.Context()))
		require.ErrorIs(t, why, gone)
		require.NoError(t, b.Add(t.Context(), one("s", 2)), "others go on")
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, Stats{Added: 2, Delivered: 1, Lost: 1, Requests: 2}, b.Stats())
	})
}

// TestABatchThatIsTooLargeGoesInHalves: readings are larger on the wire than estimated.
func TestABatchThatIsTooLargeGoesInHalves(t *testing.T) {
	t.Parallel()
	const most = 4000
	all := weather("s", 100)
	all[30].Fields = []telemetry.Field{{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", most))}}
	send := func(t *testing.T, address string) {
		var lost []telemetry.Reading
		b, err := newClient(t, address).NewBatcher(BatcherConfig{MaxAge: time.Hour, OnLost: func(r []telemetry.Reading, _ error) { lost = append(lost, r...) }})
		require.NoError(t, err)
		for _, r := range all {
			require.NoError(t, b.Add(t.Context(), r))
		}
		require.NoError(t, b.Flush(t.Context()))
		assert.True(t, len(lost) == 1 && lost[0].Time.Equal(all[30].Time), "%d are lost", len(lost))
		stats := b.Stats()
		stats.Requests = 0
		assert.Equal(t, Stats{Added: 100, Delivered: 99, Lost: 1}, stats)
		require.NoError(t, b.Close(t.Context()))
	}
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t, func(c *ingest.Config) { c.MaxBodyBytes = most })
		send(t, address(d))
		got := d.journal.taken()
		assert.Len(t, got, 99)
		assert.True(t, slices.IsSortedFunc(got, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) }))
	})
	t.Run("proxy", func(t *testing.T) {
		t.Parallel()
		send(t, webServer(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); len(body) > most {
				say(413, "<html>")(w)
			} else {
				say(200, fmt.Sprintf(`{"accepted":%d,"rejected":0,"ack":"journaled"}`, 1+bytes.Count(body, []byte("\n"))))(w)
			}
		}).URL)
	})
}

// TestABatcherOutlivesAnOutage: the daemon starts after an hour.
func TestABatcherOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &batches{fails: 700, with: away}
		b := batching(t, network, BatcherConfig{InFlight: 1})
		start := time.Now()
		require.NoError(t, b.Add(t.Context(), one("s", 1)))
		require.NoError(t, b.Close(t.Context()))
		assert.Greater(t, time.Since(start), 30*time.Minute)
		assert.Equal(t, int64(1), b.Stats().Delivered)
	})
}

func TestABatcherAndADaemon(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		for range 20 {
			d.journal.fail = append(d.journal.fail, telemetry.Errorf(telemetry.TooSlow, "body_too_slow", "m"))
		}
		var mu sync.Mutex
		refused := map[string]telemetry.Code{}
		b, err := newClient(t, address(d)).NewBatcher(BatcherConfig{MaxReadings: 100, MaxAge: 5 * time.Millisecond, OnRefused: func(r telemetry.Reading, why Refused) {
			mu.Lock()
			defer mu.Unlock()
			refused[r.Sensor] = why.Code
		}})
		require.NoError(t, err)
		var adders sync.WaitGroup
		for a := range 4 {
			adders.Go(func() {
				for _, r := range weather(fmt.Sprint("s", a), 1000) {
					assert.NoError(t, b.Add(t.Context(), r))
				}
			})
		}
		adders.Wait()
		require.NoError(t, b.Add(t.Context(), one("nan", math.NaN())))
		require.NoError(t, b.Add(t.Context(), telemetry.Reading{Sensor: "empty"}))
		require.NoError(t, b.Close(t.Context()))
		stats := b.Stats()
		assert.Equal(t, int64(4002), stats.Added)
		assert.Equal(t, int64(4000), stats.Delivered)
		assert.Equal(t, int64(2), stats.Refused)
		assert.Zero(t, stats.Buffered)
		assert.Zero(t, stats.Bytes)
		assert.GreaterOrEqual(t, stats.Repeated, int64(20))
		assert.Equal(t, map[string]telemetry.Code{"nan": telemetry.ValueNotFinite, "empty": telemetry.FieldsMissing}, refused)
		bySensor := map[string][]telemetry.Reading{}
		for _, r := range d.journal.taken() {
			bySensor[r.Sensor] = append(bySensor[r.Sensor], r)
		}
		for a := range 4 {
			assert.Equal(t, weather(fmt.Sprint("s", a), 1000), bySensor[fmt.Sprint("s", a)])
		}
	})
}

func TestBatchersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	c := newClient(t, "http://127.0.0.1:1")
	for want, config := range map[string]BatcherConfig{
		"MaxReadings 10001":  {MaxReadings: 10_001},
		"MaxBytes -1":        {MaxBytes: -1},
		"MaxAge 1ns":         {MaxAge: 1},
		"less than MaxBytes": {MaxBytes: 1000, MaxBuffered: 999},
		"InFlight 257":       {InFlight: 257},
		"ack \"x\"":          {Ack: "x"},
	} {
		_, err := c.NewBatcher(config)
		require.ErrorContains(t, err, want)
	}
	assert.NotErrorIs(t, ErrFull, ErrClosed)
}

package send

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// journal keeps what ingest passes on.
type journal struct {
	mu      sync.Mutex
	all     []telemetry.Reading
	streams []string
	wants   []telemetry.Ack
	calls   int

	keep  bool
	reach telemetry.Ack // empty: as requested
	err   error
	block chan struct{} // if not nil, Append waits for it or for its context
}

func (j *journal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	if j.block != nil {
		select {
		case <-j.block:
		case <-ctx.Done():
			return batch.Receipt{}, ctx.Err()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls++
	if j.err != nil {
		return batch.Receipt{}, j.err
	}
	reached := r.Want
	if j.reach != "" {
		reached = j.reach
	}
	if j.keep {
		j.wants = append(j.wants, r.Want)
		for i := range b.Len() {
			j.all = append(j.all, b.Reading(uint32(i)))
			j.streams = append(j.streams, b.Series(b.Row(uint32(i))).Stream)
		}
	}
	return batch.Receipt{Ack: reached}, nil
}

// Repeat knows no keys.
func (j *journal) Repeat(context.Context, batch.Request) (batch.Receipt, error) {
	return batch.Receipt{}, nil
}

// taken returns what was accepted since the last call, ordered by sensor and time.
func (j *journal) taken() []telemetry.Reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.all
	j.all = nil
	sortReadings(all)
	return all
}

// sortReadings sorts readings, and the fields in each, because columns lose their order.
func sortReadings(readings []telemetry.Reading) {
	for _, r := range readings {
		slices.SortFunc(r.Fields, func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	}
	slices.SortStableFunc(readings, func(a, b telemetry.Reading) int {
		if c := strings.Compare(a.Sensor, b.Sensor); c != 0 {
			return c
		}
		return a.Time.Compare(b.Time)
	})
}

// A daemon is an ingest server on real ports whose journal keeps everything.
type daemon struct {
	journal    *journal
	http, grpc string // targets
	door       *ingest.Server
}

func startDaemon(t testing.TB, j *journal) *daemon {
	t.Helper()
	door, err := ingest.New(ingest.Config{
		Streams: []ingest.Stream{
			{Name: "readings", Storage: "bucket", Granularity: 5 * time.Minute, MaxReadings: 1000},
			{Name: "other one", Storage: "timeseries", Granularity: time.Hour},
		},
		DefaultStream: "readings",
		Acks:          []telemetry.Ack{telemetry.Journaled, telemetry.Stored},
	}, j)
	require.NoError(t, err)
	web := httptest.NewServer(door.Handler())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := door.GRPCServer(nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		door.Stop() // ends calls
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		door.Wait()
	})
	return &daemon{journal: j, http: web.URL, grpc: "grpc://" + listener.Addr().String(), door: door}
}

// newSender returns a Sender of a one-connection pool, with its config changed by change.
func newSender(t testing.TB, target string, change ...func(*Config)) load.Sender {
	t.Helper()
	c := Config{Target: target, Timeout: 20 * time.Second}
	for _, f := range change {
		f(&c)
	}
	pool, err := New(c)
	require.NoError(t, err)
	s, err := pool.Sender(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.NoError(t, pool.Close())
	})
	return s
}

// everyWay runs a test over HTTP and both forms of gRPC.
func everyWay(t *testing.T, test func(t *testing.T, target func(*daemon) string, way func(*Config))) {
	t.Helper()
	overHTTP := func(d *daemon) string { return d.http }
	overGRPC := func(d *daemon) string { return d.grpc }
	t.Run("http", func(t *testing.T) { t.Parallel(); test(t, overHTTP, func(*Config) {}) })
	t.Run("grpc plain", func(t *testing.T) { t.Parallel(); test(t, overGRPC, func(c *Config) { c.Form = wire.Plain }) })
	t.Run("grpc compact", func(t *testing.T) { t.Parallel(); test(t, overGRPC, func(c *Config) { c.Form = wire.Compact }) })
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// weather returns n readings of one sensor.
func weather(n int) *load.Request {
	r := &load.Request{}
	for i := range n {
		r.Readings = append(r.Readings, telemetry.Reading{
			Sensor: "s-1", Time: noon.Add(time.Duration(i) * time.Second),
			Fields: []telemetry.Field{
				{Name: "t", Value: telemetry.FloatValue(21.5 + float64(i)/10)}, {Name: "h", Value: telemetry.FloatValue(65.25)},
				{Name: "p", Value: telemetry.FloatValue(1013.2)}, {Name: "v", Value: telemetry.IntValue(int64(i))},
			},
			Tags: []telemetry.Tag{{Name: "site", Value: "north"}},
		})
	}
	return r
}

// webServer answers everything with handle.
func webServer(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

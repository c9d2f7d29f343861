package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal keeps what the server appends, and recognizes keys like the real one.
type journal struct {
	mu      sync.Mutex
	all     []telemetry.Reading
	streams []string
	wants   []telemetry.Ack
	keys    map[string]keptAnswer
	calls   int
	fail    []error       // errors of the next calls
	block   chan struct{} // if set, Append waits for it or for its context
	forget  bool
	begun   chan struct{} // closed when a call begins to wait
	reach   telemetry.Ack // empty: as requested
}

type keptAnswer struct {
	receipt batch.Receipt
	hash    uint64
}

// Repeat is called for requests with only refused readings, which do not occur
// here.
func (j *journal) Repeat(context.Context, batch.Request) (batch.Receipt, error) {
	return batch.Receipt{}, nil
}

func (j *journal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j.mu.Lock()
	block := j.block
	if j.begun != nil {
		close(j.begun)
		j.begun = nil
	}
	j.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return batch.Receipt{}, ctx.Err()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls++
	if len(j.fail) > 0 {
		err := j.fail[0]
		j.fail = j.fail[1:]
		return batch.Receipt{}, err
	}
	if known, ok := j.keys[r.Key]; ok && r.Key != "" {
		if known.hash != r.BodyHash {
			return batch.Receipt{}, telemetry.Errorf(telemetry.Conflict, "key_conflict", "another body")
		}
		known.receipt.Repeated = true
		return known.receipt, nil
	}
	if j.forget {
		return batch.Receipt{Ack: r.Want}, nil
	}
	for i := range b.Len() {
		j.all = append(j.all, b.Reading(uint32(i)))
		j.streams = append(j.streams, b.Series(b.Row(uint32(i))).Stream)
	}
	j.wants = append(j.wants, r.Want)
	receipt := batch.Receipt{Ack: r.Want, Answer: r.Answer}
	if j.reach != "" {
		receipt.Ack = j.reach
	}
	if j.keys == nil {
		j.keys = make(map[string]keptAnswer)
	}
	j.keys[r.Key] = keptAnswer{receipt, r.BodyHash}
	return receipt, nil
}

// taken returns all readings accepted so far.
func (j *journal) taken() []telemetry.Reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

func (j *journal) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
}

// A daemon is an ingest server on real ports, with a journal that keeps everything.
type daemon struct {
	journal    *journal
	http, grpc string // addresses
}

func startDaemon(t testing.TB, change ...func(*ingest.Config)) *daemon {
	t.Helper()
	d, stop, err := newDaemon(change...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return d
}

func newDaemon(change ...func(*ingest.Config)) (d *daemon, stop func() error, err error) {
	j := &journal{}
	config := ingest.Config{
		Streams: []ingest.Stream{
			{Name: "readings", Storage: "bucket", Granularity: 5 * time.Minute, MaxReadings: 1000},
			{Name: "other one", Storage: "timeseries", Granularity: time.Hour},
		},
		DefaultStream: "readings",
		Acks:          []telemetry.Ack{telemetry.Journaled, telemetry.Stored},
	}
	for _, f := range change {
		f(&config)
	}
	door, err := ingest.New(config, j)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	web, server := httptest.NewServer(door.Handler()), door.GRPCServer(nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = func() error {
		web.CloseClientConnections()
		web.Close()
		door.Stop()        // ends calls
		_ = server.Close() // there is nothing but its connections
		err := <-served
		door.Wait()
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
	return &daemon{journal: j, http: web.URL, grpc: "grpc://" + listener.Addr().String()}, stop, nil
}

// StartDaemon is for examples. It returns the addresses for HTTP and gRPC.
func StartDaemon() (overHTTP, overGRPC string, stop func()) {
	d, stopDaemon, err := newDaemon()
	if err != nil {
		panic(err)
	}
	return d.http, d.grpc, func() {
		if err := stopDaemon(); err != nil {
			panic(err)
		}
	}
}

func listen(t testing.TB, where string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", where)
	require.NoError(t, err)
	return l
}

// newClient returns a client with short pauses between attempts.
func newClient(t testing.TB, address string, change ...func(*Config)) *Client {
	t.Helper()
	config := Config{Addresses: []string{address}, Timeout: 20 * time.Second, BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, RetryFor: time.Minute}
	for _, f := range change {
		f(&config)
	}
	c, err := New(config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// everyWay runs a test over HTTP and over gRPC.
func everyWay(t *testing.T, test func(t *testing.T, address func(*daemon) string)) {
	t.Helper()
	t.Run("http", func(t *testing.T) { t.Parallel(); test(t, func(d *daemon) string { return d.http }) })
	t.Run("grpc", func(t *testing.T) { t.Parallel(); test(t, func(d *daemon) string { return d.grpc }) })
}

// webServer answers every request with handle.
func webServer(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// weather returns n readings of a sensor.
func weather(sensor string, n int) []telemetry.Reading {
	all := make([]telemetry.Reading, n)
	for i := range all {
		all[i] = telemetry.Reading{
			Sensor: sensor, Time: noon.Add(time.Duration(i) * time.Second),
			Fields: []telemetry.Field{
				{Name: "t", Value: telemetry.FloatValue(21.5 + float64(i)/10)}, {Name: "h", Value: telemetry.FloatValue(65.25)},
				{Name: "p", Value: telemetry.FloatValue(1013.2)}, {Name: "v", Value: telemetry.IntValue(int64(i))},
			},
			Tags: []telemetry.Tag{{Name: "site", Value: "north"}},
		}
	}
	return all
}

func one(sensor string, v float64) telemetry.Reading {
	return telemetry.Reading{Sensor: sensor, Time: noon, Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(v)}}}
}

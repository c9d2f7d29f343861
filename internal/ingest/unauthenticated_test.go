package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A call that is refused holds no memory, whatever its client sends.
func TestAnUnauthenticatedCallHoldsNoMemory(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *rawClient){
		"of Write":   func(t *testing.T, c *rawClient) { c.call(t, 1, "Write") },
		"of Watch":   func(t *testing.T, c *rawClient) { c.callPath(t, 1, "/grpc.health.v1.Health/Watch") },
		"of nothing": func(t *testing.T, c *rawClient) { c.callPath(t, 1, "/none/None") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _, _ := guardedServer(t)
			c := dialRaw(t, d)
			begin(t, c)
			require.NoError(t, c.WriteData(1, false, []byte("\x00\x00\x10\x00\x00abc")))
			assert.Equal(t, codes.Unauthenticated, c.waitCallEnded(t, 1))
			assert.Zero(t, d.budget.held())
			assert.Zero(t, d.open.all.Load())
		})
	}
}

func TestAMessageHoldsItsMemoryUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	block := j.waits()
	client := dialGRPC(t, d)
	answered := make(chan error, 1)
	go func() {
		request := &telemetrypb.WriteRequest{}
		for range 2000 {
			request.Readings = append(request.Readings, &telemetrypb.Reading{SensorId: strings.Repeat("s", 100), Fields: oneReading("1", "s").GetReadings()[0].GetFields()})
		}
		_, err := client.Write(withToken(t.Context(), g.tokens["all"]), request)
		answered <- err
	}()
	select {
	case <-j.entered:
	case err := <-answered:
		require.FailNow(t, "it was not taken", err)
	}
	assert.Positive(t, d.budget.held(), "it has its memory")
	close(block)
	assert.NoError(t, <-answered)
	assert.Eventually(t, func() bool { return d.budget.held() == 0 }, time.Minute, time.Millisecond)
}

func TestWatchingTheHealthNeedsAToken(t *testing.T) {
	t.Parallel()
	d, _, g := guardedServer(t)
	client := grpc_health_v1.NewHealthClient(connectGRPC(t, d))
	watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	assert.Equal(t, codes.Unauthenticated, status.Code(err), err)
	watch, err = client.Watch(withToken(t.Context(), g.tokens["reader"]), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	assert.NoError(t, err)
}

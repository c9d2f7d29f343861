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

const healthCheck = "/grpc.health.v1.Health/Check"

// Room for messages is not taken by what nobody sends, not even while that is
// waited for.
func TestNobodyHoldsTheRoomForMessages(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *rawClient){
		"compressed": func(t *testing.T, c *rawClient) {
			c.callPath(t, 1, healthCheck)
			require.NoError(t, c.WriteData(1, false, []byte("\x01\x00\x01\x48\x20abc")))
		},
		"long": func(t *testing.T, c *rawClient) {
			c.callPath(t, 1, healthCheck)
			require.NoError(t, c.WriteData(1, false, []byte("\x00\x00\x10\x00\x00abc")))
		},
		"many calls": func(t *testing.T, c *rawClient) {
			for i := range uint32(unauthenticatedCalls + 1) {
				c.callPath(t, 2*i+1, healthCheck)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _, _ := guardedDoor(t)
			d.room.wait = 100 * time.Millisecond
			c := dialRaw(t, d)
			begin(t, c)
			for open := true; open; {
				select {
				case <-c.ended:
					open = false
				case <-time.After(5 * time.Millisecond):
					assert.Zero(t, d.budget.held(), "all room is there")
				}
			}
			assert.EqualValues(t, 1, d.endedFor(endUnauthenticated))
		})
	}
}

// A connection's first message may be as long as any, for its call says who sends.
func TestTheFirstMessageOfSomebodyTakesItsRoom(t *testing.T) {
	t.Parallel()
	d, j, g := guardedDoor(t)
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
	assert.Positive(t, d.budget.held(), "it has its room")
	close(block)
	assert.NoError(t, <-answered)
}

func TestOnlyTheKnownWatchTheHealth(t *testing.T) {
	t.Parallel()
	d, _, g := guardedDoor(t)
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

package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestTheNumberOfCallsIsLimited(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	conn := connectGRPC(t, d)
	health := grpc_health_v1.NewHealthClient(conn)
	watch := func() (end context.CancelFunc, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		return cancel, err
	}
	d.open.watches.Store(maxWatches - 1) // others'
	end, err := watch()
	require.NoError(t, err)
	_, err = watch()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	assert.ErrorContains(t, err, codeStreams)
	_, err = health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err, "a probe is answered all the same")
	end()
	require.Eventually(t, func() bool { return d.open.watches.Load() == maxWatches-1 && d.open.all.Load() == 0 }, 5*time.Second, time.Millisecond, "its place is free again")
	end, err = watch()
	require.NoError(t, err)
	end()

	d.open.all.Add(maxCalls)
	stream, err := dialGRPC(t, d).WriteStream(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	assert.NotNil(t, status.Convert(err).Details(), "it is said when to come again")
}

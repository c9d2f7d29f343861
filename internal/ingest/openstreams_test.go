package ingest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestOfCallsThatLastThereAreOnlySoMany(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
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

	d.open.all.Add(maxOpen)
	stream, err := dialGRPC(t, d).WriteStream(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	assert.NotNil(t, status.Convert(err).Details(), "it is said when to come again")
}

func TestAConnectionOnWhichNobodyIsKnownEnds(t *testing.T) {
	t.Parallel()
	begin := func(c *callConn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.newest = 1
	}
	for name, c := range map[string]struct {
		asks  bool
		then  func(*callConn)
		ended bool
	}{
		"no call, nobody is asked":   {false, func(*callConn) {}, true},
		"no call, somebody is asked": {true, func(*callConn) {}, true},
		"a call of nobody":           {true, begin, true},
		"a call of somebody":         {true, func(c *callConn) { begin(c); c.know() }, false},
		"a call where none is asked": {false, begin, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				count := 0
				room := &callRoom{ended: map[ending]func(){endUnauthenticated: func() { count++ }}, asks: c.asks}
				conn := newCallConn(near, room)
				defer conn.Close()
				c.then(conn)
				<-time.After(unauthenticatedTime - time.Nanosecond) // of the bubble's clock
				synctest.Wait()
				require.NoError(t, conn.ctx.Err())
				<-time.After(time.Nanosecond)
				synctest.Wait()
				assert.Equal(t, c.ended, conn.ctx.Err() != nil)
				assert.Equal(t, c.ended, count == 1)
			})
		})
	}
}

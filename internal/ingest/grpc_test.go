package ingest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// dialGRPC returns a client of a server of d.
func dialGRPC(t testing.TB, d *Server, options ...grpc.DialOption) telemetrypb.IngestServiceClient {
	t.Helper()
	return telemetrypb.NewIngestServiceClient(connectGRPC(t, d, options...))
}

func connectGRPC(t testing.TB, d *Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := d.GRPCServer(nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///brim", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		d.Wait()
	})
	return conn
}

// newMessage is a message that was received.
func newMessage(d *Server, data []byte) *message {
	c := &call{server: d, r: httptest.NewRequest(http.MethodPost, writePath, nil)}
	return &message{call: c, payload: payload{server: d, pacer: &c.pacer, lease: lease{of: d.budget}, data: data}, at: time.Now()}
}

// writeMessage takes a request that must not be refused whole.
func writeMessage(t testing.TB, d *Server, request *telemetrypb.WriteRequest) (*telemetrypb.WriteResponse, result) {
	t.Helper()
	data, err := proto.Marshal(request)
	require.NoError(t, err)
	response, r, refused := newMessage(d, data).answer(t.Context())
	require.Nil(t, refused)
	return response, r
}

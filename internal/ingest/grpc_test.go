package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// writeMessage takes a request that must not be refused whole.
func writeMessage(t testing.TB, d *Door, request *telemetrypb.WriteRequest) (*telemetrypb.WriteResponse, result) {
	t.Helper()
	data, err := proto.Marshal(request)
	require.NoError(t, err)
	response, r, refused := d.takeMessage(t.Context(), &rawMessage{buf: mem.SliceBuffer(data)}, time.Now())
	require.Nil(t, refused)
	return response, r
}

package ingest

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// encodedCodec sends messages that are encoded already.
type encodedCodec struct{ encoding.CodecV2 }

func (c encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	if encoded, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(encoded)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// BenchmarkWriteStream sends a request of 1,000 readings of 1,000 hosts in each
// operation, over a loopback connection, eight of them in flight.
func BenchmarkWriteStream(b *testing.B) {
	const readings, inFlight = 1000, 8
	message, err := proto.Marshal(compactRequest(makeCPU(readings, readings)))
	require.NoError(b, err)
	d, err := New(testConfig(), droppingJournal{})
	require.NoError(b, err)
	stream := openWriteStream(b, d)
	answer := func() {
		var response telemetrypb.WriteResponse
		require.NoError(b, stream.RecvMsg(&response))
		require.EqualValues(b, readings, response.GetAccepted())
	}
	for range inFlight {
		require.NoError(b, stream.SendMsg(message))
	}
	b.SetBytes(int64(len(message)))
	b.ResetTimer()
	for b.Loop() {
		answer()
		require.NoError(b, stream.SendMsg(message))
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/readings, "ns/reading")
	for range inFlight {
		answer()
	}
}

// openWriteStream returns a call of WriteStream over a loopback connection, for
// messages that are encoded.
func openWriteStream(b *testing.B, d *Server) grpc.ClientStream {
	b.Helper()
	server := d.GRPCServer(nil)
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(encodedCodec{encoding.GetCodecV2(protocodec.Name)})))
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, conn.Close())
		require.NoError(b, server.Close())
		require.ErrorIs(b, <-served, http.ErrServerClosed)
		d.Wait()
	})
	stream, err := conn.NewStream(b.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+serviceName+"/WriteStream")
	require.NoError(b, err)
	return stream
}

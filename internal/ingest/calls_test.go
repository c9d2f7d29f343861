package ingest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A rawClient speaks HTTP/2 frame by frame.
type rawClient struct {
	net.Conn
	*http2.Framer

	head  bytes.Buffer
	codes *hpack.Encoder
	ended chan struct{} // closed when the server has ended the connection

	mu       sync.Mutex
	statuses map[uint32]codes.Code // of calls that have ended
}

// dialRaw connects a rawClient to a gRPC server of d.
func dialRaw(t *testing.T, d *Server) *rawClient {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := d.GRPCServer(nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	c := &rawClient{Conn: conn, Framer: http2.NewFramer(conn, conn), ended: make(chan struct{}), statuses: make(map[uint32]codes.Code)}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.codes = hpack.NewEncoder(&c.head)
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	require.NoError(t, c.WriteSettings())
	go func() {
		defer close(c.ended)
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
				c.mu.Lock()
				for _, f := range h.Fields {
					if f.Name == "grpc-status" {
						code, _ := strconv.Atoi(f.Value)
						c.statuses[h.StreamID] = codes.Code(code)
					}
				}
				c.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-c.ended
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		d.Wait()
		assert.Zero(t, d.budget.held(), "all memory was given back")
	})
	return c
}

// call begins a call of this method.
func (c *rawClient) call(t *testing.T, stream uint32, method string) {
	t.Helper()
	c.callPath(t, stream, "/brim.v1.IngestService/"+method)
}

func (c *rawClient) callPath(t *testing.T, stream uint32, path string) {
	t.Helper()
	c.head.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "b"},
		{"te", "trailers"}, {"content-type", "application/grpc"},
	} {
		require.NoError(t, c.codes.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.head.Bytes(), EndHeaders: true}))
}

// waitCallEnded returns the status of a call.
func (c *rawClient) waitCallEnded(t *testing.T, stream uint32) (code codes.Code) {
	t.Helper()
	require.Eventually(t, func() (ended bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		code, ended = c.statuses[stream]
		return ended
	}, time.Minute, time.Millisecond, "the call goes on")
	return code
}

func quick(c *Config) { c.BodyGrace, c.MinBodyRate = 50*time.Millisecond, 10<<20 }

func (srv *Server) endedFor(why string) float64 {
	return testutil.ToFloat64(srv.metrics.ended.WithLabelValues(why))
}

func TestIncompleteMessageEndsItsCall(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Write", "WriteStream"} {
		for name, part := range map[string]string{"a part of its prefix": "\x00\x00", "its prefix": "\x00\x00\x00\x10\x00", "a part of it": "\x00\x00\x00\x10\x00abc"} {
			t.Run(method+"/"+name, func(t *testing.T) {
				t.Parallel()
				d, j := newTestServer(t, quick)
				c := dialRaw(t, d)
				c.call(t, 1, method)
				require.NoError(t, c.WriteData(1, false, []byte(part)))
				assert.Equal(t, codes.Aborted, c.waitCallEnded(t, 1))
				assert.EqualValues(t, 1, d.endedFor(endHalfOpen))
				assert.Empty(t, j.readings())
			})
		}
	}
}

// A stream on which nothing is under way may stay, however long.
func TestAnIdleStreamStays(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, quick)
	stream := openStream(t, d)
	for i := range 3 {
		require.NoError(t, stream.Send(oneReading("1", "s")))
		_, err := stream.Recv()
		require.NoError(t, err)
		require.Len(t, j.readings(), i+1)
		idle, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond) // more than twice the grace
		<-idle.Done()
		cancel()
	}
	assert.Zero(t, d.endedFor(endHalfOpen))
}

func TestMessagesWaitForRoom(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	d.budget.wait = 20 * time.Millisecond
	all := d.budget.small.size
	require.True(t, d.budget.small.try(all, false))
	c := dialRaw(t, d)
	c.call(t, 1, "Write")
	require.NoError(t, c.WriteData(1, false, []byte("\x00\x00\x00\x10\x00abc")))
	assert.Equal(t, codes.Unavailable, c.waitCallEnded(t, 1))
	assert.EqualValues(t, 1, d.endedFor(endNoRoom))

	d.budget.wait = time.Minute
	client := dialGRPC(t, d)
	done := make(chan error, 1)
	go func() {
		_, err := client.Write(t.Context(), oneReading("1", "s"))
		done <- err
	}()
	d.budget.small.give(all)
	require.NoError(t, <-done)
	assert.Len(t, j.readings(), 1)
}

func TestAClientMustReadItsAnswers(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, func(c *Config) { c.BodyGrace = time.Minute })
	d.answerTime = 50 * time.Millisecond
	stream := openStream(t, d)
	// Each answer repeats the id, and none is read.
	request, err := oneReading(strings.Repeat("r", maxRequestID), "s"), error(nil)
	for range 10_000 {
		if err = stream.Send(request); err != nil {
			break
		}
	}
	require.Error(t, err, "the call ends")
	assert.EqualValues(t, 1, d.endedFor(endUnread))
}

// A connection whose client reads nothing is closed, whatever the client sends.
func TestClientThatReadsNothingIsDisconnected(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := writeLimiter{Listener: listener, limit: 50 * time.Millisecond}.Accept()
	require.NoError(t, err)
	defer conn.Close()
	for err == nil {
		_, err = conn.Write(make([]byte, 1<<20))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestBombIsDetectedEarly(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	m := newMessage(d, []byte(gzipped(t, strings.Repeat("x", 64<<20))))
	m.compressed = true
	_, _, refused := m.answer(t.Context())
	assert.Equal(t, codeRatio, refused.Code)
	assert.Zero(t, d.budget.held())

	broken := newMessage(d, []byte(gzipped(t, "x"))[:5])
	broken.compressed = true
	_, _, refused = broken.answer(t.Context())
	assert.Equal(t, codeEncodingBroken, refused.Code)
}

func TestMessageBeyondTheInflateRatioIsRefused(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	client := dialGRPC(t, d)
	bomb := oneReading("1", "s")
	bomb.Stream = strings.Repeat("x", 4<<20)
	_, err := client.Write(t.Context(), bomb, grpc.UseCompressor(gzip.Name))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Contains(t, status.Convert(err).Message(), "inflate_ratio: the inflated message exceeds --max-inflate-ratio")
	stream, err := client.WriteStream(t.Context(), grpc.UseCompressor(gzip.Name))
	require.NoError(t, err)
	require.NoError(t, stream.Send(bomb))
	response, err := stream.Recv()
	require.NoError(t, err, "the stream goes on")
	assert.EqualValues(t, codes.ResourceExhausted, response.GetError().GetStatus())
	assert.EqualValues(t, 2, testutil.ToFloat64(d.metrics.requests.WithLabelValues("grpc", "ResourceExhausted")))
	_, err = client.Write(t.Context(), oneReading("1", "s"), grpc.UseCompressor(gzip.Name))
	require.NoError(t, err)
	assert.Len(t, j.readings(), 1)
}

func TestACallHasOnlySoMuchMetadata(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 1<<20))
	_, err := dialGRPC(t, d).Write(ctx, oneReading("1", "s"))
	assert.Error(t, err)
	assert.Empty(t, j.readings())
}

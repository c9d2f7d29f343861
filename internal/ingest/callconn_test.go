package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
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
}

// dialRaw connects a rawClient to the door's server of gRPC.
func dialRaw(t *testing.T, d *Door) *rawClient {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := d.NewGRPCServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	c := &rawClient{Conn: conn, Framer: http2.NewFramer(conn, conn), ended: make(chan struct{})}
	c.codes = hpack.NewEncoder(&c.head)
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	require.NoError(t, c.WriteSettings())
	go func() {
		defer close(c.ended)
		for {
			if _, err := c.ReadFrame(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-c.ended
		server.Stop()
		assert.NoError(t, <-served)
		d.Wait()
		assert.Zero(t, d.budget.held(), "all room was given back")
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

func (c *rawClient) waitEnded(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		require.Fail(t, "the connection goes on")
	}
}

func quick(c *Config) { c.BodyGrace, c.MinBodyRate = 50*time.Millisecond, 10<<20 }

func (d *Door) endedFor(why ending) float64 {
	return testutil.ToFloat64(d.metrics.ended.WithLabelValues(string(why)))
}

func TestAMessageThatDoesNotComeWholeEndsItsConnection(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Write", "WriteStream"} {
		for name, part := range map[string]string{"a part of its prefix": "\x00\x00", "its prefix": "\x00\x00\x00\x10\x00", "a part of it": "\x00\x00\x00\x10\x00abc"} {
			t.Run(method+"/"+name, func(t *testing.T) {
				t.Parallel()
				d, j := newTestDoor(t, quick)
				c := dialRaw(t, d)
				c.call(t, 1, method)
				require.NoError(t, c.WriteData(1, false, []byte(part)))
				c.waitEnded(t)
				assert.EqualValues(t, 1, d.endedFor(endHalfOpen))
				assert.Empty(t, j.readings())
			})
		}
	}
}

// A stream on which nothing is under way may stay, however long.
func TestAnIdleStreamStays(t *testing.T) {
	t.Parallel()
	d, j := newTestDoor(t, quick)
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
	d, j := newTestDoor(t)
	d.budget.wait = 20 * time.Millisecond
	all := d.budget.small.size
	require.True(t, d.budget.small.try(all, false))
	c := dialRaw(t, d)
	c.call(t, 1, "Write")
	require.NoError(t, c.WriteData(1, false, []byte("\x00\x00\x00\x10\x00abc")))
	c.waitEnded(t)
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
	d, _ := newTestDoor(t, func(c *Config) { c.BodyGrace = time.Minute })
	d.answerTime = 50 * time.Millisecond
	stream := openStream(t, d)
	// Each answer repeats the id, and none is read.
	request, err := oneReading(strings.Repeat("r", maxRequestID), "s"), error(nil)
	for range 10_000 {
		if err = stream.Send(request); err != nil {
			break
		}
	}
	require.Error(t, err, "the connection ends")
	assert.EqualValues(t, 1, d.endedFor(endUnread))
}

func TestABombIsKnownByItsBeginning(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	wire := []byte(gzipped(t, strings.Repeat("x", 64<<20)))
	message := mem.BufferSlice{mem.SliceBuffer(wire)}.Reader()
	data, err := callGzip{door: d}.Do(message)
	require.NoError(t, err)
	assert.True(t, d.isBomb(data))
	assert.Greater(t, message.Remaining(), len(wire)*9/10, "the rest is not looked at")
	_, err = callGzip{door: d}.Do(bytes.NewReader(wire))
	require.ErrorContains(t, err, "a message in a *bytes.Reader, which does not tell its length")
}

func TestAMessageInflatesSoManyTimesOnly(t *testing.T) {
	t.Parallel()
	d, j := newTestDoor(t)
	client := dialGRPC(t, d)
	bomb := oneReading("1", "s")
	bomb.Stream = strings.Repeat("x", 4<<20)
	_, err := client.Write(t.Context(), bomb, grpc.UseCompressor(gzip.Name))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Contains(t, status.Convert(err).Message(), "inflate_ratio: the message inflates to more than it may (--max-inflate-ratio")
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
	d, j := newTestDoor(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 2*maxCallHead))
	_, err := dialGRPC(t, d).Write(ctx, oneReading("1", "s"))
	assert.Error(t, err)
	assert.Empty(t, j.readings())
}

// pieceConn is a connection that reads what it is given, in pieces.
type pieceConn struct {
	net.Conn

	rest  []byte
	piece int
}

func (c *pieceConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, errors.New("over")
	}
	n := copy(p, c.rest[:min(len(c.rest), c.piece)])
	c.rest = c.rest[n:]
	return n, nil
}
func (c *pieceConn) Write(p []byte) (int, error)       { return len(p), nil }
func (c *pieceConn) Close() error                      { return nil }
func (c *pieceConn) SetReadDeadline(_ time.Time) error { return nil }

// FuzzCallConn feeds a connection with anything, in both directions: nothing
// crashes, and in the end all room is given back. Whole data means the same in
// whatever pieces it comes.
func FuzzCallConn(f *testing.F) {
	frame := func(kind, flags byte, stream byte, payload string) string {
		n := len(payload)
		return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
	}
	begin := frame(frameHeaders, 4, 1, "head")
	f.Add([]byte(begin+frame(frameData, 0, 1, "\x00\x00\x00\x00\x03abc")), []byte(frame(frameData, 0, 1, "\x00\x00\x00\x00\x01x")+frame(frameHeaders, 5, 1, "t")), 3)
	f.Add([]byte(begin+frame(frameData, 0, 1, "\x01\x00\x00\x00\x03ab")+frame(frameReset, 0, 1, "1234")), []byte{}, 1)
	f.Add([]byte(begin+frame(frameData, flagPadded, 1, "\x02\x00\x00\x00\x00\x00pp")), []byte(frame(frameReset, 0, 1, "1234")), 100)
	f.Add([]byte(begin+begin+frame(frameData, flagPadded, 1, "\xff\x00")), []byte(frame(frameData, 1, 1, "\x00\x00\x00\x00\x00")), 7)
	f.Fuzz(func(t *testing.T, in, out []byte, piece int) {
		var came []int64
		for _, size := range []int{max(piece, 1), len(in) + 1} {
			d, _ := newTestDoor(t, func(c *Config) { c.BodyGrace = time.Hour })
			d.room.wait, d.budget.wait = time.Nanosecond, time.Nanosecond
			raw := &pieceConn{rest: append(make([]byte, prefaceBytes), in...), piece: size}
			wrapped, _, err := d.Credentials(insecure.NewCredentials()).ServerHandshake(raw)
			require.NoError(t, err)
			c, ok := wrapped.(*callConn)
			require.True(t, ok)
			room := make([]byte, 64)
			for err == nil {
				_, err = c.Read(room)
			}
			came = append(came, d.budget.held())
			assert.GreaterOrEqual(t, d.budget.held(), int64(0))
			_, _ = c.Write(out)
			assert.GreaterOrEqual(t, c.inside, 0)
			require.NoError(t, c.Close())
			assert.Zero(t, d.budget.held(), "all room was given back")
		}
		if came[0] != 0 && came[1] != 0 {
			assert.Equal(t, came[1], came[0])
		}
	})
}

func TestAConnectionThatDoesNotGreetEnds(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"", "PRI * HTTP/2.0\r\n\r\nS", http2.ClientPreface} {
		t.Run(strconv.Itoa(len(sent))+" bytes", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, _ := newTestDoor(t)
				near, far := net.Pipe()
				defer far.Close()
				c := newCallConn(near, d.room)
				defer c.Close()
				require.NoError(t, near.SetReadDeadline(time.Now().Add(helloTimeout)), "as gRPC does")
				start := time.Now()
				go func() { _, _ = far.Write([]byte(sent)) }() // until far is closed
				read, err := io.ReadAll(c)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				assert.Equal(t, sent, string(read))
				assert.Equal(t, helloTimeout, time.Since(start))
			})
		})
	}
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

type writeStreamClient = grpc.BidiStreamingClient[telemetrypb.WriteRequest, telemetrypb.WriteResponse]

func openStream(t *testing.T, d *Server) writeStreamClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := dialGRPC(t, d).WriteStream(ctx)
	require.NoError(t, err)
	t.Cleanup(cancel)
	return stream
}

func oneReading(id, sensor string) *telemetrypb.WriteRequest {
	return &telemetrypb.WriteRequest{RequestId: id, Readings: []*telemetrypb.Reading{pb(func(r *telemetrypb.Reading) { r.SensorId = sensor })}}
}

func TestStreamAnswersEachRequestInOrder(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	stream := openStream(t, d)
	const n = 500
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if err := stream.Send(oneReading(fmt.Sprint(i), "s")); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for i := range n {
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(i), response.GetRequestId())
		assert.EqualValues(t, 1, response.GetAccepted())
		assert.Nil(t, response.GetError())
	}
	_, err := stream.Recv()
	assert.Equal(t, io.EOF, err)
	require.NoError(t, <-sent)
	assert.Len(t, j.readings(), n)
}

func TestStreamGoesOnBehindARefusedRequest(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) { c.MaxBodyBytes = 4 << 10 })
	stream := openStream(t, d)
	large := oneReading("large", "s")
	large.Readings[0].SensorId = string(make([]byte, 5<<10))
	for _, request := range []*telemetrypb.WriteRequest{
		oneReading("good", "s"), {RequestId: "empty"}, {RequestId: "lost", Stream: "cpu"}, oneReading("bad", ""), large, oneReading("last", "s"),
	} {
		require.NoError(t, stream.Send(request))
	}
	require.NoError(t, stream.CloseSend())
	for _, want := range []struct {
		id     string
		code   codes.Code
		reason string
	}{
		{"good", codes.OK, ""}, {"empty", codes.InvalidArgument, "no_readings"}, {"lost", codes.NotFound, "stream_unknown"},
		{"bad", codes.InvalidArgument, "nothing_taken"}, {"large", codes.ResourceExhausted, "body_too_large"}, {"last", codes.OK, ""},
	} {
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, want.id, response.GetRequestId())
		assert.EqualValues(t, want.code, response.GetError().GetStatus(), want.id)
		assert.Equal(t, want.reason, response.GetError().GetCode(), want.id)
		if want.id == "bad" {
			assert.EqualValues(t, 1, response.GetRejected())
			assert.Equal(t, "sensor_missing", response.GetErrors()[0].GetCode())
		}
	}
	_, err := stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.Len(t, j.readings(), 2)
}

func TestStreamHasABoundedNumberInFlight(t *testing.T) {
	t.Parallel()
	counting := &countingJournal{began: make(chan struct{}, 10*maxInFlight), release: make(chan struct{})}
	d, err := New(testConfig(), counting)
	require.NoError(t, err)
	stream := openStream(t, d)
	const n = 3 * maxInFlight
	for i := range n {
		require.NoError(t, stream.Send(oneReading(fmt.Sprint(i), "s")))
	}
	for range maxInFlight {
		<-counting.began
	}
	close(counting.release)
	for i := range n {
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(i), response.GetRequestId())
	}
	assert.LessOrEqual(t, counting.most(), maxInFlight)
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
}

func TestStopEndsStreamsBehindTheirAnswers(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	release := j.waits()
	stream, idle := openStream(t, d), openStream(t, d)
	require.NoError(t, stream.Send(oneReading("taken", "s")))
	require.NoError(t, idle.Send(&telemetrypb.WriteRequest{RequestId: "empty"}))
	_, err := idle.Recv()
	require.NoError(t, err)
	<-j.entered

	d.Stop()
	_, err = idle.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err), "an idle stream need not be closed")
	close(release)
	response, err := stream.Recv()
	require.NoError(t, err, "what was taken is answered")
	assert.Equal(t, "taken", response.GetRequestId())
	assert.EqualValues(t, 1, response.GetAccepted())
	_, err = stream.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err))
}

func TestStreamThatIsGivenUpEndsItsWork(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	j.waits() // for ever
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := dialGRPC(t, d).WriteStream(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(oneReading("", "s")))
	<-j.entered
	cancel()
	<-j.left
	assert.Empty(t, j.readings())
}

func TestStreamWhoseClientIsGoneEndsItsCall(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	defer d.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // the receiver and the call notice in either order
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, writeStreamPath, iotest.ErrReader(errors.New("client disconnected")))
		c, err := d.newCall(httptest.NewRecorder(), r)
		require.NoError(t, err)
		err = d.serveWriteStream(c)
		c.close()
		require.Equal(t, codes.Canceled, status.Code(err))
	}
}

// countingJournal counts how many batches are in it at once.
type countingJournal struct {
	fakeJournal
	began   chan struct{}
	release chan struct{}
	now     int
	max     int
}

func (j *countingJournal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j.mu.Lock()
	j.now++
	j.max = max(j.max, j.now)
	j.mu.Unlock()
	j.began <- struct{}{}
	<-j.release
	j.mu.Lock()
	j.now--
	j.mu.Unlock()
	return j.fakeJournal.Append(ctx, b, r)
}

func (j *countingJournal) most() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.max
}

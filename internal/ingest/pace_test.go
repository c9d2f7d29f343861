package ingest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBodyDeadlineGrowsWithLength(t *testing.T) {
	t.Parallel()
	p, start := pace{grace: 10 * time.Second, rate: 1 << 10}, arrivalTime
	for length, want := range map[int64]time.Duration{
		0: 10 * time.Second, 1 << 10: 11 * time.Second, chunkBytes: 74 * time.Second,
		chunkBytes + 32<<10: 75 * time.Second, 8 << 20: 74*time.Second + 254*time.Second,
	} {
		assert.Equal(t, want, p.until(start, length).Sub(start), "%d bytes", length)
	}
}

func TestStalledBodyTimesOut(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{
		"nothing of it":     "Content-Length: 100\r\n\r\n",
		"a part of it":      "Content-Length: 100\r\n\r\n{",
		"a part of a chunk": "Transfer-Encoding: chunked\r\n\r\n1",
		"more than a page":  "Content-Length: 100000\r\n\r\n" + strings.Repeat(" ", 70_000),
		"for InfluxDB":      "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t, func(c *Config) { c.BodyGrace, c.MinBodyRate = 20*time.Millisecond, 10<<20 })
			conn := dial(t, d)
			request, protocol := "POST /v1/readings HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"+begin, "http"
			if begin == "" {
				request, protocol = "POST /write HTTP/1.1\r\nHost: b\r\nContent-Length: 100\r\n\r\nm", "line"
			}
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			in := bufio.NewReader(conn)
			response, body := readAnswer(t, in)
			assert.Equal(t, http.StatusRequestTimeout, response.StatusCode)
			assert.True(t, response.Close)
			assert.Contains(t, body, `"code":"body_too_slow"`)
			_, err = in.ReadByte()
			assert.ErrorIs(t, err, io.EOF, "the connection ends")
			assert.Empty(t, j.readings())
			assert.EqualValues(t, 1, testutil.ToFloat64(d.metrics.requests.WithLabelValues(protocol, "408")))
			assert.Zero(t, d.budget.held(), "everything was given back")
		})
	}
}

// The deadline of a body is not that of what comes behind it.
func TestAConnectionOutlivesTheDeadlineOfItsBodies(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, func(c *Config) { c.BodyGrace, c.MinBodyRate = 300*time.Millisecond, 1<<30 })
	conn := dial(t, d)
	in := bufio.NewReader(conn)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		_, err := io.WriteString(conn, oneRequest(goodReading))
		require.NoError(t, err)
		response, body := readAnswer(t, in)
		require.Equal(t, 200, response.StatusCode, body)
	}
}

// A body of which hardly anything has arrived holds nothing of the budget.
func TestBodiesReserveNothingBeforeTheirFirstBytes(t *testing.T) {
	t.Parallel()
	d := testReceiver(t, 10*time.Millisecond)
	require.True(t, d.budget.small.try(d.budget.small.size, false))
	send := func(length int) error {
		x, err := received(d, strings.NewReader(strings.Repeat("x", length)))
		x.end()
		return err
	}
	require.NoError(t, send(firstBytes-1))
	require.ErrorContains(t, send(firstBytes+1), "busy")
	d.budget.small.give(d.budget.small.size)
	require.NoError(t, send(firstBytes+1))
	assert.Zero(t, d.budget.held())
}

func TestBodyBeyondTheInflateRatioIsRefused(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	zeros := bytes.Repeat([]byte(" "), 20<<20)
	for encoding, body := range map[string]string{"gzip": gzipped(t, string(zeros)), "zstd": string(encoder.EncodeAll(zeros, nil))} {
		for path, kind := range map[string]string{"/v1/readings": typeLines, "/write": ""} {
			w := post(t, d, path, kind, body, "Content-Encoding", encoding)
			assert.Equal(t, 413, w.Code)
			assert.Regexp(t, fmt.Sprintf(`"code":"inflate_ratio","message":"the first \d{1,4} bytes of the body, of %d, inflate to more than 200 times as many \(--max-inflate-ratio\); nothing was accepted"`, len(body)), w.Body.String(), encoding)
		}
	}
	small := goodReading + strings.Repeat(" ", 1<<20-len(goodReading))
	w := post(t, d, "/v1/readings", typeLines, gzipped(t, small), "Content-Encoding", "gzip")
	assert.Equal(t, 200, w.Code, "up to 1 MiB any ratio will do: %s", w.Body)
	assert.Len(t, j.readings(), 1)
}

// TestInflateRatioIsCheckedContinuously: the limit grows with the input read so far, so
// the order of the content matters.
func TestInflateRatioIsCheckedContinuously(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	var varied strings.Builder
	noise := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		fmt.Fprintf(&varied, "{\"sensorId\":\"%016x\",\"fields\":{\"v\":1}}\n", noise.Uint64())
	}
	dull := strings.Repeat(" ", 3<<20)
	w := post(t, d, "/v1/readings", typeLines, gzipped(t, varied.String()+dull), "Content-Encoding", "gzip")
	assert.Equal(t, 200, w.Code, "%.300s", w.Body)
	assert.Len(t, j.readings(), 2000)
	whole := gzipped(t, dull+varied.String())
	require.Less(t, len(dull), 200*len(whole), "as a whole it is within the ratio")
	w = post(t, d, "/v1/readings", typeLines, whole, "Content-Encoding", "gzip")
	assert.Equal(t, 413, w.Code, "%.300s", w.Body)
	assert.Len(t, j.readings(), 2000)
}

// A deadline or an abort that comes as a message is complete does not end its stream.
func TestDeadlineOfACompleteMessageIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var expired atomic.Int64
		deadline := &lazyDeadline{expire: func() { expired.Add(1) }}
		p := pacer{pace: pace{grace: time.Second, rate: 1}, control: deadline}
		p.begin()
		p.abort()
		p.end()
		deadline.fire() // the timer was running already
		p.begin()
		deadline.fire()
		assert.Zero(t, expired.Load())
		assert.False(t, p.awaited.Load(), "it was about the message before")
		<-time.After(2 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, expired.Load())
		p.end()
	})
}

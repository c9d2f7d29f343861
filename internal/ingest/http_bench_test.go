package ingest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// singleReading is the request that a simple sensor sends.
const singleReading = `{"sensorId":"load-m8x2k1-123","ts":1795255200123,"fields":{"temperature":21.437,"humidity":55.125,"pressure":1013.25,"voltage":3.301},"tags":{"site":"north","model":"a1"}}`

// BenchmarkSingleReading takes requests of a single reading: by the handler alone,
// and by a server to which a client keeps a connection.
func BenchmarkSingleReading(b *testing.B) {
	config := testConfig()
	config.Ack = telemetry.Journaled
	d, err := New(config, droppingJournal{})
	require.NoError(b, err)
	b.Run("handler", func(b *testing.B) { benchHandler(b, d.Handler()) })
	b.Run("server", func(b *testing.B) {
		server := httptest.NewServer(d.Handler())
		defer server.Close()
		benchServer(b, server.Listener.Addr().String())
	})
	g := theGuard(b)
	config.Guard, config.Registerer = g.Guard, nil
	guarded, err := New(config, droppingJournal{})
	require.NoError(b, err)
	b.Run("server, token", func(b *testing.B) {
		server := httptest.NewServer(guarded.Handler())
		defer server.Close()
		benchServer(b, server.Listener.Addr().String(), "Authorization: "+g.bearer("all")+"\r\n")
	})
}

func benchHandler(b *testing.B, handler http.Handler) {
	b.Helper()
	body := bytes.NewReader([]byte(singleReading))
	r := httptest.NewRequest(http.MethodPost, "/v1/readings", nil)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(body.Len())
	w := &discardWriter{header: make(http.Header)}
	benchRequests(b, func() error {
		body.Reset([]byte(singleReading))
		r.Body = io.NopCloser(body)
		clear(w.header)
		handler.ServeHTTP(w, r)
		if w.status != http.StatusOK {
			return fmt.Errorf("the status is %d", w.status)
		}
		return nil
	})
}

// A discardWriter keeps nothing of an answer but its status.
type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }

func benchServer(b *testing.B, address string, headers ...string) {
	b.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", address)
	require.NoError(b, err)
	defer conn.Close()
	request := fmt.Appendf(nil, "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nUser-Agent: bench\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", strings.Join(headers, ""), len(singleReading), singleReading)
	in := bufio.NewReader(conn)
	benchRequests(b, func() error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		return skipAnswer(in)
	})
}

// skipAnswer reads one answer and checks that all was taken.
func skipAnswer(in *bufio.Reader) error {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")):
			return fmt.Errorf("the answer begins with %s", line)
		case len(line) == 2: // the head is over; the body is one line
			_, err = in.ReadSlice('\n')
			return err
		}
	}
}

// benchRequests reports what a request costs.
func benchRequests(b *testing.B, send func() error) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		if err := send(); err != nil {
			b.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "B/request")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/request")
}

package ingest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
)

// serverVariable makes this test binary a server, see TestMain.
const serverVariable = "BRIM_INGEST_TEST_SERVER"

// droppingJournal takes everything and keeps nothing.
type droppingJournal struct{ Journal }

func (droppingJournal) Append(_ context.Context, _ *batch.Batch, r batch.Request) (batch.Receipt, error) {
	return batch.Receipt{Ack: r.Want}, nil
}

// runServer serves a Server until standard input ends. Its address is the first
// line of standard output; GET /peak returns the peak memory.
func runServer() error {
	config := testConfig()
	config.Now, config.MaxInflateRatio = nil, 1_000_000 // so that the other limits apply
	config.MaxBytes = 224 << 20                         // one body of 60 MiB
	d, err := New(config, droppingJournal{})
	if err != nil {
		return err
	}
	var peak atomic.Uint64
	mux := http.NewServeMux()
	mux.Handle("/", d.Handler())
	mux.HandleFunc("/peak", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, peak.Load()) })
	server := httptest.NewServer(mux)
	defer server.Close()
	fmt.Fprintln(os.Stdout, server.URL)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			peak.Store(max(peak.Load(), heldMemory()))
		}
	}
}

// heldMemory returns the bytes that the runtime has from the system.
func heldMemory() uint64 {
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// startServer starts this binary as a server and returns its address.
func startServer(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	// The daemon has the collector run in time, too.
	command.Env = append(os.Environ(), serverVariable+"=1", "GOMEMLIMIT=160MiB")
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		stdin.Close()
		assert.NoError(t, command.Wait())
	})
	address := make([]byte, 100)
	n, err := stdout.Read(address)
	require.NoError(t, err)
	return strings.TrimSpace(string(address[:n]))
}

// A bomb is a body that is small on the wire.
type bomb struct {
	name, path string
	body       []byte
	statuses   []int
}

// bombs returns bodies of 70 MiB, over the limit, and some below it. Any may be
// told to come back later.
func bombs(t *testing.T) []bomb {
	t.Helper()
	text := strings.Repeat("x", 1000)
	reading := func(fields int) string {
		var b strings.Builder
		b.WriteString(`{"sensorId":"s","fields":{"a":1`)
		for i := range fields {
			fmt.Fprintf(&b, `,"f%d":"%s"`, i, text)
		}
		b.WriteString("}}\n")
		return b.String()
	}
	names := func(i int) string { // a reading whose fields have names of their own
		var b strings.Builder
		b.WriteString(`{"sensorId":"s","fields":{`)
		for f := range 256 {
			if f > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%x":1`, i*256+f)
		}
		b.WriteString("}}\n")
		return b.String()
	}
	same := func(part string) func(int) string { return func(int) string { return part } }
	endless := func(i int) string {
		if i == 0 {
			return `{"sensorId":"`
		}
		return text
	}
	return []bomb{
		{"small readings", "/v1/readings", pack(t, 70<<20, same(manyLines(100))), []int{413, 503}},
		{"white space", "/v1/readings", pack(t, 70<<20, same(strings.Repeat(" ", 999)+"\n")), []int{413, 503}},
		{"an endless string", "/v1/readings", pack(t, 70<<20, endless), []int{413, 503}},
		{"much text", "/v1/readings", pack(t, 70<<20, same(reading(7))), []int{413, 503}},
		{"much text within the limits", "/v1/readings", pack(t, 60<<20, same(reading(7))), []int{200, 503}},
		{"many names within the limits", "/v1/readings", pack(t, 12<<20, names), []int{200, 503}},
	}
}

// pack compresses about this many bytes, in members of 1 MiB; the first one is
// repeated where all parts are the same.
func pack(t *testing.T, size int, part func(i int) string) []byte {
	t.Helper()
	var b bytes.Buffer
	i := 0
	member := func() {
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		require.NoError(t, err)
		for n := 0; n < 1<<20; i++ {
			written, err := io.WriteString(w, part(i))
			require.NoError(t, err)
			n += written
		}
		require.NoError(t, w.Close())
	}
	member()
	if part(0) == part(1) {
		return bytes.Repeat(b.Bytes(), size>>20)
	}
	for range size>>20 - 1 {
		member()
	}
	require.Less(t, b.Len(), 8<<20, "it must pass the limit on the wire")
	return b.Bytes()
}

func TestMemoryStaysBoundedUnderManyBombs(t *testing.T) {
	t.Parallel()
	address := startServer(t)
	var clients sync.WaitGroup
	for _, b := range bombs(t) {
		for range 2 {
			clients.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+b.path, bytes.NewReader(b.body))
				if !assert.NoError(t, err) {
					return
				}
				r.Header.Set("Content-Encoding", "gzip")
				r.Header.Set("Content-Type", typeLines)
				response, err := http.DefaultClient.Do(r)
				if !assert.NoError(t, err, b.name) {
					return
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				assert.NoError(t, err)
				assert.Contains(t, b.statuses, response.StatusCode, "%s: %.300s", b.name, body)
			})
		}
	}
	clients.Wait()
	http.DefaultClient.CloseIdleConnections()
	assert.Less(t, peakOf(t, address), uint64(256<<20))
}

func peakOf(t *testing.T, address string) uint64 {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/peak", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	peak, err := strconv.ParseUint(string(body), 10, 64)
	require.NoError(t, err)
	t.Logf("peak %d MiB", peak>>20)
	return peak
}

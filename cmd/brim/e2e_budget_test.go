package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// ingestBudget is the test's budget in MiB, and budgetSlack what the rest of the process may
// need: up to 150, and more if the garbage collector gets too little CPU time. Without a budget
// it is several times as much.
const (
	ingestBudget = 64
	budgetSlack  = 256
)

// textLines returns about this many bytes of NDJSON, in fewer than 10,000 readings.
func textLines(size, fields int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"sensorId":"text-%d","fields":{"n":%d`, i%50, i)
		for f := range fields {
			fmt.Fprintf(&b, `,"f%d":"%s%d"`, f, strings.Repeat("y", 850), i)
		}
		b.WriteString(`},"tags":{"site":"north"}}` + "\n")
	}
	return b.Bytes()
}

func zstandard(t testing.TB, body []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
	require.NoError(t, err)
	return w.EncodeAll(body, nil)
}

// plainMessage holds readings one by one, compactMessage as columns with a byte per value of 8
// bytes.
func plainMessage() *telemetrypb.WriteRequest {
	request := &telemetrypb.WriteRequest{}
	for i := range 9000 {
		request.Readings = append(request.Readings, &telemetrypb.Reading{SensorId: fmt.Sprintf("plain-%d", i%50), Fields: []*telemetrypb.Field{
			{Name: "text", Value: &telemetrypb.Field_StringValue{StringValue: strings.Repeat("z", 750)}},
		}})
	}
	return request
}

func compactMessage(now time.Time) *telemetrypb.WriteRequest {
	const rows, columns = 9000, 60
	series := &telemetrypb.Series{SensorId: "compact"}
	for i := range rows {
		series.TsMs = append(series.TsMs, now.UnixMilli()-int64(i))
	}
	for f := range columns {
		series.Columns = append(series.Columns, &telemetrypb.Column{Name: fmt.Sprintf("f%d", f), Ints: make([]int64, rows)})
	}
	return &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{series}}
}

// A largeForm is one way to send much at once. send returns whether the readings were accepted;
// if not, they must be sent again.
type largeForm struct {
	name    string
	senders int
	enough  int // requests to get accepted in this form
	send    func(ctx context.Context) (taken bool, err error)
}

// postLarge sends a body over HTTP.
func postLarge(b *brimProcess, client *http.Client, encoding string, body func() io.Reader) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.HTTP+"/v1/readings", body())
		if err != nil {
			return false, err
		}
		r.Header.Set("Content-Type", typeLines)
		r.Header.Set("Content-Encoding", encoding)
		answer, err := client.Do(r)
		if err != nil {
			return false, nil // the rest of a refused body is read for only a second
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		switch answer.StatusCode {
		case http.StatusOK, http.StatusAccepted:
			return true, nil
		case http.StatusServiceUnavailable:
			if _, err := strconv.Atoi(answer.Header.Get("Retry-After")); err != nil {
				return false, fmt.Errorf("503 without Retry-After: %s", text)
			}
			return false, nil
		case http.StatusRequestTimeout: // too little time to send
			return false, nil
		}
		return false, fmt.Errorf("answer %d %s", answer.StatusCode, text)
	}
}

// callLarge sends a message over gRPC, each on its own connection.
func callLarge(b *brimProcess, message *telemetrypb.WriteRequest, options ...grpc.CallOption) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		conn, err := grpc.NewClient(b.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return false, err
		}
		defer conn.Close()
		_, err = telemetrypb.NewIngestServiceClient(conn).Write(ctx, message, options...)
		switch grpcstatus.Code(err) {
		case codes.OK:
			return true, nil
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted: // Aborted: too little time to send
			return false, nil
		}
		return false, err
	}
}

// TestMemoryStaysWithinTheBudget sends memory-hungry requests of all forms at once, alongside
// thousands of connections with stalled bodies, to a daemon with a small budget. Senders retry
// refused requests until enough of each form are accepted.
func TestMemoryStaysWithinTheBudget(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector takes more memory than the daemon")
	}
	args := append(onShared(t, mongodtest.Database(t)), "--ack", "journaled", "--max-inflate-ratio", "1000",
		"--max-connections-per-address", "4096", "--ingest-max-bytes", fmt.Sprintf("%dMiB", ingestBudget), "--queue-max-bytes", "128MiB")
	b := startBrim(t, args...).awaitStorage()
	quiet, ok := peakMemory(b.Cmd.Process.Pid)
	if !ok {
		t.Skip("the system does not report a process's memory")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*brimtest.Patience)
	defer cancel()

	// These begin a body of 8 MB and stall. A few have sent enough to hold the budget until
	// others wait for it.
	const dribbling = 2000
	for i := range dribbling {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.HTTP)
		require.NoError(t, err)
		defer conn.Close()
		length, sent := "Content-Length: 8000000\r\n\r\n", 3000
		switch {
		case i%800 == 0:
			sent = 70_000
		case i%2 == 0:
			length = "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"
		}
		_, err = io.WriteString(conn, "POST /v1/readings HTTP/1.1\r\nHost: b\r\nContent-Type: "+typeLines+"\r\n"+length+strings.Repeat("\n", sent))
		require.NoError(t, err)
	}

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	raw, text := textLines(7<<20+1<<19, 1), textLines(12<<20, 7)
	packed := map[string][]byte{"gzip": gzipped(t, text), "zstd": zstandard(t, text)}
	plain, compact := plainMessage(), compactMessage(time.Now())
	forms := []largeForm{
		{"plain bodies", 30, 2, postLarge(b, client, "", func() io.Reader { return bytes.NewReader(raw) })},
		{"chunked bodies", 12, 1, postLarge(b, client, "", func() io.Reader { return io.MultiReader(bytes.NewReader(raw)) })},
		{"gzip bodies", 12, 1, postLarge(b, client, "gzip", func() io.Reader { return bytes.NewReader(packed["gzip"]) })},
		{"zstd bodies", 12, 1, postLarge(b, client, "zstd", func() io.Reader { return bytes.NewReader(packed["zstd"]) })},
		{"messages", 12, 1, callLarge(b, plain)},
		{"messages of columns", 12, 1, callLarge(b, compact)},
		{"gzip messages", 6, 1, callLarge(b, plain, grpc.UseCompressor(gzip.Name))},
	}
	var mu sync.Mutex
	taken, refused := map[string]int{}, map[string]int{}
	begin := time.Now()
	var clients sync.WaitGroup
	for _, f := range forms {
		sending, done := context.WithCancel(ctx)
		defer done()
		for range f.senders {
			clients.Go(func() {
				for sending.Err() == nil {
					ok, err := f.send(sending)
					switch {
					case sending.Err() != nil:
						return
					case !assert.NoError(t, err, f.name):
						cancel()
						return
					case ok:
						mu.Lock()
						if taken[f.name]++; taken[f.name] == f.enough {
							done()
						}
						mu.Unlock()
						continue
					}
					mu.Lock()
					refused[f.name]++
					mu.Unlock()
					select {
					case <-time.After(time.Second): // as Retry-After says
					case <-sending.Done():
					}
				}
			})
		}
	}
	clients.Wait()
	peak, _ := peakMemory(b.Cmd.Process.Pid)
	b.signal(os.Kill) // the journal's readings need not be stored
	b.wait()
	t.Logf("in %v: taken %v, refused %v", time.Since(begin), taken, refused)
	t.Logf("peak %d MiB, %d MiB when quiet", peak>>20, quiet>>20)
	assert.Less(t, peak>>20, int64(ingestBudget+budgetSlack))
	for _, f := range forms {
		assert.GreaterOrEqual(t, taken[f.name], f.enough, f.name)
	}
}

package ingest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unknownLength hides how long a body is.
func unknownLength(body string) io.Reader { return io.MultiReader(strings.NewReader(body)) }

// testReceiver returns a Server that accepts bodies of up to 1 MiB, with a budget of 64.
func testReceiver(t *testing.T, wait time.Duration) *Server {
	t.Helper()
	d, _ := newTestServer(t, func(c *Config) { c.MaxBodyBytes, c.MaxInflatedBytes, c.MaxBytes = 1<<20, 1<<20, MinBudget })
	d.budget.wait = wait
	return d
}

// received returns an exchange that has received its body, or the error.
func received(d *Server, body io.Reader, change ...func(*http.Request)) (*exchange, error) {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	for _, f := range change {
		f(r)
	}
	x := d.newExchange(protoHTTP, httptest.NewRecorder(), r)
	return x, x.receive()
}

// end releases what the exchange holds.
func (x *exchange) end() {
	x.payload.free()
	x.finish()
}

func TestABodyIsReceivedAsItWasSent(t *testing.T) {
	t.Parallel()
	d := testReceiver(t, time.Hour)
	for _, n := range []int{0, 1, firstBytes, firstBytes + 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 7, 1 << 20} {
		content := strings.Repeat("0123456789abcde", n/15+1)[:n]
		for name, sent := range map[string]io.Reader{
			"at once":              strings.NewReader(content),
			"of an unknown length": unknownLength(content),
			"in pieces":            iotest.HalfReader(strings.NewReader(content)),
			"with its end":         iotest.DataErrReader(strings.NewReader(content)),
		} {
			x, err := received(d, sent)
			require.NoError(t, err, name)
			assert.Equal(t, bodyCost(int64(n), int64(n)), x.payload.lease.size, "%d bytes %s", n, name)
			require.True(t, bytes.Equal([]byte(content), x.payload.data), "%d bytes %s", n, name)
			x.end()
		}
	}
	assert.Zero(t, d.budget.held(), "everything was released")
	assert.Empty(t, d.budget.transfers)
}

func TestRefusedBodyReleasesItsMemory(t *testing.T) {
	t.Parallel()
	d := testReceiver(t, time.Hour)
	for _, sent := range []io.Reader{unknownLength(strings.Repeat("x", 1<<20+1)), strings.NewReader(strings.Repeat("x", 1<<20+1)), iotest.TimeoutReader(strings.NewReader(strings.Repeat("x", 1<<20)))} {
		x, err := received(d, sent)
		require.Error(t, err)
		x.end()
	}
	assert.Zero(t, d.budget.held())
	assert.Empty(t, d.budget.transfers)
}

func TestSlowSenderDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	large := manyLines(2) + strings.Repeat("\n", 5<<20)
	read, write := io.Pipe()
	slow := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequest(http.MethodPost, "/v1/readings", read)
		r.Header.Set("Content-Type", typeLines)
		d.Handler().ServeHTTP(slow, r)
	}()
	_, err := io.WriteString(write, large[:5<<20])
	require.NoError(t, err) // so all of that was received
	for range 3 {
		w := post(t, d, "/v1/readings", typeLines, large)
		assert.Equal(t, 200, w.Code, w.Body)
	}
	_, err = io.WriteString(write, large[5<<20:])
	require.NoError(t, err)
	require.NoError(t, write.Close())
	<-done
	assert.Equal(t, 200, slow.Code, slow.Body)
	assert.Len(t, j.readings(), 8)
}

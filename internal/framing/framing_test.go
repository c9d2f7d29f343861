package framing

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const hidden = "POST /hidden HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n"

// request is one with a body of a chunk.
func request(headers string) string {
	return "POST /open HTTP/1.1\r\nHost: b\r\n" + headers + "\r\n5\r\nhello\r\n0\r\n\r\n"
}

// protected is a server that counts what was carried out, by path.
type protected struct {
	*httptest.Server

	hidden, open atomic.Int64
}

func protect(t *testing.T, secure bool) *protected {
	t.Helper()
	p := new(protected)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what is read of it does not matter here
		if r.URL.Path == "/hidden" {
			p.hidden.Add(1)
		} else {
			p.open.Add(1)
		}
	}))
	Protect(p.Config, func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) })
	if secure {
		p.StartTLS()
	} else {
		p.Listener = Listener(p.Listener)
		p.Start()
	}
	t.Cleanup(p.Close)
	return p
}

func (p *protected) dial(t *testing.T) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if p.TLS != nil {
		c, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", p.Listener.Addr().String()) //nolint:gosec // the test's own
	} else {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Listener.Addr().String())
	}
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// answers sends all at once and returns the statuses of the answers, and whether
// the connection was closed behind them.
func (p *protected) answers(t *testing.T, sent string, most int) (statuses []int, closed bool) {
	t.Helper()
	c := p.dial(t)
	_, err := io.WriteString(c, sent)
	require.NoError(t, err)
	r := bufio.NewReader(c)
	for range most {
		response, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		statuses = append(statuses, response.StatusCode)
		if response.Close {
			_, err = r.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			return statuses, true
		}
	}
	return statuses, false
}

func TestWhatEndsInTwoWaysIsRefused(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]string{
		"length first":   "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"encoding first": "Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 5\r\n",
		"small letters":  "content-length: 5\r\ntransfer-encoding: chunked\r\n",
		"without spaces": "CONTENT-LENGTH:5\r\nTRANSFER-ENCODING:chunked\r\n",
		"bare newlines":  "Content-Length: 5\nTransfer-Encoding: chunked\n",
		"folded":         "Content-Length: 5\r\nX: y\r\n z\r\nTransfer-Encoding:\r\n chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := protect(t, false)
			statuses, closed := p.answers(t, request(headers)+hidden, 2)
			assert.Equal(t, []int{http.StatusBadRequest}, statuses)
			assert.True(t, closed)
			assert.Zero(t, p.open.Load())
			assert.Zero(t, p.hidden.Load())
		})
	}
}

func TestWhatEndsInOneWayIsServed(t *testing.T) {
	t.Parallel()
	p := protect(t, false)
	long := "POST /open HTTP/1.1\r\nHost: b\r\nContent-Length: 60000\r\n\r\n" + strings.Repeat("a line\n", 60000)[:60000]
	statuses, closed := p.answers(t, request("Transfer-Encoding: chunked\r\n")+hidden+long+request("Transfer-Encoding: chunked\r\n"), 4)
	assert.Equal(t, []int{200, 200, 200, 200}, statuses)
	assert.False(t, closed)
	assert.EqualValues(t, 3, p.open.Load())
	assert.EqualValues(t, 1, p.hidden.Load())
}

func TestAConnectionThatWasUsedWellIsWatchedOn(t *testing.T) {
	t.Parallel()
	p := protect(t, false)
	c := p.dial(t)
	r := bufio.NewReader(c)
	for i, headers := range []string{"Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"} {
		_, err := io.WriteString(c, request(headers))
		require.NoError(t, err)
		response, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, i == 1, response.StatusCode == http.StatusBadRequest)
		assert.Equal(t, i == 1, response.Close)
	}
}

func TestOverTLSNothingStandsBehindChunks(t *testing.T) {
	t.Parallel()
	p := protect(t, true)
	for i, headers := range []string{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\n"} {
		statuses, closed := p.answers(t, request(headers)+hidden, 2)
		assert.Equal(t, []int{200}, statuses)
		assert.True(t, closed)
		assert.EqualValues(t, i+1, p.open.Load())
	}
	assert.Zero(t, p.hidden.Load())
	statuses, closed := p.answers(t, hidden+hidden, 2)
	assert.Equal(t, []int{200, 200}, statuses)
	assert.False(t, closed, "who says how long his body is keeps his connection")
}

func TestHeadsAreSeenHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	all := request("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")
	for i := range all {
		var h heads
		first := h.see([]byte(all[:i]))
		assert.True(t, h.see([]byte(all[i:])) || first, "cut at %d", i)
	}
	var h heads
	both := false
	for i := range all {
		both = h.see([]byte{all[i]}) || both
	}
	assert.True(t, both)
}

// FuzzHeads holds that what net/http takes for a head with both is seen, behind
// whatever comes before it and however it is cut.
func FuzzHeads(f *testing.F) {
	f.Add("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "", 3)
	f.Add("content-length:5\n X: y\nX: y\nTransfer-Encoding:\tchunked\r\n", "{\"a\":1}\n", 30)
	f.Add("Transfer-Encoding: chunked\r\n\r\nContent-Length: 5\r\n", "no end", 1)
	f.Fuzz(func(t *testing.T, headers, before string, cut int) {
		text := "POST / HTTP/1.1\r\nHost: b\r\n" + headers + "\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		length, encoding := false, len(r.TransferEncoding) > 0
		if encoding {
			// Read once more without the encoding, the length is there, if it is one.
			head, _, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n")
			for line := range strings.Lines(head) {
				name, _, found := strings.Cut(line, ":")
				length = length || found && strings.EqualFold(name, "Content-Length")
			}
		}
		text = before + text
		at := min(max(cut, 0), len(text))
		var h heads
		first := h.see([]byte(text[:at]))
		if got := h.see([]byte(text[at:])) || first; length && encoding {
			assert.True(t, got, "%q", text)
		}
	})
}

func BenchmarkHeads(b *testing.B) {
	body := []byte(strings.Repeat(`{"sensorId":"sensor-1","ts":"2026-11-21T10:00:00Z","fields":{"t":21.5}}`+"\n", 400))
	b.SetBytes(int64(len(body)))
	var h heads
	for b.Loop() {
		if h.see(body) {
			b.Fatal("no head")
		}
	}
}

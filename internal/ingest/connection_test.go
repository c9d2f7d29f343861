package ingest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dial returns a connection to a server of d.
func dial(t *testing.T, d *Server) net.Conn {
	t.Helper()
	server := httptest.NewServer(d.Handler())
	t.Cleanup(server.Close)
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// readAnswer reads one answer and its body.
func readAnswer(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(body)
}

const requestHead = "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nContent-Type: application/x-ndjson\r\n"

const goodReading = `{"sensorId":"s","fields":{"t":1}}`

// oneRequest returns a request with this body, behind which others may follow.
func oneRequest(body string) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", requestHead, len(body), body)
}

func TestAnswerArrivesAlthoughTheBodyIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"by its length":     requestHead + "Content-Length: 9437184\r\n\r\n",
		"in chunks":         requestHead + "Transfer-Encoding: chunked\r\n\r\n900000\r\n",
		"of the wrong type": strings.Replace(requestHead, "x-ndjson", "pdf", 1) + "Content-Length: 9437184\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			conn := dial(t, d)
			// This client reads nothing before all is sent.
			_, err := io.WriteString(conn, head+strings.Repeat(" ", 9<<20)+"\r\n0\r\n\r\n")
			require.NoError(t, err)
			response, body := readAnswer(t, bufio.NewReader(conn))
			if name == "of the wrong type" {
				assert.Equal(t, 415, response.StatusCode)
			} else {
				assert.Equal(t, 413, response.StatusCode)
				assert.Contains(t, body, "the body is larger than 8388608 bytes (--max-body-bytes)")
			}
			assert.Empty(t, j.readings())
		})
	}
}

func TestAnEndlessBodyIsAnsweredAfterAWhile(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	conn := dial(t, d)
	_, err := fmt.Fprint(conn, requestHead+"Content-Length: 1099511627776\r\n\r\n")
	require.NoError(t, err)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		spaces := make([]byte, 64<<10)
		for err := error(nil); err == nil; {
			_, err = conn.Write(spaces)
		}
	}()
	response, _ := readAnswer(t, bufio.NewReader(conn))
	assert.Equal(t, 413, response.StatusCode)
	assert.True(t, response.Close, "what is left of the body must not be taken for a request")
	conn.Close()
	<-sent
}

func TestAClientThatAsksFirstIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	conn := dial(t, d)
	_, err := fmt.Fprint(conn, requestHead+"Content-Length: 9437184\r\nExpect: 100-continue\r\n\r\n")
	require.NoError(t, err)
	response, _ := readAnswer(t, bufio.NewReader(conn)) // nothing of the body was sent
	assert.Equal(t, 413, response.StatusCode)
}

func TestARefusedRequestDoesNotEndItsConnection(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	conn := dial(t, d)
	r := bufio.NewReader(conn)
	for range 3 {
		_, err := fmt.Fprint(conn, strings.Replace(requestHead, "x-ndjson", "pdf", 1)+"Content-Length: 3\r\n\r\nabc")
		require.NoError(t, err)
		response, _ := readAnswer(t, r)
		assert.Equal(t, 415, response.StatusCode)
		good := manyLines(1)
		_, err = fmt.Fprintf(conn, requestHead+"Content-Length: %d\r\n\r\n%s", len(good), good)
		require.NoError(t, err)
		response, _ = readAnswer(t, r)
		assert.Equal(t, 200, response.StatusCode)
	}
	assert.Len(t, j.readings(), 3)
}

func TestAClientThatGoesAwayEndsItsWait(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	j.waits() // for ever
	server := httptest.NewServer(d.Handler())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	good := manyLines(1)
	_, err = fmt.Fprintf(conn, requestHead+"Content-Length: %d\r\n\r\n%s", len(good), good)
	require.NoError(t, err)
	<-j.entered
	require.NoError(t, conn.Close())
	server.Close() // returns when the request has ended
	assert.Empty(t, j.readings())
}

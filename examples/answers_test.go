package examples_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// answer is one that has its length, unless it names another.
func answer(status, body string, headers ...string) string {
	head := strings.Join(append([]string{"HTTP/1.1 " + status}, headers...), "\r\n")
	if !strings.Contains(head, "Content-Length") {
		head += fmt.Sprintf("\r\nContent-Length: %d", len(body))
	}
	return head + "\r\nConnection: close\r\n\r\n" + body
}

// answering is a server that gives these answers in turn, and the last again and
// again. It returns where it listens, and the keys of the requests that came.
func answering(t *testing.T, answers ...string) (address string, keys chan string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	keys = make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, request.Body)
				keys <- request.Header.Get("Idempotency-Key")
				_, _ = io.WriteString(conn, answers[min(i, len(answers)-1)])
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		<-done
	})
	return listener.Addr().String(), keys
}

const taken = `{"accepted":1000,"rejected":0,"ack":"journaled","errors":[]}`

func TestPythonRetriesAfterATruncatedRefusal(t *testing.T) {
	t.Parallel()
	address, keys := answering(t,
		answer("503 Service Unavailable", `{"code"`, "Content-Length: 100"),
		answer("400 Bad Request", `{"accepted":0,"rejec`, "Content-Length: 100"),
		answer("200 OK", taken))
	cmd := exec.CommandContext(t.Context(), python(t), "python/send.py", "http://"+address)
	cmd.Env = append(brimtest.Env(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "1000 accepted, journaled\n1000 accepted, journaled\n", string(out))
	require.Len(t, keys, 4)
	first := <-keys
	for range 3 {
		assert.Equal(t, first, <-keys)
	}
}

func TestDeviceSurvivesMalformedAnswers(t *testing.T) {
	t.Parallel()
	refusals := strings.Repeat(`{"index":1,"code":"bad_field","message":"`+strings.Repeat("x", 400)+`"},`, 60)
	for _, interpreter := range []string{"python3", "micropython"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			path := brimtest.Program(t, interpreter)
			address, keys := answering(t,
				answer("503 Service Unavailable", "", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"),
				answer("200 OK", "<html>Please log in</html>"),
				answer("200 OK", "[]"),
				answer("207 Multi-Status", `{"accepted":1,"rejected":49,"ack":"journaled","errors":[`+strings.TrimSuffix(refusals, ",")+`]}`),
				answer("200 OK", `{"accepted":50,"rejected":0,"ack":"journaled","errors":[]}`))
			host, port, err := net.SplitHostPort(address)
			require.NoError(t, err)
			code, err := filepath.Abs("esp32/desk.py")
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), path, code, host, port, "token", "100")
			cmd.Env = append(brimtest.Env(), "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "51 delivered, 49 refused, 0 dropped")
			require.Len(t, keys, 5)
			first := <-keys
			for range 3 {
				assert.Equal(t, first, <-keys)
			}
			assert.NotEqual(t, first, <-keys)
		})
	}
}

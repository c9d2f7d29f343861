package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const taken2 = `{"accepted":2,"rejected":0,"ack":"journaled","errors":[]}`

// answers is a server that gives scripted answers and records the keys.
type answers struct {
	*httptest.Server

	mu     sync.Mutex
	keys   []string
	bodies []string
	give   []func(http.ResponseWriter)
}

func newAnswers(t *testing.T, give ...func(http.ResponseWriter)) *answers {
	t.Helper()
	a := &answers{give: give}
	a.Server = webServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		n := min(len(a.keys), len(a.give)-1)
		a.keys, a.bodies = append(a.keys, r.Header.Get("Idempotency-Key")), append(a.bodies, string(body))
		a.mu.Unlock()
		a.give[n](w)
	})
	return a
}

// say answers with a status, a body and headers, which alternate between names and values.
func say(status int, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hangUp closes the connection after the request's body, without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// halfAnswer closes the connection in the middle of the answer.
func halfAnswer(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, taken2)
}

func TestEveryAnswerIsDealtWith(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first   func(http.ResponseWriter)
		tried   int // if the second answer accepts everything
		unknown bool
		kind    telemetry.ErrorKind
	}{
		"503 of a daemon":               {first: say(503, `{"code":"journal_full","message":"m"}`), tried: 2},
		"503 of a balancer":             {first: say(503, `<html>`), tried: 2},
		"429":                           {first: say(429, `{"code":"quota_readings","message":"m"}`), tried: 2},
		"429 of a balancer":             {first: say(429, ``), tried: 2},
		"408":                           {first: say(408, `{"code":"body_too_slow","message":"m"}`), tried: 2},
		"502":                           {first: say(502, ``), tried: 2},
		"504":                           {first: say(504, `{"code":"outcome_unknown","message":"m"}`), tried: 2},
		"no answer":                     {first: hangUp, tried: 2},
		"half an answer":                {first: halfAnswer, tried: 2},
		"400":                           {first: say(400, `{"code":"malformed","message":"m"}`), tried: 1, kind: telemetry.Invalid},
		"401":                           {first: say(401, `{"code":"token_missing","message":"m"}`), tried: 1, kind: telemetry.Unauthenticated},
		"403":                           {first: say(403, `{"code":"scope_missing","message":"m"}`), tried: 1, kind: telemetry.Forbidden},
		"404":                           {first: say(404, `{"code":"stream_unknown","message":"m"}`), tried: 1, kind: telemetry.NotFound},
		"404 of a proxy":                {first: say(404, `404 page not found`), tried: 2},
		"403 of a proxy":                {first: say(403, `<html>`), tried: 2},
		"400 of a proxy":                {first: say(400, `<html>`), tried: 1},
		"413 of a proxy":                {first: say(413, `<html>`), tried: 1},
		"500 of a proxy":                {first: say(500, `<html>`), tried: 2},
		"502 of a proxy with a reason":  {first: say(502, `{"code":"upstream","message":"m"}`), tried: 2},
		"409":                           {first: say(409, `{"code":"key_conflict","message":"m"}`), tried: 1, kind: telemetry.Conflict},
		"413":                           {first: say(413, `{"code":"body_too_large","message":"m"}`), tried: 1, kind: telemetry.TooLarge},
		"415":                           {first: say(415, `{"code":"type_unknown","message":"m"}`), tried: 1, kind: telemetry.Unsupported},
		"500":                           {first: say(500, `{"code":"internal","message":"m"}`), tried: 1, unknown: true},
		"301":                           {first: say(301, ``, "Location", "http://127.0.0.1:1/"), tried: 1},
		"200 of a proxy":                {first: say(200, `<html>`), tried: 2},
		"200 with other counts":         {first: say(200, `{"accepted":3,"rejected":0}`), tried: 1, unknown: true},
		"207 that names reading 9 of 2": {first: say(207, `{"accepted":1,"rejected":1,"errors":[{"index":9}]}`), tried: 1, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAnswers(t, row.first, say(200, taken2))
			result, err := newClient(t, server.URL).Write(t.Context(), weather("s", 2)...)
			require.Len(t, server.keys, row.tried)
			if row.tried > 1 {
				require.NoError(t, err)
				assert.Equal(t, 2, result.Attempts)
				assert.Equal(t, server.keys[0], server.keys[1], "one key for all attempts")
				assert.Equal(t, server.bodies[0], server.bodies[1])
				assert.Len(t, server.keys[0], 26)
				return
			}
			var failed *Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, row.unknown, failed.Unknown)
			assert.Equal(t, row.kind, telemetry.KindOf(err))
		})
	}
}

func TestEachRequestHasAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	server := newAnswers(t, say(200, taken2))
	c := newClient(t, server.URL)
	for range 2 {
		_, err := c.Write(t.Context(), weather("s", 2)...)
		require.NoError(t, err)
	}
	assert.NotEqual(t, server.keys[0], server.keys[1])
}

// lossy forwards requests to a daemon, but drops the connection before the first answers.
func lossy(t *testing.T, d *daemon, losses int64) string {
	t.Helper()
	to, err := url.Parse(d.http)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	var lost atomic.Int64
	proxy.ModifyResponse = func(*http.Response) error {
		if lost.Add(1) <= losses {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { hangUp(w) }
	return webServer(t, proxy.ServeHTTP).URL
}

func TestAnswersThatAreLostStoreNothingTwice(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	result, err := newClient(t, lossy(t, d, 3)).Write(t.Context(), weather("s", 2)...)
	require.NoError(t, err)
	// net/http itself retries requests with a key that were lost on a reused
	// connection.
	assert.LessOrEqual(t, result.Attempts, 4)
	assert.True(t, result.Replayed)
	assert.Len(t, d.journal.taken(), 2)
}

func TestAttemptsTimeOut(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d), func(c *Config) { c.Timeout = 200 * time.Millisecond })
		_, err := c.Write(t.Context(), weather("s", 1)...) // establishes a connection
		require.NoError(t, err)
		begun := make(chan struct{})
		d.journal.set(func() { d.journal.block, d.journal.begun = make(chan struct{}), begun })
		for unknown, arrived := false, false; !arrived; { // repeated if the machine is too busy to send it in time
			_, err = c.send(t.Context(), Request{Readings: weather("s", 2)}, Never, nil)
			var failed *Error
			require.ErrorAs(t, err, &failed)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 1, failed.Attempts)
			unknown = unknown || failed.Unknown
			select {
			case <-begun:
				arrived = true
				assert.True(t, unknown)
			default:
			}
		}

		d.journal.set(func() {
			close(d.journal.block)
			d.journal.block = nil
		})
		_, err = c.Write(t.Context(), weather("s", 2)...)
		require.NoError(t, err)
	})
}

func TestAContextEndsARequest(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		_, err := c.Write(t.Context(), weather("s", 1)...)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Write(ctx, weather("s", 2)...)
		var failed *Error
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, failed.Unknown, "it was not begun")
		assert.Len(t, d.journal.taken(), 1)

		begun := make(chan struct{})
		d.journal.set(func() { d.journal.block, d.journal.begun = make(chan struct{}), begun })
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		_, err = c.Write(ctx, weather("s", 2)...)
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, context.Canceled)
		assert.True(t, failed.Unknown)
	})
}

func TestACanceledRequestDisturbsNoOther(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		block, begun := make(chan struct{}), make(chan struct{})
		d.journal.set(func() { d.journal.block, d.journal.begun = block, begun })
		attempts := make(chan int, 1)
		go func() {
			result, err := c.Write(t.Context(), weather("s", 1)...)
			assert.NoError(t, err)
			attempts <- result.Attempts
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := c.Write(ctx, weather("s", 1)...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(block)
		assert.Equal(t, 1, <-attempts)
	})
}

// unused returns an address without a listener.
func unused(t *testing.T, scheme string) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	return scheme + "://" + l.Addr().String()
}

func schemeOf(address string) string {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme
}

func TestADaemonThatIsNotThereIsLeftForTheNext(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, unused(t, schemeOf(address(d))), func(c *Config) { c.Addresses = append(c.Addresses, address(d)) })
		for tried := 2; tried > 0; tried-- { // the second time, it is the one in use
			result, err := c.Write(t.Context(), weather("s", 1)...)
			require.NoError(t, err)
			assert.Equal(t, tried, result.Attempts)
			assert.Equal(t, address(d), result.Address)
		}
	})
}

func TestADaemonThatIsFullIsLeftForTheNext(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		full, d := startDaemon(t), startDaemon(t)
		full.journal.fail = []error{&telemetry.Error{Kind: telemetry.Unavailable, Code: "journal_full", Message: "m", RetryAfter: time.Hour}}
		c := newClient(t, address(full), func(c *Config) { c.Addresses = append(c.Addresses, address(d)) })
		result, err := c.Write(t.Context(), weather("s", 1)...)
		require.NoError(t, err)
		assert.Equal(t, address(d), result.Address)
	})
}

func TestAQuotaIsNotEvaded(t *testing.T) {
	t.Parallel()
	d, next := startDaemon(t), startDaemon(t)
	d.journal.fail = []error{&telemetry.Error{Kind: telemetry.Quota, Code: "quota_readings", Message: "m", RetryAfter: time.Millisecond}}
	c := newClient(t, d.http, func(c *Config) { c.Addresses = append(c.Addresses, next.http) })
	result, err := c.Write(t.Context(), weather("s", 1)...)
	require.NoError(t, err)
	assert.Equal(t, d.http, result.Address)
}

// TestUnknownOutcomesAreRetriedAtTheSameAddress loses answers; the other daemon
// does not know the key.
func TestUnknownOutcomesAreRetriedAtTheSameAddress(t *testing.T) {
	t.Parallel()
	first, second := startDaemon(t), startDaemon(t)
	c := newClient(t, lossy(t, first, 2), func(c *Config) { c.Addresses = append(c.Addresses, second.http) })
	_, err := c.Write(t.Context(), weather("s", 2)...)
	require.NoError(t, err)
	assert.Len(t, first.journal.taken(), 2)
	assert.Empty(t, second.journal.taken())
}

func TestAtLeastOnceRatherStoresTwice(t *testing.T) {
	t.Parallel()
	first, second := startDaemon(t), startDaemon(t)
	c := newClient(t, lossy(t, first, 1000), func(c *Config) { c.Addresses, c.AtLeastOnce = append(c.Addresses, second.http), true })
	result, err := c.Write(t.Context(), weather("s", 2)...)
	require.NoError(t, err)
	assert.Equal(t, second.http, result.Address)
	assert.Len(t, first.journal.taken(), 2)
	assert.Len(t, second.journal.taken(), 2)
}

// cutter forwards connections to a daemon's gRPC listener, and cuts them.
type cutter struct {
	net.Listener

	to    string
	mu    sync.Mutex
	conns []net.Conn
	run   sync.WaitGroup
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	c := &cutter{Listener: listen(t, "127.0.0.1:0"), to: strings.TrimPrefix(to, "grpc://")}
	c.run.Go(func() {
		for {
			conn, err := c.Accept()
			if err != nil {
				return
			}
			c.pass(conn)
		}
	})
	t.Cleanup(func() {
		c.Close()
		c.cut()
		c.run.Wait()
	})
	return c
}

func (c *cutter) pass(conn net.Conn) {
	out, err := net.Dial("tcp", c.to)
	if err != nil {
		conn.Close()
		return
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn, out)
	c.mu.Unlock()
	for _, way := range [][2]net.Conn{{conn, out}, {out, conn}} {
		c.run.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			way[0].Close()
			way[1].Close()
		})
	}
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// TestAStreamThatIsCutIsGoneOnWith cuts the connection while a request waits for
// its answer; the daemon accepts the request all the same.
func TestAStreamThatIsCutIsGoneOnWith(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	between := newCutter(t, d.grpc)
	c := newClient(t, "grpc://"+between.Addr().String())
	for round := range 5 {
		block, begun := make(chan struct{}), make(chan struct{})
		d.journal.set(func() { d.journal.block, d.journal.begun = block, begun })
		done := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := c.Write(t.Context(), one("s", float64(10*round+i)))
				done <- err
			}()
		}
		<-begun
		between.cut()
		d.journal.set(func() { d.journal.block, d.journal.begun = nil, nil })
		close(block)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	}
	seen := map[float64]int{}
	for _, r := range d.journal.taken() {
		seen[r.Fields[0].Value.Float()]++
	}
	assert.Len(t, seen, 10)
	for v, n := range seen {
		assert.Equal(t, 1, n, v)
	}
}

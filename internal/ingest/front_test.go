package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fronted is a server behind a front.
type fronted struct {
	front   *Front
	server  *http.Server
	handled atomic.Int64 // requests that net/http was given
}

// serveFront serves d behind a front until the test ends.
func serveFront(t testing.TB, d *Door, change ...func(*http.Server)) *fronted {
	t.Helper()
	f, handler := &fronted{}, d.Handler()
	f.server = &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.handled.Add(1)
		handler.ServeHTTP(w, r)
	})}
	for _, c := range change {
		c(f.server)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.front = d.Front(listener, f.server)
	ended := make(chan error, 1)
	go func() { ended <- f.server.Serve(f.front) }()
	t.Cleanup(func() {
		assert.NoError(t, f.server.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
		d.Wait()
	})
	return f
}

func (f *fronted) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.front.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// frontDoor returns a door whose default ack is one that a front can give.
func frontDoor(t testing.TB) (*Door, *fakeJournal) {
	t.Helper()
	return newTestDoor(t, func(c *Config) { c.Ack = telemetry.Journaled })
}

const goodReading = `{"sensorId":"s","fields":{"t":1}}`

// simple is a request that a front answers.
func simple(body string, headers ...string) string {
	return fmt.Sprintf(simpleStart+"Host: brim:8430\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", strings.Join(headers, ""), len(body), body)
}

// exchangeAll sends a request on a new connection and returns the answer.
func exchangeAll(t *testing.T, f *fronted, request string) (*http.Response, string) {
	t.Helper()
	conn := f.dial(t)
	_, err := io.WriteString(conn, request)
	require.NoError(t, err)
	return readAnswer(t, bufio.NewReader(conn))
}

func TestAFrontAnswersAsTheHandlerDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		change func(*Door, *fakeJournal)
	}{
		"a reading":      {body: goodReading},
		"an array":       {body: `[` + goodReading + `,` + goodReading + `]`},
		"partly refused": {body: `[` + goodReading + `,{"sensorId":""}]`},
		"refused":        {body: `{"sensorId":"s"}`},
		"broken":         {body: `{"sensorId":`},
		"nothing":        {body: `[]`},
		"stopping":       {body: goodReading, change: func(d *Door, _ *fakeJournal) { d.stopping.Store(true) }},
		"late refusal": {body: goodReading, change: func(_ *Door, j *fakeJournal) {
			j.refused = []batch.Refused{{Refusal: telemetry.Refusal{Code: telemetry.StoreRefused}}}
		}},
		"a full journal": {body: goodReading, change: func(_ *Door, j *fakeJournal) {
			j.err = &telemetry.Error{Kind: telemetry.Unavailable, Code: "full", RetryAfter: time.Second}
		}},
		"a defect": {body: goodReading, change: func(_ *Door, j *fakeJournal) { j.err = errors.New("defect") }},
		"unknown outcome": {body: goodReading, change: func(_ *Door, j *fakeJournal) {
			j.err = &telemetry.Error{Kind: telemetry.UnknownOutcome, Code: "who_knows"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answers []string
			var taken [][]telemetry.Reading
			// An unknown header makes the same request one for net/http.
			for i, header := range []string{"", "X-Other: 1\r\n"} {
				d, j := frontDoor(t)
				if c.change != nil {
					c.change(d, j)
				}
				f := serveFront(t, d)
				response, body := exchangeAll(t, f, simple(c.body, header))
				assert.EqualValues(t, i, f.handled.Load(), "who answered")
				_, err := http.ParseTime(response.Header.Get("Date"))
				require.NoError(t, err)
				response.Header.Del("Date")
				answers = append(answers, fmt.Sprint(response.Proto, response.Status, response.ContentLength, response.Close, response.Header, body))
				taken = append(taken, j.readings())
			}
			assert.Equal(t, answers[1], answers[0])
			assert.Equal(t, taken[1], taken[0])
		})
	}
}

func TestWhatIsNotSimpleIsForNetHTTP(t *testing.T) {
	t.Parallel()
	gz := gzipped(t, goodReading)
	large := `[` + strings.Repeat(goodReading+",", 200) + goodReading + `]`
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"another path":       {"GET /ping HTTP/1.1\r\nHost: b\r\n\r\n", 204},
		"another method":     {"GET /v1/readings HTTP/1.1\r\nHost: b\r\n\r\n", 405},
		"a query":            {strings.Replace(simple(goodReading), " HTTP", "?ack=stored HTTP", 1), 200},
		"HTTP/1.0":           {strings.Replace(simple(goodReading), "HTTP/1.1", "HTTP/1.0", 1), 200},
		"no host":            {strings.Replace(simple(goodReading), "Host: brim:8430\r\n", "", 1), 400},
		"two hosts":          {simple(goodReading, "Host: b\r\n"), 400},
		"two lengths":        {simple(goodReading, "Content-Length: 7\r\n"), 400},
		"a negative length":  {strings.Replace(simple(goodReading), "Length: ", "Length: -", 1), 400},
		"a folded line":      {simple(goodReading, "User-Agent: a\r\n b\r\n"), 200},
		"a space in a name":  {simple(goodReading, "User-Agent : a\r\n"), 400},
		"a control byte":     {simple(goodReading, "User-Agent: a\x01\r\n"), 400},
		"chunks":             {strings.Replace(simple(""), "Content-Length: 0\r\n\r\n", fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(goodReading), goodReading), 1), 200},
		"gzip":               {simple(gz, "Content-Encoding: gzip\r\n"), 200},
		"an unknown type":    {strings.Replace(simple(goodReading), "/json", "/pdf", 1), 415},
		"lines":              {strings.Replace(simple(goodReading), "/json", "/x-ndjson", 1), 200},
		"ack stored":         {simple(goodReading, "Brim-Ack: stored\r\n"), 200},
		"an unknown ack":     {simple(goodReading, "Brim-Ack: maybe\r\n"), 400},
		"a key":              {simple(goodReading, "Idempotency-Key: k\r\n"), 200},
		"a token":            {simple(goodReading, "Authorization: Bearer x\r\n"), 200},
		"the last request":   {simple(goodReading, "Connection: close\r\n"), 200},
		"ends with a LF":     {strings.ReplaceAll(simple(goodReading), "\r\n", "\n"), 200},
		"what is not HTTP":   {"hello\r\n\r\n", 400},
		"larger than a page": {simple(large), 200},
		"no body":            {strings.Replace(simple(""), "Content-Length: 0\r\n", "", 1), 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, j := frontDoor(t)
			f := serveFront(t, d)
			response, body := exchangeAll(t, f, c.request)
			assert.Equal(t, c.status, response.StatusCode, body)
			if c.status == 200 {
				assert.EqualValues(t, 1, f.handled.Load())
				assert.NotEmpty(t, j.readings())
			}
		})
	}
}

func TestABodyOverTheLimitIsForNetHTTP(t *testing.T) {
	t.Parallel()
	for size, handled := range map[int]int{1 << 10: 0, 1<<10 + 1: 1} {
		d, j := newTestDoor(t, func(c *Config) { c.Ack, c.MaxBodyBytes = telemetry.Journaled, 1<<10 })
		f := serveFront(t, d)
		response, body := exchangeAll(t, f, simple(strings.Repeat(" ", size-len(goodReading))+goodReading))
		assert.EqualValues(t, handled, f.handled.Load(), size)
		assert.Len(t, j.readings(), 1-handled, size)
		if handled > 0 {
			assert.Equal(t, 413, response.StatusCode)
			assert.Contains(t, body, "--max-body-bytes")
		}
	}
}

func TestAFrontPromisesOnlyWhatItCanKeep(t *testing.T) {
	t.Parallel()
	d, j := newTestDoor(t) // ack stored, where the client does not say
	f := serveFront(t, d)
	conn := f.dial(t)
	r := bufio.NewReader(conn)
	for i, header := range []string{"Brim-Ack: journaled\r\n", "", "Brim-Ack: journaled\r\n"} {
		_, err := io.WriteString(conn, simple(goodReading, header))
		require.NoError(t, err)
		response, _ := readAnswer(t, r)
		assert.Equal(t, 200, response.StatusCode)
		assert.EqualValues(t, i, f.handled.Load(), "and once it is net/http's, the connection stays there")
	}
	assert.Equal(t, []telemetry.Ack{"journaled", "stored", "journaled"}, j.wants)
}

func TestAConnectionIsKeptFromRequestToRequest(t *testing.T) {
	t.Parallel()
	d, j := frontDoor(t)
	f := serveFront(t, d)
	conn := f.dial(t)
	r := bufio.NewReader(conn)
	request := simple(goodReading, "User-Agent: a\r\nACCEPT: */*\r\naccept-encoding: gzip\r\nConnection: keep-alive\r\n")
	for range 10 {
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		response, _ := readAnswer(t, r)
		assert.Equal(t, 200, response.StatusCode)
	}
	assert.Zero(t, f.handled.Load())
	_, err := io.WriteString(conn, request+request+request)
	require.NoError(t, err)
	for range 3 {
		response, _ := readAnswer(t, r)
		assert.Equal(t, 200, response.StatusCode)
	}
	assert.EqualValues(t, 3, f.handled.Load())
	assert.Len(t, j.readings(), 13)
}

func TestASlowRequestIsForNetHTTP(t *testing.T) {
	t.Parallel()
	d, j := frontDoor(t)
	f := serveFront(t, d)
	client, inside := net.Pipe() // whose writes end when they were read
	require.True(t, f.front.keep(inside))
	d.readers.Go(func() { f.front.serve(inside) })
	request := simple(goodReading)
	for _, part := range []string{request[:1], request[1:30], request[30 : len(request)-1], request[len(request)-1:]} {
		_, err := io.WriteString(client, part)
		require.NoError(t, err)
	}
	response, _ := readAnswer(t, bufio.NewReader(client))
	assert.Equal(t, 200, response.StatusCode)
	assert.EqualValues(t, 1, f.handled.Load())
	assert.Len(t, j.readings(), 1)
	require.NoError(t, client.Close())
}

func TestACutOffRequestIsNotTaken(t *testing.T) {
	t.Parallel()
	d, j := frontDoor(t)
	f := serveFront(t, d)
	conn := f.dial(t)
	_, err := io.WriteString(conn, strings.TrimSuffix(simple(goodReading), "}"))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	response, body := readAnswer(t, bufio.NewReader(conn))
	assert.Equal(t, 400, response.StatusCode)
	assert.Contains(t, body, codeCutOff)
	assert.Empty(t, j.readings())
}

func TestAnIdleConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Server){
		"before its first request": func(s *http.Server) { s.ReadHeaderTimeout = 10 * time.Millisecond },
		"behind a request":         func(s *http.Server) { s.IdleTimeout = 10 * time.Millisecond },
		"as a request that is read": func(s *http.Server) {
			s.ReadHeaderTimeout, s.IdleTimeout, s.ReadTimeout = 0, 0, 10*time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := frontDoor(t)
			f := serveFront(t, d, change)
			conn := f.dial(t)
			if name == "behind a request" {
				_, err := io.WriteString(conn, simple(goodReading))
				require.NoError(t, err)
			}
			_, err := io.ReadAll(conn)
			assert.NoError(t, err)
		})
	}
}

// deadlineConn tells which deadlines it was given.
type deadlineConn struct {
	net.Conn

	deadlines []time.Time
}

func (c *deadlineConn) SetReadDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

func TestWithoutALimitAConnectionMayWait(t *testing.T) {
	t.Parallel()
	d, _ := frontDoor(t)
	f := serveFront(t, d, func(s *http.Server) { s.IdleTimeout = 0 })
	conn := new(deadlineConn)
	c := &frontConn{Conn: conn, front: f.front}
	for range 3 {
		require.True(t, c.wait(f.front.idle))
	}
	assert.Empty(t, conn.deadlines)
	require.True(t, c.wait(f.front.first))
	for range 3 {
		require.True(t, c.wait(f.front.idle))
	}
	require.Len(t, conn.deadlines, 2)
	assert.False(t, conn.deadlines[0].IsZero())
	assert.True(t, conn.deadlines[1].IsZero(), "that of the first request is gone")
}

func TestAClosedFrontGivesTheAnswersThatItOwes(t *testing.T) {
	t.Parallel()
	d, j := frontDoor(t)
	release := j.waits()
	f := serveFront(t, d)
	idle, busy := f.dial(t), f.dial(t)
	_, err := io.WriteString(busy, simple(goodReading))
	require.NoError(t, err)
	<-j.entered
	require.NoError(t, f.server.Shutdown(t.Context()))
	_, err = io.ReadAll(idle)
	require.NoError(t, err, "it was ended")
	close(release)
	response, _ := readAnswer(t, bufio.NewReader(busy))
	assert.Equal(t, 200, response.StatusCode)
	assert.True(t, response.Close)
	d.Wait()
	require.ErrorIs(t, f.front.Close(), net.ErrClosed)
	_, err = f.front.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTheServersContextEndsARequest(t *testing.T) {
	t.Parallel()
	d, j := frontDoor(t)
	j.waits() // for ever
	ctx, cancel := context.WithCancel(t.Context())
	f := serveFront(t, d, func(s *http.Server) { s.BaseContext = func(net.Listener) context.Context { return ctx } })
	conn := f.dial(t)
	_, err := io.WriteString(conn, simple(goodReading))
	require.NoError(t, err)
	<-j.entered
	cancel()
	response, body := readAnswer(t, bufio.NewReader(conn))
	assert.Equal(t, 504, response.StatusCode)
	assert.Contains(t, body, codeOutcomeUnknown)
}

// panickingJournal has a defect.
type panickingJournal struct{ Journal }

func (panickingJournal) Append(context.Context, *batch.Batch, batch.Request) (batch.Receipt, error) {
	panic("defect")
}

func TestADefectEndsItsConnectionAlone(t *testing.T) {
	t.Parallel()
	config := testConfig()
	config.Ack = telemetry.Journaled
	d, err := New(config, panickingJournal{})
	require.NoError(t, err)
	f := serveFront(t, d)
	conn := f.dial(t)
	_, err = io.WriteString(conn, simple(goodReading))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Empty(t, answer)
	response, _ := exchangeAll(t, f, "GET /ping HTTP/1.1\r\nHost: b\r\n\r\n")
	assert.Equal(t, 204, response.StatusCode)
}

// failingListener has no connections.
type failingListener struct {
	net.Listener

	errs chan error
}

func (l failingListener) Accept() (net.Conn, error) { return nil, <-l.errs }

func TestTheServerLearnsOfErrorsOfItsListener(t *testing.T) {
	t.Parallel()
	d, _ := frontDoor(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	errs := make(chan error, 2)
	f := d.Front(failingListener{listener, errs}, new(http.Server))
	errs <- errors.New("too many open files")
	_, err = f.Accept()
	require.ErrorContains(t, err, "too many open files")
	errs <- net.ErrClosed
	_, err = f.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, f.Close())
	d.Wait()
}

package send

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestARefusedRequestIsCountedOnceAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{err: telemetry.Errorf(telemetry.Unavailable, "journal_full", "the journal is full")})
		s := newSender(t, target(d), way)
		a, err := s.Send(t.Context(), weather(2))
		require.ErrorContains(t, err, "journal_full: the journal is full")
		assert.Contains(t, []string{"503", "Unavailable"}, a.Failure)
		assert.Equal(t, 1, d.journal.calls, "it was tried again")

		d.journal.err = nil
		a, err = s.Send(t.Context(), weather(2))
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 2}, a)
	})
}

func TestUnknownStream(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{})
		a, err := newSender(t, target(d), way, func(c *Config) { c.Stream = "nowhere" }).Send(t.Context(), weather(1))
		require.ErrorContains(t, err, "there is no stream")
		assert.Contains(t, []string{"404", "NotFound"}, a.Failure)
	})
}

func TestAnAnswerThatDoesNotComeIsATimeout(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{block: make(chan struct{})})
		s := newSender(t, target(d), way, func(c *Config) { c.Timeout = 300 * time.Millisecond })
		a, err := s.Send(t.Context(), weather(1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Contains(t, err.Error(), "after 300ms")
		assert.NotContains(t, err.Error(), "cancel")
		assert.Equal(t, load.Answer{Failure: FailureTimeout}, a)

		close(d.journal.block)
		a, err = s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 1}, a)
	})
}

// TestEveryRequestHasItsTimeout leaves a second request unanswered on the first one's
// connection.
func TestEveryRequestHasItsTimeout(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{})
		s := newSender(t, target(d), way, func(c *Config) { c.Timeout = 500 * time.Millisecond })
		_, err := s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		d.journal.block = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(10*time.Second, cancel).Stop()
		a, err := s.Send(ctx, weather(1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, load.Answer{Failure: FailureTimeout}, a)
		close(d.journal.block)
	})
}

// TestConnectionsThatTheDaemonClosesAreNotUsedAgain announces it in each answer.
func TestConnectionsThatTheDaemonClosesAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, `{"accepted":1,"rejected":0}`)
	})
	s := newSender(t, server.URL)
	for range 5 {
		a, err := s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 1}, a)
	}
}

// TestConnectionsThatWereIdleAreNotUsedAgain: the daemon may be closing them.
func TestConnectionsThatWereIdleAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	s, ok := newSender(t, startDaemon(t, &journal{}).http).(*httpSender)
	require.True(t, ok)
	keeps := func(age time.Duration) bool {
		before := s.conn
		s.used = time.Now().Add(-age)
		_, err := s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		return before == s.conn
	}
	assert.False(t, keeps(2*maxUnused), "it was not used yet")
	assert.True(t, keeps(maxIdle/2))
	assert.False(t, keeps(2*maxIdle))
}

func TestConnectingEndsWithTheRun(t *testing.T) {
	t.Parallel()
	pool, err := New(Config{Target: webServer(t, nil).URL})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pool.Sender(ctx)
	require.ErrorContains(t, err, "canceled")
	require.NoError(t, pool.Close())
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{block: make(chan struct{})})
		s := newSender(t, target(d), way)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan load.Answer)
		go func() {
			a, _ := s.Send(ctx, weather(1))
			done <- a
		}()
		cancel()
		assert.Equal(t, load.Answer{Failure: failureCanceled}, <-done)
		a, err := s.Send(ctx, weather(1))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, failureCanceled, a.Failure)

		// A request with a new context is unaffected.
		close(d.journal.block)
		a, err = s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 1}, a)
	})
}

func TestADaemonThatIsGoneFailsEveryRequestUntilItIsBack(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "grpc"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, &journal{})
			target := map[string]string{"http": d.http, "grpc": d.grpc}[scheme]
			through := newDoorway(t, target[len("http://"):])
			s := newSender(t, scheme+"://"+through.address, func(c *Config) { c.Timeout = 5 * time.Second })
			_, err := s.Send(t.Context(), weather(1))
			require.NoError(t, err)

			through.shut(true)
			for range 3 {
				a, err := s.Send(t.Context(), weather(1))
				require.Error(t, err)
				assert.Contains(t, []string{failureConnection, "Unavailable"}, a.Failure)
			}
			assert.Equal(t, 1, d.journal.calls)

			through.shut(false)
			require.Eventually(t, func() bool { // gRPC waits briefly before reconnecting
				a, _ := s.Send(t.Context(), weather(1))
				return a.Accepted == 1
			}, 10*time.Second, 20*time.Millisecond)
		})
	}
}

// A request that was read but not answered may have been accepted. It is the one that a helpful
// client would repeat.
func TestARequestIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 {
			_, _ = io.WriteString(w, `{"accepted":1,"rejected":0}`)
			return
		}
		panic(http.ErrAbortHandler)
	})
	s := newSender(t, server.URL)
	a, err := s.Send(t.Context(), weather(1))
	require.NoError(t, err)
	assert.Equal(t, 1, a.Accepted)
	for n := range int32(3) {
		a, err = s.Send(t.Context(), weather(1))
		require.Error(t, err)
		assert.Equal(t, load.Answer{Failure: failureConnection}, a)
		assert.Equal(t, 2+n, requests.Load())
	}
}

func TestAnswersThatADaemonWouldNotGive(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status  int
		body    string
		failure string
		message string
	}{
		"not JSON":          {200, "<html>", failureAnswer, "read the answer"},
		"no counts":         {200, "{}", failureAnswer, "does not say how many"},
		"too many":          {200, `{"accepted":3,"rejected":0}`, failureAnswer, "3 readings accepted and 0 rejected, but 2 were sent"},
		"negative":          {200, `{"accepted":-1,"rejected":3}`, failureAnswer, "-1 readings accepted"},
		"huge":              {200, `{"accepted":99999999999999999999,"rejected":3}`, failureAnswer, "read the answer"},
		"moved":             {301, "", "301", "Moved Permanently"},
		"another's refusal": {502, "bad gateway", "502", `"bad gateway"`},
		"too many requests": {429, `{"code":"quota","message":"slower"}`, "429", "quota: slower"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := httpAnswer(row.status, []byte(row.body), 2)
			require.ErrorContains(t, err, row.message)
			assert.Equal(t, load.Answer{Failure: row.failure}, a)
		})
	}
	a, err := httpAnswer(207, []byte("{ \"rejected\": 1,\n \"accepted\": 1 }"), 2)
	require.NoError(t, err)
	assert.Equal(t, load.Answer{Accepted: 1, Rejected: 1}, a)
}

// A doorway forwards connections until it is shut, which also breaks them.
type doorway struct {
	address string
	closed  atomic.Bool
	conns   chan net.Conn // both ends of all forwarded connections
}

func newDoorway(t *testing.T, to string) *doorway {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &doorway{address: listener.Addr().String(), conns: make(chan net.Conn, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			var dialer net.Dialer
			other, err := dialer.DialContext(t.Context(), "tcp", to)
			if d.closed.Load() || err != nil {
				_ = from.Close()
				if err == nil {
					_ = other.Close()
				}
				continue
			}
			d.conns <- from
			d.conns <- other
			go func() { _, _ = io.Copy(other, from); _ = other.Close() }()
			go func() { _, _ = io.Copy(from, other); _ = from.Close() }()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
		d.breakAll()
	})
	return d
}

func (d *doorway) shut(closed bool) {
	d.closed.Store(closed)
	if closed {
		d.breakAll()
	}
}

func (d *doorway) breakAll() {
	for {
		select {
		case c := <-d.conns:
			_ = c.Close()
		default:
			return
		}
	}
}

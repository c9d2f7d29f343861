package faulttest_test

import (
	"bytes"
	"errors"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A balancer stands before several daemons. What a client may ask of it is the
// first part of the path, as another would say it in a header:
//
//	/any/…        the next daemon in turn
//	/hash/KEY/…   the daemon that the key's hash chooses of those that answer
//	/keep/N/…     the daemon in place N, or none: for clients that repeat requests
//
// A request goes to another daemon only if it was not sent to the first: nobody
// knows else whether it was taken.
type balancer struct {
	URL string

	t      testing.TB
	client *http.Client

	mu     sync.Mutex
	places []*daemon // nil: lost
	turn   int
}

// balancer starts n daemons that store at uri, "" for the scene's MongoDB itself,
// and a balancer before them.
func (s *scene) balancer(n int, uri string, flags ...string) *balancer {
	s.t.Helper()
	b := &balancer{t: s.t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: patience}}
	for range n {
		b.places = append(b.places, s.daemon(uri, flags...))
	}
	server := httptest.NewServer(b)
	b.URL = server.URL
	s.t.Cleanup(func() {
		for _, p := range s.producers {
			p.Stop()
		}
		server.Close()
		b.client.CloseIdleConnections()
	})
	return b
}

// lose kills the daemon in a place as a crash does, and returns it.
func (b *balancer) lose(place int) *daemon {
	b.t.Helper()
	b.mu.Lock()
	lost := b.places[place]
	b.places[place] = nil
	b.mu.Unlock()
	require.NotNil(b.t, lost)
	lost.kill()
	return lost
}

// fill puts a daemon into a place.
func (b *balancer) fill(place int, d *daemon) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.places[place] = d
}

// at returns the daemon in a place.
func (b *balancer) at(place int) *daemon {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.places[place]
}

// ServeHTTP implements http.Handler.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	choices, path := b.choose(r.URL.Path)
	for _, d := range choices {
		resp, err := b.forward(r, d, path, body)
		if dialing := (*net.OpError)(nil); errors.As(err, &dialing) && dialing.Op == "dial" {
			continue // nothing was sent
		} else if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // a client that is gone learns nothing
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

func (b *balancer) forward(r *http.Request, d *daemon, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, d.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Content-Type", "Brim-Ack", "Idempotency-Key"} {
		if value := r.Header.Get(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	// An answer that does not come whole is none.
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	return resp, err
}

// choose returns the daemons to try, in order, and the path that they know.
func (b *balancer) choose(path string) (choices []*daemon, rest string) {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	b.mu.Lock()
	defer b.mu.Unlock()
	first := 0
	switch parts[0] {
	case "any":
		_, rest, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
		b.turn++
		first = b.turn
	case "hash":
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(parts[1]))
		first, rest = int(hash.Sum32()), parts[2]
	case "keep":
		place, err := strconv.Atoi(parts[1])
		if err != nil || b.places[place] == nil {
			return nil, ""
		}
		return []*daemon{b.places[place]}, "/" + parts[2]
	}
	for i := range b.places {
		if d := b.places[(first+i)%len(b.places)]; d != nil {
			choices = append(choices, d)
		}
	}
	return choices, "/" + rest
}

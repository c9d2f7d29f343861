package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// The places behind the balancer: daemons in the first two are replaced by ones
// with empty journals, those in the others by ones with their journals, which
// clients with Idempotency-Keys need.
const (
	places = 4
	keyed  = 2 // the first place for clients with keys
)

// TestSCALE1 runs four daemons behind a balancer, on one replica set of three. A daemon
// is killed for good, and so is the primary, in either order; a command replays that
// daemon's journal while the other three write the same buckets. A copy of another,
// running daemon's journal is replayed by mistake; then that daemon is killed, its
// journal moved, and a new daemon continues with it.
func TestSCALE1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := s.replicaSet(time.Second)
	s.check.MaxReadings = 20
	b := s.balancer(places, "", smallParts...)
	s.addProducers(b)
	adopted, faults := uint64(0), 0
	for round := range form(1, 8) {
		wait(form(time.Second, 3*time.Second))
		dead := round % keyed
		primary := set.Primary()
		primaryFirst := round%2 == 0
		if primaryFirst {
			primary.Kill()
			wait(form(300*time.Millisecond, rand.N(time.Second)))
		}
		lost := b.lose(dead)
		if !primaryFirst {
			wait(rand.N(time.Second))
			primary.Kill()
		}
		faults += 2
		if full() { // the adoption is also killed
			faults += s.killAdoption(lost, rand.N(2*time.Second))
		}
		adopting := s.adopt(lost)
		wait(form(300*time.Millisecond, time.Second))
		primary.Restart(s.t)
		set.AwaitHealthy()
		adopted += adopting.done().Stored
		assert.Zero(t, s.adopt(lost).done().Stored, "all of it was stored by the first")
		if full() {
			b.fill(dead, s.daemon("", smallParts...))
		}
		next := keyed + round%(places-keyed)
		s.adoptCopy(b.at(next), set.Primary().Host)
		b.fill(next, s.successor(b.lose(next)))
		faults += 2
	}
	assert.Positive(t, adopted, "the lost daemons had stored everything")
	wait(form(500*time.Millisecond, 2*time.Second))
	s.finish("SCALE-1", faults)
	s.sharedBuckets()
}

// addProducers starts the producers for four daemons: some use one daemon each,
// some use any daemon for the same sensors, some wait for MongoDB, and some repeat
// their requests with the same keys.
func (s *scene) addProducers(b *balancer) {
	at := func(route string, n int, cfg faulttest.ProducerConfig) {
		s.produce(&daemon{HTTP: b.URL + route}, n, cfg)
	}
	at("/any", 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20, Rate: form(200.0, 4000)})
	at("/any", 2, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Rate: form(50.0, 400), Ack: "stored"})
	for _, sensor := range []string{"s-100", "s-101", "s-102", "s-103", "s-104", "s-105"} {
		at("/hash/"+sensor, 1, faulttest.ProducerConfig{Batch: 2, FirstSensor: 100 + int64(len(s.producers)), Rate: form(40.0, 100)})
	}
	at("/keep/2", 2, faulttest.ProducerConfig{Batch: 5, Sensors: 20, Rate: form(100.0, 200), Keys: true, Repeat: 0.3})
	at("/keep/3", 2, faulttest.ProducerConfig{Batch: 5, Sensors: 20, Rate: form(100.0, 200), Keys: true, Repeat: 0.3})
}

// sharedBuckets checks that daemons wrote the same buckets, with several sessions
// in the guard.
func (s *scene) sharedBuckets() {
	s.t.Helper()
	shared, err := s.db.Collection("readings").CountDocuments(context.Background(), bson.D{{Key: "$expr", Value: bson.D{
		{Key: "$gt", Value: bson.A{bson.D{{Key: "$size", Value: bson.D{{Key: "$objectToArray", Value: "$w"}}}}, 1}},
	}}})
	require.NoError(s.t, err)
	assert.Positive(s.t, shared, "documents that several daemons wrote")
}

// TestSCALE1Adoption loses one of two daemons while answers of MongoDB are lost, so that
// its journal has both stored and unstored readings. A command replays that journal, but
// refuses to while the daemon runs.
func TestSCALE1Adoption(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	b := s.balancer(2, uri, smallParts...)
	s.produce(&daemon{HTTP: b.URL + "/any"}, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(500.0, 2000)})
	wait(300 * time.Millisecond)
	beside := s.adoption(b.at(0), uri)
	assert.Error(t, beside.cmd.Run(), "a journal is replayed beside its daemon")
	assert.Contains(t, beside.log.String(), "another process has it open")
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.5, faulttest.CutAnswer)})
	wait(500 * time.Millisecond)
	lost := b.lose(0)
	proxy.Set(faulttest.Faults{})
	s.adoptFrom(lost, uri).done()
	s.finish("SCALE-1", 1)
}

// An adoptionRun is `brim journal replay` with a lost daemon's journal.
type adoptionRun struct {
	s        *scene
	cmd      *exec.Cmd
	out, log bytes.Buffer
}

// adopted is the parsed output of a run.
type adopted struct {
	Stored, Found uint64
	Left          int
}

// adopt starts storing a lost daemon's readings in the scene's MongoDB.
func (s *scene) adopt(lost *daemon) *adoptionRun { return s.adoptFrom(lost, s.uri) }

// adoptFrom is adopt with the lost daemon's URI.
func (s *scene) adoptFrom(lost *daemon, uri string, flags ...string) *adoptionRun {
	s.t.Helper()
	a := s.adoption(lost, uri, flags...)
	require.NoError(s.t, a.cmd.Start())
	s.t.Cleanup(func() {
		if a.cmd.ProcessState == nil { // the test gave up before done
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
	})
	return a
}

func (s *scene) adoption(lost *daemon, uri string, flags ...string) *adoptionRun {
	a := &adoptionRun{s: s}
	args := append([]string{
		"journal", "replay", "--data-dir", lost.Dir, "--mongo-uri", uri, "--database", s.db.Name(), "--granularity", "1m", "--output", "json",
	}, smallParts...)
	a.cmd = exec.Command(binary.Path(s.t), append(args, flags...)...)
	a.cmd.Env = brimtest.Env()
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = lost.Dir, &a.out, &a.log
	a.cmd.SysProcAttr = endsWithTest()
	return a
}

// done waits for the run to end, and checks that nothing is left.
func (a *adoptionRun) done() (what adopted) {
	a.s.t.Helper()
	require.NoError(a.s.t, a.cmd.Wait(), a.log.String())
	require.NoError(a.s.t, json.Unmarshal(a.out.Bytes(), &what), a.out.String())
	assert.NotContains(a.s.t, a.log.String(), "WARNING: DATA RACE")
	assert.Zero(a.s.t, what.Left)
	a.s.t.Logf("adopted: %d readings stored, %d of them found stored", what.Stored, what.Found)
	return what
}

// killAdoption starts storing a lost daemon's readings, and is killed. It returns 1 if
// there was something to kill, 0 if it had ended well.
func (s *scene) killAdoption(lost *daemon, after time.Duration) int {
	s.t.Helper()
	a := s.adoption(lost, s.uri)
	require.NoError(s.t, a.cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- a.cmd.Wait() }()
	select {
	case err := <-ended:
		require.NoError(s.t, err, a.out.String())
		return 0
	case <-time.After(after):
		_ = a.cmd.Process.Kill()
		<-ended
		return 1
	}
}

// adoptCopy stores the contents of a copy of a running daemon's journal, without the claim
// that would prevent it: only the guard prevents duplicates. It gets the primary's address.
func (s *scene) adoptCopy(alive *daemon, primary string) adopted {
	s.t.Helper()
	double := &daemon{Dir: s.t.TempDir()}
	// The record of what is durable must not be newer than the rest, or the copy
	// counts as damaged. No segment of these few readings has been removed.
	mark, err := os.ReadFile(filepath.Join(alive.journal(), "mark"))
	require.NoError(s.t, err)
	require.NoError(s.t, os.CopyFS(double.journal(), os.DirFS(alive.journal())))
	require.NoError(s.t, os.WriteFile(filepath.Join(double.journal(), "mark"), mark, 0o600))
	proxy, uri := s.proxyTo(primary)
	proxy.Set(withoutClaims(faulttest.Randomly(0)))
	return s.adoptFrom(double, uri, "--retarget").done()
}

// successor moves a lost daemon's journal to another folder, as if to another machine,
// and starts a daemon with it. In the short form it does not wait for the lost one's
// claims to expire.
func (s *scene) successor(lost *daemon) *daemon {
	s.t.Helper()
	d := newDaemon(s.t, append([]string{"--mongo-uri", s.uri, "--database", s.db.Name()}, smallParts...)...)
	require.NoError(s.t, os.CopyFS(d.journal(), os.DirFS(lost.journal())))
	require.NoError(s.t, os.RemoveAll(lost.journal()))
	if !full() {
		_, err := s.db.Collection(claim.Collection).DeleteMany(context.Background(), bson.D{{Key: "dir", Value: lost.journal()}})
		require.NoError(s.t, err)
	}
	s.daemons = append(s.daemons, d)
	return d.start().ready()
}

// A balancer forwards to several daemons. Clients select a daemon by the first part
// of the path, where real ones would use a header:
//
//	/any/…        the next daemon in turn
//	/hash/KEY/…   the daemon that the key's hash chooses among those that answer
//	/keep/N/…     the daemon in place N, or none: for clients that repeat requests
//
// A request goes to another daemon only if it was not sent to the first: otherwise
// it might have been accepted.
type balancer struct {
	URL string

	t      testing.TB
	client *http.Client

	mu     sync.Mutex
	places []*daemon // nil: lost
	turn   int
}

// balancer starts n daemons that store at uri, "" for the scene's MongoDB itself,
// and a balancer in front of them.
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

// lose kills the daemon in a place like a crash, and returns it.
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
		_, _ = io.Copy(w, resp.Body) // a disconnected client does not matter
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
	// An incomplete answer does not count.
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

package faulttest_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// full reports whether the tests run in their full form, `make test-fault`;
// otherwise they are as short as possible while still proving something.
func full() bool { return os.Getenv("BRIM_FAULT_FULL") == "1" }

// form returns the value for the current form. Sabotaged runs are always short:
// one thing that goes wrong is enough.
func form[T any](s *scene, short, long T) T {
	if full() && !s.sabotaged {
		return long
	}
	return short
}

// rounds is form for how often a fault is injected.
func rounds(s *scene, short, long int) int {
	if s.sabotaged {
		return min(short, 2)
	}
	return form(s, short, long)
}

// A faultTest is one of the named tests: what happens, and the protections
// without which something must go wrong.
type faultTest struct {
	name      string
	run       func(s *scene) outcome
	sabotages []sabotage
	alone     bool // no other test may run at the same time
	timed     bool // it measures times, and may be tried three times: the host may stall during one

	// Shared by all runs, which run one after another.
	ownServer       bool          // a mongod that no other test uses
	electionTimeout time.Duration // a replica set of three with this timeout; 0: none
	server          *mongod.Server
	set             *mongodtest.ReplicaSet
}

// A sabotage switches protections off. Whether something then goes wrong is a matter
// of chance, so there may be several runs until it does.
type sabotage struct {
	off  []fault.Protection
	name string                 // of what a run of its own leaves out; empty: the names of off
	runs int                    // at most; 0: 10
	run  func(s *scene) outcome // nil: that of the test
}

// without is a sabotage of one protection.
func without(p fault.Protection) sabotage { return sabotage{off: []fault.Protection{p}} }

// outcome is how a run ended.
type outcome struct {
	faults int // injected
	result faulttest.Result
	stuck  error    // accepted readings could not be stored in time
	broken []string // other promises
}

// wrong describes what a run found, or "" if nothing.
func (o *outcome) wrong() string {
	var found []string
	for _, one := range []struct {
		what string
		n    int
	}{
		{"lost", len(o.result.Lost)}, {"twice", len(o.result.Twice)},
		{"invented", len(o.result.Invented)}, {"bad documents", len(o.result.BadDocuments)},
	} {
		if one.n > 0 {
			found = append(found, fmt.Sprintf("%s %d", one.what, one.n))
		}
	}
	return strings.Join(append(found, o.broken...), ", ")
}

// test runs the fault test as designed, then each sabotage, and logs its row.
func (f faultTest) test(t *testing.T) {
	if !f.alone {
		t.Parallel()
	}
	began := time.Now()
	if f.ownServer {
		f.server = mongodtest.Start(t, mongod.Config{})
	}
	if f.electionTimeout > 0 {
		f.set = mongodtest.StartReplicaSet(t, f.electionTimeout)
	}
	row := faulttest.Row{Test: f.name}
	designed := t.Run("as designed", func(t *testing.T) {
		out := f.run(f.scene(t, false))
		for more := 2; f.timed && more > 0 && out.stuck == nil && len(out.broken) > 0; more-- {
			t.Logf("found %q; again", out.wrong())
			out = f.run(f.scene(t, false))
		}
		t.Logf("%d faults; %s", out.faults, out.result.Report())
		require.NoError(t, out.stuck)
		assert.Empty(t, out.wrong())
		assert.Positive(t, out.faults, "a fault test without faults")
		assert.Positive(t, out.result.Acked, "a fault test without readings")
		row.Faults, row.Acked, row.Lost, row.Twice = out.faults, out.result.Acked, len(out.result.Lost), len(out.result.Twice)
		row.Bad = len(out.result.Invented) + len(out.result.BadDocuments) + len(out.broken)
	})
	for _, s := range f.sabotages {
		if !designed {
			break // a sabotage proves nothing then
		}
		row.Sabotages = append(row.Sabotages, f.sabotaged(t, s))
	}
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

func (f faultTest) sabotaged(t *testing.T, s sabotage) faulttest.Sabotage {
	names := make([]string, len(s.off))
	for i, p := range s.off {
		names[i] = string(p)
	}
	out := faulttest.Sabotage{Off: cmp.Or(s.name, strings.Join(names, "+"))}
	if s.run == nil {
		s.run = f.run
	}
	if s.runs == 0 {
		s.runs = 10
	}
	t.Run("without "+out.Off, func(t *testing.T) {
		for out.Runs < s.runs && !out.Caught && !t.Failed() {
			out.Runs++
			t.Run(fmt.Sprint(out.Runs), func(t *testing.T) {
				o := s.run(f.scene(t, true, s.off...))
				out.Found = o.wrong()
				out.Caught = out.Found != ""
				t.Logf("%d faults; found %q, stuck %v; %s", o.faults, out.Found, o.stuck, o.result.Report())
			})
		}
		assert.True(t, out.Caught, "a fault test that passes sabotaged is a defect")
	})
	return out
}

// scene is where one run takes place.
type scene struct {
	t         testing.TB
	sabotaged bool
	off       []fault.Protection

	server *mongod.Server         // of the test's own, or nil
	set    *mongodtest.ReplicaSet // likewise

	uri string          // of the MongoDB that is checked
	db  *mongo.Database // of that one; the daemons' database
	log *faulttest.Log

	daemons   []*daemon
	producers []*faulttest.Producers
	check     faulttest.CheckConfig // without Log and Database
	stuck     error                 // why not everything could be flushed
}

// newScene prepares a run.
func newScene(t testing.TB) *scene {
	return &scene{t: t, log: faulttest.NewLog(nil), check: faulttest.CheckConfig{Stream: "readings"}}
}

// scene prepares a run with some protections switched off.
func (f faultTest) scene(t testing.TB, sabotaged bool, off ...fault.Protection) *scene {
	s := newScene(t)
	s.sabotaged, s.off, s.server, s.set = sabotaged, off, f.server, f.set
	return s
}

// mongo makes the MongoDB at uri that of the scene, with a database of its own.
func (s *scene) mongo(uri string) {
	s.t.Helper()
	s.uri = uri
	s.db = mongodtest.DatabaseAt(s.t, uri)
}

// shared is mongo with the server that all tests share.
func (s *scene) shared() { s.mongo(mongodtest.URI(s.t)) }

// own is like mongo, with the test's own server.
func (s *scene) own() { s.mongo(s.server.URI()) }

// replicaSet is like mongo, with the test's replica set. Its clients notice within a
// second or two what happens to a member, and the driver does not retry writes.
func (s *scene) replicaSet() *mongodtest.ReplicaSet {
	s.t.Helper()
	s.set.AwaitHealthy()
	s.mongo(s.set.URI("heartbeatFrequencyMS=500", "connectTimeoutMS=1000", "retryWrites=false"))
	return s.set
}

// host is the scene's MongoDB, host:port of its first member.
func (s *scene) host() string { return options.Client().ApplyURI(s.uri).Hosts[0] }

// proxy puts a proxy in front of the scene's MongoDB, which is a single one,
// and returns it with the URI for the daemons.
func (s *scene) proxy() (p *faulttest.Proxy, uri string) {
	s.t.Helper()
	p, err := faulttest.NewProxy(s.host())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, p.Close()) })
	// Retried by the driver, a write would hide behind the server's memory of
	// its session, and the guard would not be put to the test.
	return p, "mongodb://" + p.Addr() + "/?directConnection=true&retryWrites=false"
}

// daemon starts a daemon that stores at uri, "" for the scene's MongoDB itself,
// and waits until it accepts readings.
func (s *scene) daemon(uri string, flags ...string) *daemon {
	s.t.Helper()
	if uri == "" {
		uri = s.uri
	}
	var off []string
	for _, p := range s.off {
		off = append(off, "off="+string(p))
	}
	d := newDaemon(s.t, strings.Join(off, ","), append([]string{"--mongo-uri", uri, "--database", s.db.Name()}, flags...)...)
	s.daemons = append(s.daemons, d)
	return d.start().ready()
}

// policy returns the flags of a random policy, or of the eager one in a sabotaged run,
// where more can go wrong.
func (s *scene) policy() []string {
	if s.sabotaged {
		return eager
	}
	return policies[rand.IntN(len(policies))]
}

// produce starts n producers for a daemon, with marks of their own. Unless cfg
// says otherwise they cross a window every few hundred readings, and in the short
// form their rate is limited: faults hit updates, and more readings only cost time.
func (s *scene) produce(d *daemon, n int, cfg faulttest.ProducerConfig) *faulttest.Producers {
	cfg.Log, cfg.URL = s.log, d.HTTP
	if cfg.Number == 0 {
		cfg.Number = int64(100 * (len(s.producers) + 1))
	}
	if cfg.Step == 0 {
		cfg.Step = 200 * time.Millisecond
	}
	if cfg.Sensors == 0 {
		cfg.Sensors = 10
	}
	if cfg.Rate == 0 && cfg.Most == 0 {
		cfg.Rate = form(s, 400.0, 0)
		if cfg.Ack == "stored" {
			cfg.Rate = form(s, 100.0, 0)
		}
	}
	p := faulttest.Produce(n, cfg)
	s.producers = append(s.producers, p)
	s.t.Cleanup(p.Stop)
	return p
}

// flush waits until everything that the daemon has accepted is stored, if it runs. A
// sabotaged daemon may never achieve that; it is enough that something is wrong.
func (s *scene) flush(d *daemon) {
	if d.ended() || s.stuck != nil {
		return
	}
	if !s.sabotaged {
		s.stuck = d.flush(form(s, time.Minute, 5*time.Minute))
		return
	}
	for range 5 {
		if s.stuck = d.flush(2 * time.Second); s.stuck == nil || s.wrong() {
			return
		}
	}
}

// wrong reports whether a sabotaged run has stored something wrong already, so that
// it may end. Losses are found only at the end.
func (s *scene) wrong() bool { return s.sabotaged && s.checked(true).Wrong() > 0 }

// checked compares the stored documents with the log.
func (s *scene) checked(running bool) *faulttest.Result {
	s.t.Helper()
	cfg := s.check
	cfg.Log, cfg.Database, cfg.Running = s.log, s.db, running
	result, err := faulttest.Check(context.Background(), cfg)
	require.NoError(s.t, err)
	return result
}

// finish ends the producers, flushes the daemons that run, and checks. The
// faults must be healed.
func (s *scene) finish(faults int) outcome {
	s.t.Helper()
	for _, p := range s.producers {
		p.Stop()
	}
	for _, d := range s.daemons {
		s.flush(d)
	}
	out := outcome{faults: faults, stuck: s.stuck}
	wronged := int64(0)
	for _, p := range s.producers {
		s.t.Log("producers:", p.Counts.String())
		wronged += p.Counts.Wronged.Load()
	}
	if wronged > 0 {
		out.broken = append(out.broken, fmt.Sprintf("%d good readings refused", wronged))
	}
	// Once the daemons are gone, nothing can be stored behind the check's back.
	for _, d := range s.daemons {
		d.kill()
	}
	require.NoError(s.t, s.log.Err())
	out.result = *s.checked(false)
	if out.stuck != nil {
		out.result.Lost = nil // they may merely be waiting
	}
	return out
}

// run lets producers run under a fault, until something is wrong in a sabotaged run.
func (s *scene) run(short, long time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(form(s, short, long)); time.Now().Before(end) && !s.wrong(); {
		wait(500 * time.Millisecond)
	}
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }

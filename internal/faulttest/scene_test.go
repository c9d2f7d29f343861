package faulttest_test

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// full reports whether the tests run in full form, `make test-fault`; otherwise
// they are as short as possible while still proving something.
func full() bool { return os.Getenv("BRIM_FAULT_FULL") == "1" }

// form returns the value for the current form.
func form[T any](short, long T) T {
	if full() {
		return long
	}
	return short
}

// alone prevents other tests from running at the same time in the full form, for tests
// that measure times.
func alone(t *testing.T) {
	t.Helper()
	if !full() {
		t.Parallel()
	}
}

// timed runs a test that measures times. Since the host may stall, it has three
// attempts. run returns what took too long.
func timed(t *testing.T, run func(s *scene) (slow string)) {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		slow := run(newScene(t))
		if slow == "" || t.Failed() {
			return
		}
		if try == tries {
			t.Error(slow)
			return
		}
		t.Log(slow + "; again")
	}
}

// scene is the environment of a fault test.
type scene struct {
	t     testing.TB
	began time.Time

	uri string          // of the MongoDB to check
	db  *mongo.Database // in that MongoDB: the daemons' database
	log *faulttest.Log

	daemons    []*daemon
	producers  []*faulttest.Producers
	check      faulttest.CheckConfig // without Log and Database
	timeSeries bool                  // the stream is a time series
	stuck      error                 // why not everything could be flushed
}

func newScene(t testing.TB) *scene {
	return &scene{t: t, began: time.Now(), log: faulttest.NewLog(), check: faulttest.CheckConfig{Stream: "readings"}}
}

// mongo makes the MongoDB at uri the scene's, with a separate database.
func (s *scene) mongo(uri string) {
	s.t.Helper()
	s.uri = uri
	s.db = mongodtest.DatabaseAt(s.t, uri)
}

// shared is mongo with the server that all tests share.
func (s *scene) shared() { s.mongo(mongodtest.URI(s.t)) }

// replicaSet is like mongo, with a separate replica set of three. Its clients notice
// changes of members within a second or two, and the driver does not retry writes.
func (s *scene) replicaSet(electionTimeout time.Duration) *mongodtest.ReplicaSet {
	s.t.Helper()
	set := mongodtest.StartReplicaSet(s.t, electionTimeout)
	set.AwaitHealthy()
	s.mongo(set.URI("heartbeatFrequencyMS=500", "connectTimeoutMS=1000", "retryWrites=false"))
	return set
}

// proxy puts a proxy in front of the scene's single MongoDB, and returns it
// with the URI for the daemons.
func (s *scene) proxy() (p *faulttest.Proxy, uri string) {
	s.t.Helper()
	return s.proxyTo(options.Client().ApplyURI(s.uri).Hosts[0])
}

// proxyTo puts a proxy in front of one mongod, host:port.
func (s *scene) proxyTo(host string) (p *faulttest.Proxy, uri string) {
	s.t.Helper()
	p, err := faulttest.NewProxy(host)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, p.Close()) })
	// If the driver retried a write, the server's memory of its session would
	// recognize it, and the guard would not be tested.
	return p, "mongodb://" + p.Addr() + "/?directConnection=true&retryWrites=false"
}

// withoutClaims are faults of a proxy that drops claims on sessions and answers that they
// succeeded: nothing prevents two daemons from storing the same readings. others decides
// about all other commands.
func withoutClaims(others func(faulttest.Command) faulttest.Fate) faulttest.Faults {
	claims := func(c faulttest.Command) bool {
		name, _ := c.Body.Index(0).Value().StringValueOK()
		return name == claim.Collection
	}
	return faulttest.Faults{
		Decide: func(c faulttest.Command) faulttest.Fate {
			if claims(c) {
				return faulttest.Drop
			}
			return others(c)
		},
		Answer: func(c faulttest.Command) bson.D {
			if !claims(c) {
				return nil
			}
			return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}, {Key: "nModified", Value: 1}}
		},
	}
}

// daemon starts a daemon that stores at uri, "" for the scene's MongoDB itself,
// and waits until it accepts readings.
func (s *scene) daemon(uri string, flags ...string) *daemon {
	s.t.Helper()
	if uri == "" {
		uri = s.uri
	}
	d := newDaemon(s.t, append([]string{"--mongo-uri", uri + "&appName=" + s.db.Name(), "--database", s.db.Name()}, flags...)...)
	s.daemons = append(s.daemons, d)
	return d.start().ready()
}

// kill kills a daemon, and returns when MongoDB has executed what it sent last. A time series
// is not protected from a command that MongoDB reads from a socket only after the next
// process has looked up what is stored.
func (s *scene) kill(d *daemon) {
	s.t.Helper()
	d.kill()
	s.allRead(s.db.Name())
}

// allRead waits until MongoDB has executed everything that ended processes with an
// application name sent: then it closes their connections.
func (s *scene) allRead(app string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		ctx := context.Background()
		cursor, err := s.db.Client().Database("admin").Aggregate(ctx, bson.A{
			bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}}}},
			bson.D{{Key: "$match", Value: bson.D{{Key: "appName", Value: app}}}},
		})
		if !assert.NoError(s.t, err) {
			return false
		}
		some := cursor.Next(ctx)
		return assert.NoError(s.t, cursor.Err()) && assert.NoError(s.t, cursor.Close(ctx)) && !some
	}, patience, 10*time.Millisecond, "MongoDB keeps connections of a process that has ended")
}

// policy returns the flags of a random policy.
func (s *scene) policy() []string { return policies[rand.IntN(len(policies))] }

// produce starts n producers for a daemon, with their own marks. By default they
// cross a window every few hundred readings, and in the short form their rate is
// limited: faults hit updates, so more readings only cost time.
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
		cfg.Rate = form(200.0, 0)
		if cfg.Ack == "stored" {
			cfg.Rate = form(50.0, 0)
		}
	}
	p := faulttest.Produce(n, cfg)
	s.producers = append(s.producers, p)
	s.t.Cleanup(p.Stop)
	return p
}

// stopProducers ends all producers.
func (s *scene) stopProducers() {
	for _, p := range s.producers {
		p.Stop()
	}
}

// flush waits until everything that the daemon has accepted is stored, if it runs.
func (s *scene) flush(d *daemon) {
	if !d.ended() && s.stuck == nil {
		s.stuck = d.flush(form(time.Minute, 5*time.Minute))
	}
}

// checked compares the stored documents with the log.
func (s *scene) checked() *faulttest.Result {
	s.t.Helper()
	cfg := s.check
	cfg.Log, cfg.Database = s.log, s.db
	result, err := faulttest.Check(context.Background(), cfg)
	require.NoError(s.t, err)
	return result
}

// finish ends the producers, flushes the running daemons and stops them. It checks that
// everything acknowledged is stored once, that all documents are correct, and that no
// valid reading was refused, and logs the table row. faults is their number; they must be
// over.
func (s *scene) finish(row string, faults int) *faulttest.Result {
	s.t.Helper()
	s.stopProducers()
	for _, d := range s.daemons {
		s.flush(d)
	}
	wronged := int64(0)
	for _, p := range s.producers {
		s.t.Log("producers:", p.Counts.String())
		wronged += p.Counts.Wronged.Load()
	}
	// Once the daemons are gone, nothing can be stored after the check.
	for _, d := range s.daemons {
		d.kill()
	}
	result := s.checked()
	if s.stuck != nil {
		result.Lost = nil // they may merely be waiting
	}
	s.t.Logf("%d faults; %s", faults, result.Report())
	assert.NoError(s.t, s.stuck, "not everything accepted could be stored")
	assert.Zero(s.t, result.Wrong(), result.Report())
	assert.Zero(s.t, wronged, "good readings were refused")
	assert.Positive(s.t, faults, "a fault test without faults")
	assert.Positive(s.t, result.Acked, "a fault test without readings")
	(&faulttest.Row{
		Test: row, Faults: faults, Acked: result.Acked, Lost: len(result.Lost), Twice: len(result.Twice),
		Bad: len(result.Invented) + len(result.BadDocuments), Seconds: time.Since(s.began).Seconds(),
	}).Log(s.t)
	return result
}

// wait waits.
func wait(d time.Duration) { <-time.After(d) }

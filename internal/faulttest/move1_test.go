package faulttest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// moves are the storages that a test's daemons change to, starting from buckets with snappy.
var moves = form(
	[][]string{
		{"--storage", "timeseries"},
		{"--storage", "bucket", "--compressor", "zstd", "--granularity", "1h", "--bucket-format", "columns"},
	},
	[][]string{
		{"--storage", "bucket", "--compressor", "zstd"},
		{"--storage", "timeseries"},
		{"--storage", "timeseries", "--compressor", "zstd"},
		{"--storage", "bucket", "--compressor", "zstd", "--granularity", "1h", "--bucket-format", "columns"},
		{"--storage", "bucket", "--compressor", "snappy", "--granularity", "24h", "--bucket-format", "columns"},
	})

// TestMOVE1 repeatedly changes the storage of two daemons, and moves their stored readings into the
// new collection. Meanwhile, sensors are written to and read back: each answer of any daemon must
// contain every stored reading once. The mover is killed at random times, and so is a daemon whose
// updates get no answers: it comes back with a journal for the former collection. Both lose
// answers, and mongod is killed.
func TestMOVE1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	server := mongodtest.Start(t, mongod.Config{})
	s.mongo(server.URI())
	proxy, uri := s.proxy()
	m := s.moveScene(uri)
	cut := faulttest.Faults{Decide: faulttest.Randomly(form(0.05, 0.02), faulttest.CutAnswer)}
	for i, change := range moves {
		m.change(i, proxy, change)
		proxy.Set(cut)
		for range form(2, 6) {
			m.killMover(rand.N(form(1500*time.Millisecond, 4*time.Second)))
			m.killDaemon(m.a, change)
		}
		if i%2 == 0 {
			require.NoError(t, server.Kill()) // it is restarted
			m.faults++
		}
		m.end(change)
		proxy.Set(faulttest.Faults{})
	}
	m.finish("MOVE-1", proxy.Counts().Faults())
}

// TestMOVE2 does the same with three members; the primary steps down while the mover runs.
func TestMOVE2(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := s.replicaSet(time.Second)
	uri := set.URI("heartbeatFrequencyMS=500", "connectTimeoutMS=1000")
	m := s.moveScene(uri)
	for i, change := range moves {
		m.change(i, nil, change)
		for range form(2, 5) {
			p := m.mover()
			wait(rand.N(2 * time.Second))
			require.NoError(t, set.StepDown())
			m.stopMover(p, rand.N(time.Second))
			m.faults += 2
		}
		set.AwaitHealthy()
		m.end(change)
	}
	m.finish("MOVE-2", 0)
}

// moveScene is a scene with two daemons whose storage changes.
type moveScene struct {
	*scene

	uri     string // for daemon a and the mover
	a, b    *daemon
	watched []*rolledSensor
	stop    func() // ends the watched sensors
	faults  int
}

func (s *scene) moveScene(uri string) *moveScene {
	s.t.Helper()
	m := &moveScene{scene: s, uri: uri}
	flags := []string{"--bucket-max-readings", "20", "--granularity", "5m", "--flush-max", "2s"}
	s.check.MaxReadings = 20
	m.a = s.daemon(uri, flags...)
	m.b = s.daemon("", append(flags, "--mongo-uri", s.uri)...) // another name: see kill
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 2 {
		w := &rolledSensor{
			t: s.t, bases: []string{m.b.HTTP, m.a.HTTP}, name: fmt.Sprintf("sensor/%d", i), start: time.Now().Add(-10 * time.Minute).UnixMilli(),
			marks: s.log, producer: int64(10 + i),
		}
		m.watched = append(m.watched, w)
		all.Go(func() { w.run(ctx, w.write) })
		all.Go(func() { w.run(ctx, w.look) })
	}
	m.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	s.t.Cleanup(m.stop)
	return m
}

// change restarts both daemons with another storage, the first one after a kill while its updates
// got no answers.
func (m *moveScene) change(i int, proxy *faulttest.Proxy, change []string) {
	m.t.Helper()
	m.produce(m.a, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(100.0, 200)})
	wait(form(500*time.Millisecond, 3*time.Second))
	if proxy != nil {
		proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
		wait(300 * time.Millisecond)
	}
	m.killDaemon(m.a, nil)
	if proxy != nil {
		proxy.Set(faulttest.Faults{})
	}
	m.b.stop()
	m.b.start(change...).ready()
	if i%2 == 0 { // the mover must discover that a daemon is gone and left readings in its journal
		m.killMover(500 * time.Millisecond)
	}
	m.a.start(change...).ready()
}

// killDaemon kills a daemon, and restarts it unless change is nil.
func (m *moveScene) killDaemon(d *daemon, change []string) {
	m.t.Helper()
	m.kill(d)
	m.faults++
	if change != nil {
		d.start(change...).ready()
	}
}

// killMover runs the mover, and kills it after a while.
func (m *moveScene) killMover(after time.Duration) {
	m.t.Helper()
	m.stopMover(m.mover(), after)
	m.faults++
}

// moverMode is the environment variable that makes a test binary move a stream's readings into a
// database, at the URI in moverURI. It works like `brim move`, but waits less for queries.
const (
	moverMode = "BRIM_FAULT_MOVER"
	moverURI  = "BRIM_FAULT_MOVER_URI"
	moverName = "mover of "
)

func moveMain() error {
	database := os.Getenv(moverMode)
	connection, err := store.Connect(store.ConnectionConfig{URI: os.Getenv(moverURI), Database: database, App: moverName + database, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer connection.Close(context.Background())
	_, err = generation.NewMover(generation.MoveConfig{
		Config: store.Config{
			Database: connection.Database(), Stream: "readings", Granularity: 5 * time.Minute, MaxReadings: 20, MaxBytes: 256 << 10,
			Format: store.Columns, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		},
		Claims: connection.ControlDatabase(), Place: "fault test", Pause: 2 * time.Second, Share: 0.3,
	}).Run(context.Background())
	return err
}

// aMover is a running mover.
type aMover struct {
	*brimtest.Process

	said bytes.Buffer
}

func (m *moveScene) mover() *aMover {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(brimtest.Env(), moverMode+"="+m.db.Name(), moverURI+"="+m.uri)
	out := new(aMover)
	cmd.Stdout, cmd.Stderr = &out.said, &out.said
	out.Process = brimtest.Launch(m.t, cmd, syscall.SIGKILL)
	return out
}

// stopMover kills a mover after a time, and returns when MongoDB has executed what it sent last.
func (m *moveScene) stopMover(p *aMover, after time.Duration) {
	m.t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(after):
	}
	p.Kill()
	m.allRead(moverName + m.db.Name())
}

// end moves the rest, after the daemons have stored their journals' readings for the former
// collection.
func (m *moveScene) end(change []string) {
	m.t.Helper()
	m.stopProducers() // the rest is stored before the next change
	deadline := time.Now().Add(2 * patience)
	for done := false; !done; {
		p := m.mover()
		m.stopMover(p, patience)
		done = p.Cmd.ProcessState.Success()
		require.True(m.t, done || time.Now().Before(deadline), "%v: %s", change, &p.said)
	}
	names, err := m.db.ListCollectionNames(context.Background(), bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: `^readings(\.g\d+)?$`}}}})
	require.NoError(m.t, err)
	assert.Len(m.t, names, 1)
}

// finish compares all answers with the stored readings.
func (m *moveScene) finish(row string, faults int) {
	m.t.Helper()
	m.stopProducers()
	wait(time.Second)
	m.stop()
	for _, w := range m.watched {
		w.look()
		assert.Positive(m.t, w.looks)
		m.t.Logf("%s: %d readings, %d answers compared", w.name, w.acked, w.looks)
	}
	m.scene.finish(row, m.faults+faults)
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A workload is a way to send readings to a stream. To cover another input or kind of
// storage, add a row.
type workload struct {
	name     string
	stream   string
	producer faulttest.ProducerConfig // without the common settings
	grpc     bool
}

func workloads() []workload {
	return []workload{
		{name: "JSON, stored", stream: readings, producer: faulttest.ProducerConfig{Ack: "stored", Keys: true, Repeat: 0.05, Poison: 0.05}},
		{name: "gRPC, journaled", stream: readings, grpc: true, producer: faulttest.ProducerConfig{Ack: "journaled", Keys: true, Repeat: 0.05, Poison: 0.05}},
		{name: "line protocol, no keys", stream: readings, producer: faulttest.ProducerConfig{LineProtocol: true}},
		{name: "time series, journaled", stream: native, producer: faulttest.ProducerConfig{Ack: "journaled", Keys: true, Repeat: 0.05, Poison: 0.05}},
	}
}

const (
	native   = "native"   // the time-series stream
	readings = "readings" // the default one

	speedup     = 90 // a month in eight hours
	granularity = 5 * time.Minute
	// sensors per workload: each sends about every half minute of event time.
	sensors = 40
	batch   = 10
	// leastKept is more event time than passes while a client waits for an answer.
	leastKept = 4 * time.Hour
	late      = 20 * time.Minute
	// patience is how long the daemon may take to start, or to store everything.
	patience = 5 * time.Minute
)

// config is the daemon's configuration; the retention changes.
const config = `granularity: %v
retention: %v
idempotency-window: 2m
streams:
  readings: {storage: bucket}
  native: {storage: timeseries}
`

// A soak is one run.
type soak struct {
	dir, brim string
	rate      float64
	out       io.Writer
	log       io.WriteCloser // of the daemon

	began, end   time.Time
	round        time.Duration // of each
	faultEvery   time.Duration
	sampleEvery  time.Duration
	kept         time.Duration // event time, by the retention
	addresses    [3]string     // HTTP, gRPC, admin
	workloads    []workload
	logs         map[string]*faulttest.Log // by stream
	epochs       []epoch
	mongo        *mongo.Client
	rounds       int
	readings     map[string]*faulttest.Result // of the last check
	wrong        string                       // finding of a check; empty: none
	faults       map[string]int
	outages      []float64 // when the daemon was killed, in seconds of the run
	samples      []sample
	lastSampled  time.Time
	lastAnswered int64

	mu        sync.Mutex
	daemon    *launch.Daemon
	life      [2]int // how often the daemon and its mongod were started
	producers []*faulttest.Producers
	retired   int64 // answers to producers in earlier rounds
}

// An epoch is what one producer sends in a round.
type epoch struct {
	stream   string
	producer int64
	start    time.Time
	step     time.Duration
}

func newSoak(dir, brim string, length time.Duration, rate float64, out io.Writer) *soak {
	within := func(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }
	s := &soak{
		dir: dir, brim: brim, rate: rate, out: out, workloads: workloads(), logs: make(map[string]*faulttest.Log), faults: make(map[string]int),
		began: time.Now(), end: time.Now().Add(length),
		round: within(length/12, time.Minute, 5*time.Minute), faultEvery: within(length/120, 10*time.Second, time.Minute),
		sampleEvery: within(length/480, 2*time.Second, time.Minute), kept: max(length*speedup/8, leastKept),
	}
	for _, w := range s.workloads {
		s.logs[w.stream] = faulttest.NewLog()
	}
	return s
}

// eventTime returns the current event time.
func (s *soak) eventTime(now time.Time) time.Time { return s.end.Add(-speedup * s.end.Sub(now)) }

// setRetention sets the retention to keep only recent event time, and returns the
// oldest event time that is safe from removal.
func (s *soak) setRetention(now time.Time) (safe time.Time, err error) {
	retention := (now.Sub(s.eventTime(now)) + s.kept).Round(time.Second)
	text := fmt.Sprintf(config, granularity, retention)
	if err := os.WriteFile(s.configFile(), []byte(text), 0o600); err != nil {
		return time.Time{}, fmt.Errorf("write the daemon's configuration: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != nil {
		err = syscall.Kill(s.daemon.Pid(), syscall.SIGHUP)
	}
	return now.Add(-retention), err
}

func (s *soak) configFile() string { return filepath.Join(s.dir, "brim.yaml") }
func (s *soak) dataDir() string    { return filepath.Join(s.dir, "data") }

// run returns when the time is up, a check fails, or ctx ends. By then everything it
// started has ended.
func (s *soak) run(ctx context.Context) (err error) {
	if err := s.drawAddresses(ctx); err != nil {
		return err
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "brim.log")); err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	defer s.log.Close()
	if _, err := s.setRetention(time.Now()); err != nil {
		return err
	}
	defer func() {
		if s.daemon != nil {
			err = errors.Join(err, s.daemon.Stop())
		}
		if s.mongo != nil {
			_ = s.mongo.Disconnect(context.WithoutCancel(ctx)) // its server is gone
		}
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	uri, err := os.ReadFile(filepath.Join(s.dataDir(), "mongod", "uri"))
	if err != nil {
		return fmt.Errorf("read mongod's URI: %w", err)
	}
	s.mongo, err = mongo.Connect(options.Client().ApplyURI(strings.TrimSpace(string(uri))).SetAppName("brim-soak").SetTimeout(patience))
	if err != nil {
		return fmt.Errorf("connect to mongod: %w", err)
	}
	for ctx.Err() == nil && s.wrong == "" && time.Until(s.end) > time.Second {
		if err := s.oneRound(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drawAddresses picks free ports below those of outgoing connections: the daemon reuses
// them, and no other socket may take them while it is down.
func (s *soak) drawAddresses(ctx context.Context) error {
	var listen net.ListenConfig
	for i := 0; i < len(s.addresses); {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000))
		l, err := listen.Listen(ctx, "tcp", address)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && !slices.Contains(s.addresses[:i], address) {
			s.addresses[i] = address
			i++
		}
		if err == nil {
			_ = l.Close() // nothing was accepted
		}
	}
	return nil
}

// start starts the daemon, which starts its mongod.
func (s *soak) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d, err := launch.Start(ctx, launch.Config{Brim: s.brim, Out: s.log, Args: []string{
		"--config", s.configFile(), "--data-dir", s.dataDir(), "--mongod-cache-size", "256MiB",
		"--http-addr", s.addresses[0], "--grpc-addr", s.addresses[1], "--admin-addr", s.addresses[2],
	}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemon = d
	s.life[0]++
	s.life[1]++
	return err
}

// oneRound sends for a while, under faults, and checks the stored readings.
func (s *soak) oneRound(ctx context.Context) error {
	began := time.Now()
	limit := began.Add(s.round)
	if s.end.Sub(limit) < s.round/2 { // no short round at the end
		limit = s.end
	}
	safe, err := s.setRetention(began)
	if err != nil {
		return err
	}
	s.produce(began)
	running, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	var both sync.WaitGroup
	var failed error
	both.Go(func() { failed = s.injectFaults(running, cancel) })
	both.Go(func() { s.measure(running) })
	both.Wait()
	wronged := s.stopProducers()
	if failed == nil {
		failed = s.check(context.WithoutCancel(ctx), safe.Add(granularity+time.Minute))
	}
	if wronged > 0 && s.wrong == "" {
		s.wrong = fmt.Sprintf("%d good readings were refused", wronged)
	}
	s.rounds++
	s.say()
	return failed
}

// produce starts the workloads.
func (s *soak) produce(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.producers = nil
	for i, w := range s.workloads {
		c := w.producer
		c.Log, c.Number, c.Stream = s.logs[w.stream], int64(s.rounds*len(s.workloads)+i+1), w.stream
		c.URL = "http://" + s.addresses[0]
		if w.grpc {
			c.URL = "grpc://" + s.addresses[1]
		}
		c.Batch, c.FirstSensor, c.Sensors, c.Rate, c.Timed = batch, int64(i*sensors), sensors, s.rate/float64(len(s.workloads)), true
		c.Start, c.Step, c.Late = s.eventTime(now), time.Duration(speedup/c.Rate*float64(time.Second)), late
		c.Seed = uint64(s.began.UnixNano()) //nolint:gosec // keys must be new in every run
		s.epochs = append(s.epochs, epoch{w.stream, c.Number, c.Start.Add(-c.Late), c.Step})
		s.producers = append(s.producers, faulttest.Produce(1, c))
	}
}

// stopProducers returns how many valid readings were refused.
func (s *soak) stopProducers() (wronged int64) {
	for _, p := range s.producers {
		p.Stop()
		wronged += p.Counts.Wronged.Load()
		s.faults["requests repeated"] += int(p.Counts.Repeated.Load())
		s.faults["bad readings sent"] += int(p.Counts.Poisoned.Load())
		s.mu.Lock()
		s.retired += p.Counts.Answered.Load()
		s.mu.Unlock()
	}
	return wronged
}

// injectFaults makes MongoDB or the daemon unavailable for a tenth of the time. Out of sixty
// faults, one kills the daemon and two kill its mongod, so that both live long enough to
// reveal growth; the others pause mongod.
func (s *soak) injectFaults(ctx context.Context, cancel func()) error {
	for machine.Pause(ctx, s.faultEvery*9/10) == nil {
		n := s.faults["mongod stopped"] + s.faults["mongod killed"] + s.faults["daemon killed"] + 1
		what, fault := "mongod stopped", s.pauseMongod
		switch n % 60 {
		case 10, 40:
			what, fault = "mongod killed", s.killMongod
		case 20:
			what, fault = "daemon killed", s.killDaemon
		}
		s.faults[what]++
		if err := fault(ctx); err != nil {
			cancel()
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (s *soak) pauseMongod(ctx context.Context) error {
	pid := s.mongod()
	if pid == 0 {
		return nil // it is starting
	}
	err := syscall.Kill(pid, syscall.SIGSTOP)
	if err == nil {
		_ = machine.Pause(ctx, s.faultEvery/10) // until then, or the end of the round
		err = syscall.Kill(pid, syscall.SIGCONT)
	}
	return err
}

func (s *soak) killMongod(ctx context.Context) error {
	pid := s.mongod()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	s.mu.Lock()
	s.life[1]++
	s.mu.Unlock()
	return machine.Pause(context.WithoutCancel(ctx), s.faultEvery/10)
}

func (s *soak) killDaemon(ctx context.Context) error {
	s.outages = append(s.outages, time.Since(s.began).Seconds())
	s.daemon.Kill()
	<-s.daemon.Exited()
	return s.start(context.WithoutCancel(ctx))
}

// check waits until all accepted readings are stored, and compares those that retention
// cannot have removed yet.
func (s *soak) check(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := s.flush(ctx); err != nil {
		s.wrong = err.Error()
		return nil
	}
	for _, e := range s.epochs {
		if gone := since.Add(granularity).Sub(e.start); gone > 0 {
			s.logs[e.stream].Expire(e.producer, int64(math.Ceil(float64(gone)/float64(e.step)))+1)
		}
	}
	s.readings = make(map[string]*faulttest.Result)
	for stream, log := range s.logs {
		result, err := faulttest.Check(ctx, faulttest.CheckConfig{
			Log: log, Database: s.mongo.Database("brim"), Stream: stream, Since: since,
		})
		if err != nil {
			return fmt.Errorf("check stream %s: %w", stream, err)
		}
		if s.readings[stream] = result; stream == native {
			result.Twice = nil // not promised for writes with an unknown outcome
		}
		if result.Wrong() > 0 && s.wrong == "" {
			s.wrong = "stream " + stream + ": " + result.Report()
		}
	}
	return nil
}

// flush retries until the daemon has stored everything, since MongoDB may just be starting.
func (s *soak) flush(ctx context.Context) error {
	for deadline := time.Now().Add(patience); ; {
		err := s.daemon.Flush(ctx, time.Minute)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("accepted readings are not stored within %v: %w", patience, err)
		}
		if err := machine.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// say prints the result of a round.
func (s *soak) say() {
	acked, stored := 0, 0
	for _, r := range s.readings {
		acked, stored = acked+r.Acked, stored+r.Stored
	}
	result := "nothing lost, nothing twice"
	if s.wrong != "" {
		result = s.wrong
	}
	memory := "?"
	if n := len(s.samples); n > 0 {
		memory = chart.Format(chart.Bytes, s.samples[n-1].values[0])
	}
	fmt.Fprintf(s.out, "%s of %s: %d acknowledged, %d of them stored now; %s of memory; %s\n",
		time.Since(s.began).Round(time.Second), s.end.Sub(s.began).Round(time.Second), acked, stored, memory, result)
}

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Generator is one run of load:
//
//	source ─ next ─▶ dispatcher ─▶ jobs ─▶ senders ─▶ the daemon
//	                  │ at its due time      │ fill, Send
//	                  ▼                      ▼
//	               dropped                 tally ◀─ recorder, each second ─▶ Progress
type Generator struct {
	config    Config
	rateGiven bool // and not made of sensors and interval
	source    source
	jobs      chan job
	tally     *tally
	meters    *metrics

	began       time.Time
	outstanding atomic.Int64 // requests due and not answered
	held        atomic.Int64 // bytes of their readings, of a replay
	due         atomic.Int64 // readings
	dueRequests atomic.Int64
	dropped     atomic.Int64 // readings
	draining    atomic.Bool  // nothing more is due
	maxHeld     int64        // for tests, maxHeld
	unsent      atomic.Bool  // what waits for a connection is not sent any more

	noteMu sync.Mutex
	notes  []string // errors beside those of requests
}

// interruptGrace is how long answers are waited for when somebody wants the run
// to end.
const interruptGrace = 5 * time.Second

// New checks the configuration and prepares a run; nothing is sent yet.
func New(c Config) (*Generator, error) {
	rateGiven := c.Rate != Rate{}
	c, err := c.complete(time.Now())
	if err != nil {
		return nil, err
	}
	g := &Generator{config: c, rateGiven: rateGiven, maxHeld: maxHeld, jobs: make(chan job, c.MaxInFlight), tally: newTally(c.Connections)}
	if g.meters, err = newMetrics(c.Registerer, func() float64 { return float64(g.outstanding.Load()) }); err != nil {
		return nil, err
	}
	if c.From == "" {
		g.source = newFleetSource(&c)
	}
	return g, nil
}

// Run prepares a run and carries it out.
func Run(ctx context.Context, c Config) (*Result, error) {
	g, err := New(c)
	if err != nil {
		return nil, err
	}
	return g.Run(ctx)
}

// Setup tells what will be done, as far as it is known before.
func (g *Generator) Setup() Setup { return g.setup() }

// Run makes the load and waits for the answers. It may be called once. When ctx
// ends, nothing more is due, and the result tells of the run so far. An error
// comes without a result if nothing was sent, and together with one if the run
// had to end early, as when a replayed file has a bad line.
func (g *Generator) Run(ctx context.Context) (*Result, error) {
	if g.source == nil {
		r, err := openReplay(&g.config)
		if err != nil {
			return nil, err
		}
		g.source = r
	}
	senders, err := g.open(ctx)
	if err != nil {
		return nil, errors.Join(err, g.source.close())
	}
	g.began = time.Now()
	rec := newRecorder(g)
	var recording sync.WaitGroup
	over := make(chan struct{})
	recording.Go(func() { rec.run(over) })

	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var working sync.WaitGroup
	for i, s := range senders {
		working.Go(func() { g.send(sending, i, s) })
	}
	err = g.dispatch(ctx)
	length := g.scheduled(ctx)
	g.drain(ctx, &working, cancel)
	lasted := time.Since(g.began)
	close(over)
	recording.Wait()
	r := rec.result(length, lasted)
	r.Interrupted = ctx.Err() != nil
	if err != nil && g.due.Load() == 0 {
		r = nil
	}
	return r, errors.Join(err, g.source.close())
}

// open makes the senders.
func (g *Generator) open(ctx context.Context) ([]Sender, error) {
	senders := make([]Sender, 0, g.config.Connections)
	for range g.config.Connections {
		s, err := g.config.Senders(ctx)
		if err != nil {
			errs := []error{fmt.Errorf("open a connection: %w", err)}
			for _, open := range senders {
				errs = append(errs, open.Close())
			}
			return nil, errors.Join(errs...)
		}
		senders = append(senders, s)
	}
	return senders, nil
}

// dispatch hands each request to the senders when it is due, until the run is
// over.
func (g *Generator) dispatch(ctx context.Context) error {
	defer close(g.jobs)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		j, more, err := g.source.next()
		if err != nil {
			return err
		}
		if !more {
			length, _ := g.source.length()
			g.sleep(ctx, timer, length)
			return nil
		}
		if !g.sleep(ctx, timer, j.due) {
			return nil
		}
		g.due.Add(int64(j.count))
		g.dueRequests.Add(1)
		g.meters.offered.Add(float64(j.count))
		if !g.hasRoom(&j) {
			g.drop(&j)
			continue
		}
		g.outstanding.Add(1)
		g.held.Add(j.bytes)
		g.jobs <- j // has room for as many as may be outstanding
	}
}

// maxHeld bounds the readings of a replay that are due and not answered, in
// bytes. A fleet's are made when they are sent.
const maxHeld = 256 << 20

// hasRoom reports whether a job may be outstanding beside those that are.
func (g *Generator) hasRoom(j *job) bool {
	held := g.held.Load()
	return g.outstanding.Load() < int64(g.config.MaxInFlight) && (held == 0 || held+j.bytes <= g.maxHeld)
}

// A nap is taken for the end of a longer wait, which a timer would stretch. Where
// requests follow each other closely, the runtime is awake anyhow, and a thread
// that sleeps would only cost it.
const (
	longestNap  = 2 * time.Millisecond
	shortestNap = 100 * time.Microsecond
)

// sleep waits until a time of the run; false if ctx ended first.
func (g *Generator) sleep(ctx context.Context, timer *time.Timer, until time.Duration) bool {
	for ctx.Err() == nil {
		wait := until - time.Since(g.began)
		switch {
		case wait <= 0:
			return true
		case wait >= shortestNap && wait <= longestNap && !g.config.timersOnly:
			nap(wait)
			continue
		case wait > longestNap && !g.config.timersOnly:
			wait -= longestNap * 3 / 4 // how late a timer can be, and then some
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return false
}

// drop gives a job up that was due.
func (g *Generator) drop(j *job) {
	g.dropped.Add(int64(j.count))
	g.meters.dropped.Add(float64(j.count))
}

// scheduled returns how long requests were due.
func (g *Generator) scheduled(ctx context.Context) time.Duration {
	elapsed := time.Since(g.began)
	if length, known := g.source.length(); known && ctx.Err() == nil {
		return length
	}
	return elapsed
}

// drain waits until what is outstanding is answered, or long enough.
func (g *Generator) drain(ctx context.Context, working *sync.WaitGroup, cancel context.CancelFunc) {
	g.draining.Store(true)
	answered := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() { working.Wait(); close(answered) })
	patience := time.NewTimer(g.config.Grace)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	case <-ctx.Done():
		g.unsent.Store(true)
		hurry := time.NewTimer(min(interruptGrace, g.config.Grace))
		defer hurry.Stop()
		select {
		case <-answered:
		case <-hurry.C:
		}
	}
	g.unsent.Store(true)
	cancel()
	waiting.Wait()
}

// send is one connection's way through the jobs.
func (g *Generator) send(ctx context.Context, number int, s Sender) {
	var m scratch
	var request Request
	window := int64(g.config.Stream.GranularitySeconds) * 1000
	closedLoop := g.config.Faults.Off(fault.DueTime)
	for j := range g.jobs {
		unsent := g.unsent.Load()
		request.Readings = g.source.fill(&j, &m)
		f := fate{readings: j.count, fills: byTenth(request.Readings, window), unsent: unsent}
		sent := time.Since(g.began)
		if unsent {
			g.drop(&j)
		} else {
			g.meters.sent.Add(float64(j.count))
			f.answer, f.err = s.Send(ctx, &request)
		}
		over := time.Since(g.began)
		f.response, f.service = over-j.due, over-sent
		if closedLoop {
			f.response = f.service
		}
		g.tally.note(number, &f)
		g.meters.note(&f)
		g.outstanding.Add(-1)
		g.held.Add(-j.bytes)
	}
	if err := s.Close(); err != nil {
		g.note(fmt.Sprintf("close a connection: %v", err))
	}
}

// byTenth counts readings by the tenth of their windows.
func byTenth(readings []telemetry.Reading, windowMs int64) (t tenths) {
	for i := range readings {
		t[elapsedOf(readings[i].Time.UnixMilli(), windowMs)*10/windowMs]++
	}
	return t
}

func (g *Generator) note(text string) {
	g.noteMu.Lock()
	defer g.noteMu.Unlock()
	if len(g.notes) == 0 {
		g.notes = append(g.notes, text)
	}
}

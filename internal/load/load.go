// Package load simulates many sensors. A schedule determines when each request is due, a fleet
// its readings, a Sender (package load/send) sends it to a daemon, and Run measures how long
// that takes. The outcome is a Result, which package load/report shows.
//
// The load is open-loop: request n is due at a time that does not depend on the answers, and
// its response time counts from then. When a server stalls, every request due meanwhile shows
// it, as its users would see it, not only the one in flight.
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Request for a Sender. The caller of Send reuses it.
type Request struct {
	// Readings share memory with the fleet and are valid until Send returns. A sensor's
	// readings are adjacent where possible.
	Readings []telemetry.Reading
}

// An Answer of the daemon to a request.
type Answer struct {
	Accepted, Rejected int
	// Failure is why the whole request failed, one of a few short names such as "timeout",
	// "connection", "503"; empty if it did not.
	Failure string
}

// A Sender sends requests to a daemon. Send blocks until the answer comes or ctx ends, and
// never retries. Only one goroutine may call it; a run has a Sender per connection. The error
// is for people, set only with a Failure or if every reading was rejected.
type Sender interface {
	Send(ctx context.Context, r *Request) (Answer, error)
	Close() error
}

// A Stream of the daemon that readings are written to.
type Stream struct {
	Name               string `json:"name"`
	Storage            string `json:"storage"` // bucket, timeseries or memory
	GranularitySeconds int    `json:"granularity_seconds"`
}

// A Generator is one run of load:
//
//	fleet ─▶ dispatcher ─▶ jobs ─▶ senders ─▶ the daemon
//	          │ at its due time      │ fill, Send
//	          ▼                      ▼
//	       dropped                 tally ◀─ recorder, each second ─▶ Progress
type Generator struct {
	config    Config
	rateGiven bool // rather than derived from sensors and interval
	fleet     *fleet
	jobs      chan job
	tally     *tally
	meters    *metrics

	began       time.Time
	outstanding atomic.Int64 // requests due and not answered
	due         atomic.Int64 // readings
	dueRequests atomic.Int64
	sent        atomic.Int64 // readings
	dropped     atomic.Int64 // readings
	draining    atomic.Bool  // nothing more is due
	unsent      atomic.Bool  // requests still waiting for a connection are not sent any more
}

// How long a run waits for answers once nothing more is due, or after an interrupt.
const (
	grace          = 30 * time.Second
	interruptGrace = 5 * time.Second
)

// New checks the configuration and prepares a run. Nothing is sent yet.
func New(c Config) (*Generator, error) {
	rateGiven := c.Rate != Rate{}
	c, err := c.complete(time.Now())
	if err != nil {
		return nil, err
	}
	g := &Generator{
		config: c, rateGiven: rateGiven, fleet: newFleet(&c, newSchedule(c.Rate, c.Duration, c.Steps)),
		jobs: make(chan job, c.MaxInFlight), tally: newTally(),
	}
	g.meters, err = newMetrics(g)
	return g, err
}

// Run generates the load and waits for the answers. It may be called once. When ctx ends,
// nothing more is due, and the result covers the run so far. It fails if a connection cannot be
// opened.
func (g *Generator) Run(ctx context.Context) (*Result, error) {
	senders, err := g.open(ctx)
	if err != nil {
		return nil, err
	}
	g.began = time.Now()
	rec := &recorder{g: g}
	var recording sync.WaitGroup
	over := make(chan struct{})
	recording.Go(func() { rec.run(over) })

	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var working sync.WaitGroup
	for _, s := range senders {
		working.Go(func() { g.send(sending, s) })
	}
	g.dispatch(ctx)
	length := g.config.Duration // time in which requests were due
	if ctx.Err() != nil {
		length = min(length, time.Since(g.began))
	}
	g.drain(ctx, &working, cancel)
	lasted := time.Since(g.began)
	close(over)
	recording.Wait()
	r := rec.result(length, lasted)
	r.Interrupted = ctx.Err() != nil
	return r, nil
}

// open opens the senders.
func (g *Generator) open(ctx context.Context) ([]Sender, error) {
	senders := make([]Sender, 0, g.config.Connections)
	for range g.config.Connections {
		s, err := g.config.Senders(ctx)
		if err != nil {
			for _, open := range senders {
				_ = open.Close() // nothing was sent on it
			}
			return nil, fmt.Errorf("open a connection: %w", err)
		}
		senders = append(senders, s)
	}
	return senders, nil
}

// dispatch passes each request to the senders when it is due.
func (g *Generator) dispatch(ctx context.Context) {
	defer close(g.jobs)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for j := range g.fleet.schedule.jobs(g.config.Batch) {
		if !g.sleep(ctx, timer, j.due) {
			return
		}
		g.due.Add(int64(j.count))
		g.dueRequests.Add(1)
		if g.outstanding.Load() >= int64(g.config.MaxInFlight) {
			g.dropped.Add(int64(j.count))
			continue
		}
		g.outstanding.Add(1)
		g.jobs <- j // never blocks: it has room for all that may be outstanding
	}
	g.sleep(ctx, timer, g.config.Duration)
}

// The end of a longer wait is a nap, because a timer would be late. When requests follow
// closely, the runtime is awake anyway, and a sleeping thread would only cost time.
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
			wait -= longestNap * 3 / 4 // a timer may be that late
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return false
}

// drain waits for the outstanding answers, for a limited time.
func (g *Generator) drain(ctx context.Context, working *sync.WaitGroup, cancel context.CancelFunc) {
	g.draining.Store(true)
	giveUp := time.AfterFunc(grace, func() {
		g.unsent.Store(true)
		cancel()
	})
	defer giveUp.Stop()
	defer context.AfterFunc(ctx, func() {
		g.unsent.Store(true)
		giveUp.Reset(interruptGrace)
	})()
	working.Wait()
}

// send sends jobs on one connection.
func (g *Generator) send(ctx context.Context, s Sender) {
	var m scratch
	var request Request
	window := int64(g.config.Stream.GranularitySeconds) * 1000
	for j := range g.jobs {
		unsent := g.unsent.Load()
		g.fleet.fill(&m, j.first, j.count)
		request.Readings = m.readings
		f := outcome{readings: j.count, fills: byTenth(request.Readings, window), unsent: unsent}
		sent := time.Since(g.began)
		if unsent {
			g.dropped.Add(int64(j.count))
		} else {
			g.sent.Add(int64(j.count))
			f.answer, f.err = s.Send(ctx, &request)
		}
		over := time.Since(g.began)
		f.response, f.service = over-j.due, over-sent
		g.tally.note(&f)
		if g.config.Registerer != nil {
			g.meters.response.Observe(f.response.Seconds())
			if f.answered() {
				g.meters.service.Observe(f.service.Seconds())
			}
		}
		g.outstanding.Add(-1)
	}
	_ = s.Close() // everything sent on it was answered or given up
}

// byTenth counts readings by the tenth of their windows.
func byTenth(readings []telemetry.Reading, windowMs int64) (t tenths) {
	for i := range readings {
		t[elapsedOf(readings[i].Time.UnixMilli(), windowMs)*10/windowMs]++
	}
	return t
}

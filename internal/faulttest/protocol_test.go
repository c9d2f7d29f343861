package faulttest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestPROTOCOL runs random histories of a bucket against the real store and a
// real MongoDB: one or two daemons, lost answers, requests delayed until any
// later time, and crashes after which unreleased readings are resent, cut
// differently and under other caps. Some change the granularity. Without a
// journal, lanes or processes, it runs a great many of them.
func TestPROTOCOL(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = largestCap
	var (
		mu     sync.Mutex
		faults int
	)
	const atOnce = 8
	histories := form(40, 2000)
	for first := 1; first <= histories && s.stuck == nil; first += atOnce {
		var all sync.WaitGroup
		for seed := first; seed < first+atOnce; seed++ {
			all.Go(func() {
				n, err := playHistory(s, uint64(seed), seed%4 == 0)
				mu.Lock()
				defer mu.Unlock()
				faults += n
				s.stuck = errors.Join(s.stuck, err)
			})
		}
		all.Wait()
	}
	s.finish("PROTOCOL", faults)
}

// largestCap is the largest cap of any daemon.
const largestCap = 7

// history is one random run.
type history struct {
	s        *scene
	rnd      *rand.Rand
	proxy    *faulttest.Proxy
	conn     *store.Connection
	sensor   string
	daemons  []*simulated
	marks    int64 // number of sessions so far: the producers of marks
	accepted []faulttest.Entry
	changing bool // sessions have different granularities

	under faulttest.Faults // of the proxy, except while a daemon prepares its stream
}

// A simulated daemon is, for one bucket, the writer of its own session and of
// earlier ones.
type simulated struct {
	store   *bucket.Store
	writers []*writer
}

// writer sends one session's readings.
type writer struct {
	producer int64 // of the marks
	session  string
	rows     []batch.Ref // all of the session, in order of sequences
	released int         // how many of them
	share    *batch.Pending

	granularity time.Duration // at the time when its readings are accepted
}

func playHistory(s *scene, seed uint64, changing bool) (faults int, stuck error) {
	h := &history{
		s: s, rnd: rand.New(rand.NewPCG(seed, 1)), sensor: fmt.Sprintf("seed-%d", seed), marks: int64(seed) * 1000, changing: changing,
	}
	proxy, uri := s.proxy()
	h.proxy = proxy
	var err error
	h.conn, err = store.Connect(store.ConnectionConfig{URI: uri, Database: s.db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	defer func() { assert.NoError(s.t, h.conn.Close(context.Background())) }()
	for range 1 + h.rnd.IntN(2) {
		h.daemons = append(h.daemons, h.daemon(nil))
	}
	// The client gets a timeout, which leaves the outcome open but keeps its
	// connection: so a history takes milliseconds.
	const maxTimeExpired = 50
	fates := []faulttest.Fate{faulttest.CutAnswer, faulttest.Drop, faulttest.Hold}
	h.under = faulttest.Faults{
		Decide: func(faulttest.Command) faulttest.Fate {
			if h.rnd.Float64() < 0.4 { // one command is in flight at a time
				return fates[h.rnd.IntN(len(fates))]
			}
			return faulttest.Pass
		},
		Answer: func(faulttest.Command) bson.D { return faulttest.CommandError(maxTimeExpired) },
	}
	h.proxy.Set(h.under)
	for range 30 + h.rnd.IntN(60) {
		h.step()
	}
	h.proxy.Set(faulttest.Faults{})
	stuck = h.end()
	h.proxy.Release(h.rnd) // requests that are still held run last
	return h.proxy.Counts().Faults(), stuck
}

// daemon starts a daemon with its own caps, and with writers of earlier
// sessions.
func (h *history) daemon(old []*writer) *simulated {
	s, err := bucket.New(bucket.Config{
		Database: h.conn.Database(), Stream: "readings", Granularity: time.Hour,
		MaxReadings: 4 + h.rnd.IntN(largestCap-3), MaxBytes: []int{1 << 10, 64 << 10}[h.rnd.IntN(2)], MaxReadingsPerUpdate: h.rnd.IntN(4),
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(h.s.t, err)
	h.proxy.Set(faulttest.Faults{})
	require.NoError(h.s.t, s.Prepare(context.Background()))
	h.proxy.Set(h.under)
	return &simulated{store: s, writers: append(old, h.writer())}
}

// writer begins a session.
func (h *history) writer() *writer {
	h.marks++
	w := &writer{producer: h.marks, session: batch.NewSession(), granularity: time.Hour}
	if h.changing {
		w.granularity = h.granularity()
	}
	w.share = w.newShare(h.sensor)
	return w
}

func (w *writer) newShare(sensor string) *batch.Pending {
	return &batch.Pending{Stream: "readings", Sensor: sensor, Start: windowStart.UnixMilli(), Granularity: w.granularity, Session: w.session}
}

var windowStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step does one thing with each daemon, and may deliver a late request.
func (h *history) step() {
	for i, d := range h.daemons {
		switch x := h.rnd.Float64(); {
		case x < 0.35:
			h.take(d.writers[len(d.writers)-1])
		case x < 0.42:
			h.daemons[i] = h.crash(d)
		default:
			h.write(d, d.writers[h.rnd.IntN(len(d.writers))])
		}
	}
	if h.rnd.Float64() < 0.2 {
		h.proxy.Release(h.rnd)
	}
}

// take adds readings to a session, some of them long, so that parts may be full
// by bytes at any count.
func (h *history) take(w *writer) {
	builder := batch.NewBuilder(windowStart)
	n := 1 + h.rnd.IntN(5)
	for i := range n {
		builder.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
		builder.Sensor([]byte(h.sensor))
		builder.Time(windowStart.UnixMilli() + h.rnd.Int64N(w.granularity.Milliseconds()))
		builder.Int([]byte("producer"), w.producer)
		builder.Int([]byte("number"), int64(len(w.rows)+i))
		builder.Text([]byte("text"), make([]byte, h.rnd.IntN(2)*h.rnd.IntN(400)))
		for _, tag := range (faulttest.Mark{Producer: w.producer, Number: int64(len(w.rows) + i)}).Tags(h.sensor) {
			builder.Tag([]byte(tag.Name), []byte(tag.Value))
		}
		refusal := builder.End()
		require.Nil(h.s.t, refusal)
	}
	b := builder.Batch()
	b.Session, b.FirstSeq = w.session, uint64(len(w.rows)+1)
	attempt := faulttest.Entry{Event: "attempt", Producer: w.producer, From: int64(len(w.rows)), Count: n}
	h.s.log.Note(attempt)
	h.accepted = append(h.accepted, attempt)
	for i := range n {
		r := batch.Ref{Batch: b, Index: uint32(i)}
		w.rows, w.share.Rows = append(w.rows, r), append(w.share.Rows, r)
	}
}

// crash replaces a daemon with another one, which resends what was not released
// and some of what was: a journal is trimmed late.
func (h *history) crash(d *simulated) *simulated {
	var old []*writer
	for _, w := range d.writers {
		from := max(0, w.released-h.rnd.IntN(4))
		w.share = w.newShare(h.sensor)
		w.share.Recovered = true
		w.share.Rows = append(w.share.Rows, w.rows[from:]...)
		if len(w.share.Rows) > 0 {
			old = append(old, w)
		}
	}
	return h.daemon(old)
}

// write makes the store write a bucket's rows once.
func (h *history) write(d *simulated, w *writer) {
	if len(w.share.Rows) == 0 {
		return
	}
	d.store.Write(context.Background(), []*batch.Pending{w.share})
	h.settle(w)
}

func (h *history) settle(w *writer) {
	if w.share.Verdict == batch.Poison && len(w.share.Rows) > 0 {
		w.share.Drop(1)
	}
	w.released = len(w.rows) - len(w.share.Rows)
}

// end lets every writer finish; then everything accepted must be stored.
func (h *history) end() error {
	for began := time.Now(); time.Since(began) < patience; { // the majority may lag
		left := 0
		for _, d := range h.daemons {
			for _, w := range d.writers {
				h.write(d, w)
				left += len(w.share.Rows)
			}
		}
		if left == 0 {
			for _, e := range h.accepted {
				e.Event, e.Code = "answer", 200
				h.s.log.Note(e)
			}
			return nil
		}
	}
	return fmt.Errorf("history of %s does not end", h.sensor)
}

// granularity returns one of the history's granularities.
func (h *history) granularity() time.Duration {
	all := []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour}
	return all[h.rnd.IntN(len(all))]
}

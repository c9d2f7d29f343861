package journal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// full says that the fault tests are to take their time.
func full() bool { return os.Getenv("BRIM_FAULT_FULL") == "1" }

// longer returns the first number, or the second where the tests take their time.
func longer(short, long int) int {
	if full() {
		return long
	}
	return short
}

// counts is what a fault test found.
type counts struct {
	faults, acked, lost, twice, bad int
	found                           string // the first thing that went wrong
}

func (c *counts) wrong(format string, args ...any) {
	if c.found == "" {
		c.found = fmt.Sprintf(format, args...)
	}
}

func (c *counts) add(o counts) {
	c.faults += o.faults
	c.acked += o.acked
	c.lost += o.lost
	c.twice += o.twice
	c.bad += o.bad
	if c.found == "" {
		c.found = o.found
	}
}

func (c *counts) clean() bool { return c.lost == 0 && c.twice == 0 && c.bad == 0 }

// report runs a fault test as it is, and then until each sabotage is caught.
func report(t *testing.T, name string, runs int, run func(seed uint64, off ...fault.Protection) counts, sabotages ...fault.Protection) {
	t.Helper()
	began := time.Now()
	var all counts
	for seed := range uint64(runs) {
		one := run(seed)
		if !one.clean() {
			t.Errorf("seed %d: %+v", seed, one)
		}
		all.add(one)
	}
	if all.faults == 0 || all.acked == 0 {
		t.Errorf("nothing was tested: %+v", all)
	}
	row := faulttest.Row{Test: name, Faults: all.faults, Acked: all.acked, Lost: all.lost, Twice: all.twice, Bad: all.bad}
	for _, off := range sabotages {
		s := faulttest.Sabotage{Off: string(off)}
		for seed := uint64(0); seed < 200 && !s.Caught; seed++ {
			one := run(seed, off)
			s.Caught, s.Found, s.Runs = !one.clean(), one.found, s.Runs+1
		}
		if !s.Caught {
			t.Errorf("without %s nothing goes wrong", off)
		}
		row.Sabotages = append(row.Sabotages, s)
	}
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

// ledger is what the outside saw of a journal.
type ledger struct {
	mu    sync.Mutex
	next  int
	acked map[int]bool
	seen  map[int]bool // by a follower
	rest  map[int]bool // at rest, told to the journal

	unknown  int      // requests with an unknown outcome
	doubtful []int    // the first readings of those that have a key
	keys     []string // of requests that were acknowledged
}

func newLedger() *ledger {
	return &ledger{acked: map[int]bool{}, seen: map[int]bool{}, rest: map[int]bool{}}
}

func (l *ledger) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next += n
	return l.next - n
}

func (l *ledger) note(in map[int]bool, numbers []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range numbers {
		in[n] = true
	}
}

// produce appends until the journal refuses for good, or n requests were sent.
func (l *ledger) produce(j *journal.Journal, seed uint64, n int) {
	random := rand.New(rand.NewPCG(seed, 2))
	for range n {
		size := 1 + random.IntN(4)
		if l.send(j, l.draw(size), size) != nil {
			return
		}
	}
}

// send appends readings and notes the outcomes. Two of them have a key.
func (l *ledger) send(j *journal.Journal, first, size int) error {
	b := makeBatch("readings", first, size)
	numbers := readings(b)
	r := batch.Request{Want: telemetry.Journaled}
	if size == 2 {
		r.Key = fmt.Sprint("request ", first)
	}
	_, err := j.Append(context.Background(), b, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if telemetry.KindOf(err) == telemetry.UnknownOutcome {
		l.unknown++
		if r.Key != "" {
			l.doubtful = append(l.doubtful, first)
		}
	}
	if err != nil {
		return err
	}
	for _, n := range numbers {
		l.acked[n] = true
	}
	if r.Key != "" {
		l.keys = append(l.keys, r.Key)
	}
	return nil
}

// sendAgain repeats the requests with a key whose outcome is unknown.
func (l *ledger) sendAgain(j *journal.Journal) {
	doubtful := l.doubtful
	l.doubtful = nil
	for _, first := range doubtful {
		_ = l.send(j, first, 2) // which notes what it means
	}
}

// consume follows the journal, and tells it now and then what is at rest, until
// done is closed.
func (l *ledger) consume(j *journal.Journal, seed uint64, done <-chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 3))
	c := j.Follow(j.Oldest(), batch.Part{})
	defer c.Close()
	var waiting []int
	for {
		r, found, err := c.Next()
		if err != nil {
			return
		}
		if !found {
			select {
			case <-j.Grown(c.Position()):
				continue
			case <-done:
				return
			}
		}
		l.note(l.seen, readings(r.Batch))
		waiting = append(waiting, readings(r.Batch)...)
		if random.IntN(20) == 0 {
			l.note(l.rest, waiting)
			waiting = nil
			j.Trim(r.Next)
		}
	}
}

// check compares what is left with what was promised.
func (l *ledger) check(j *journal.Journal) counts {
	out := counts{acked: len(l.acked)}
	times := make(map[int]int)
	c := j.Follow(j.Oldest(), batch.Part{})
	defer c.Close()
	last := make(map[string]uint64)
	for {
		r, found, err := c.Next()
		if err != nil {
			out.bad++
			out.wrong("follow: %v", err)
			break
		}
		if !found {
			break
		}
		if r.Batch.FirstSeq <= last[r.Batch.Session] {
			out.bad++
			out.wrong("sequence %d of %s behind %d", r.Batch.FirstSeq, r.Batch.Session, last[r.Batch.Session])
		}
		last[r.Batch.Session] = r.Batch.FirstSeq + uint64(r.Batch.Len()) - 1
		for _, n := range readings(r.Batch) {
			if times[n]++; times[n] > 1 {
				out.twice++
				out.wrong("reading %d is there twice", n)
			}
			if n >= l.next {
				out.bad++
				out.wrong("reading %d was never sent", n)
			}
		}
	}
	for _, promised := range []map[int]bool{l.acked, l.seen} {
		for n := range promised {
			if times[n] == 0 && !l.rest[n] {
				out.lost++
				out.wrong("reading %d is lost", n)
			}
		}
	}
	l.repeat(j, &out)
	return out
}

// repeat sends again what was acknowledged under a key.
func (l *ledger) repeat(j *journal.Journal, out *counts) {
	for _, key := range l.keys {
		r, err := j.Append(context.Background(), makeBatch("readings", 0, 1), batch.Request{Want: telemetry.Journaled, Key: key})
		switch {
		case err != nil:
			out.bad++
			out.wrong("repeat %s: %v", key, err)
		case !r.Repeated:
			out.twice++
			out.wrong("%s was taken again", key)
		}
	}
}

const fakeDir = "/journal"

// fakeConfig is that of a journal with small segments on a disk in memory.
func fakeConfig(files *faulttest.Files, session string, off []fault.Protection) journal.Config {
	cfg := config(fakeDir, session)
	cfg.Files, cfg.SegmentBytes, cfg.MaxBytes, cfg.TailBytes = files, 4<<10, 8<<20, 2<<10
	if len(off) > 0 {
		cfg.Faults = fault.Without(off...)
	}
	return cfg
}

// segmentsOf returns the names of a disk's segments.
func segmentsOf(files *faulttest.Files) []string {
	return slices.DeleteFunc(files.Names(), func(name string) bool { return !isSegment(name) })
}

func isSegment(name string) bool {
	const suffix = ".journal"
	return len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix
}

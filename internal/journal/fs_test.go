package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
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

// report runs a fault test and logs its row.
func report(t *testing.T, name string, runs int, run func(seed uint64) counts) {
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
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

// ledger is what the outside saw of a journal.
type ledger struct {
	mu    sync.Mutex
	next  int
	acked map[int]bool
	seen  map[int]bool // by a follower
	rest  map[int]bool // stored, as the journal was told

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

// consume follows the journal, and tells it now and then what is stored, until
// done is closed.
func (l *ledger) consume(j *journal.Journal, seed uint64, done <-chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 3))
	c := j.Follow(j.Oldest(), batch.Part{})
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
func fakeConfig(files *faulttest.Files, session string) journal.Config {
	cfg := config(fakeDir, session)
	cfg.Files, cfg.SegmentBytes, cfg.MaxBytes, cfg.TailBytes = files, 4<<10, 8<<20, 2<<10
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

// FS-1: the power goes at a random instant, also while an earlier loss is being
// mended, and takes any part of what was not synced with it.
func TestFS1PowerCut(t *testing.T) {
	t.Parallel()
	report(t, "FS-1", longer(40, 3000), powerCut)
}

func powerCut(seed uint64) counts {
	random := rand.New(rand.NewPCG(seed, 4))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 4 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life)))
		if err != nil {
			out.bad++
			out.wrong("open: %v", err)
			return out
		}
		files.CutAfter(random.IntN(150))
		var producers, consumers sync.WaitGroup
		done := make(chan struct{})
		consumers.Go(func() { l.consume(j, seed, done) })
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, 200) })
		}
		producers.Wait()
		next := files.PowerCut()
		close(done)
		consumers.Wait()
		_ = j.Close() // on a dead disk
		out.faults++
		// Now and then the power goes again during the repair.
		for random.IntN(2) == 0 {
			next.CutAfter(random.IntN(12))
			if j, err := journal.Open(fakeConfig(next, "repair")); err == nil {
				_ = j.Close()
			}
			next = next.PowerCut()
			out.faults++
		}
		files = next
	}
	j, err := journal.Open(fakeConfig(files, "last"))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}

// FS-2: the last write is torn at every byte offset, and the tear is followed by
// nothing, zeros or garbage. Complete records are kept, and what is appended
// afterwards is safe.
func TestFS2TornTail(t *testing.T) {
	t.Parallel()
	report(t, "FS-2", longer(1, 8), func(seed uint64) counts { return tornTail(t, seed) })
}

func tornTail(t *testing.T, seed uint64) counts {
	random := rand.New(rand.NewPCG(seed, 6))
	files := faulttest.NewFiles(seed)
	j, err := journal.Open(fakeConfig(files, "first"))
	require.NoError(t, err)
	mark := files.Bytes(fakeDir + "/mark")
	var sizes []int // of the segment behind each record
	var name string
	var numbers []int // of readings that are whole in so many bytes
	total := 0
	for range 4 {
		n := 1 + random.IntN(3)
		mustAppend(t, j, makeBatch("readings", total, n))
		total += n
		name = segmentsOf(files)[0]
		sizes, numbers = append(sizes, len(files.Bytes(name))), append(numbers, total)
	}
	whole := files.Bytes(name)
	require.NoError(t, j.Close())
	var out counts
	for size := range whole {
		for _, fill := range fills(random) {
			torn := append([]byte{}, whole[:size]...)
			for len(torn) < len(whole) && fill > 0 {
				torn = append(torn, byte(random.Uint32())*byte(fill-1))
			}
			// The fill may happen to equal the original bytes.
			kept := 0
			for i, end := range sizes {
				if end <= len(torn) && bytes.Equal(torn[:end], whole[:end]) {
					kept = numbers[i]
				}
			}
			disk := faulttest.NewFiles(random.Uint64())
			disk.SetBytes(name, torn)
			disk.SetBytes(fakeDir+"/mark", mark)
			out.faults++
			out.acked += kept + 2
			out.add(reopenTorn(disk, kept))
			if out.bad > 0 {
				return out
			}
		}
	}
	return out
}

// reopenTorn opens the journal, appends to it, and opens it again.
func reopenTorn(disk *faulttest.Files, kept int) (out counts) {
	j, err := journal.Open(fakeConfig(disk, "second"))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	l := newLedger()
	l.next = kept
	for n := range kept {
		l.acked[n] = true
	}
	l.produce(j, 1, 1)
	if err := j.Close(); err != nil {
		out.bad++
		out.wrong("close: %v", err)
	}
	if j, err = journal.Open(fakeConfig(disk, "third")); err != nil {
		out.bad++
		out.wrong("open again: %v", err)
		return out
	}
	defer j.Close()
	found := l.check(j)
	found.acked = 0
	out.add(found)
	return out
}

// fills chooses what follows the tear: nothing, zeros, garbage.
func fills(random *rand.Rand) []int {
	if full() {
		return []int{0, 1, 2}
	}
	return []int{random.IntN(3)}
}

// FS-3: one bit is flipped, in every file. Either the journal says where it is
// damaged, or everything is as it was. With the damage accepted, no more than
// the damaged record is given up, or the segment if its header is hit.
func TestFS3BitFlip(t *testing.T) {
	t.Parallel()
	report(t, "FS-3", longer(1, 4), func(seed uint64) counts { return bitFlips(t, seed) })
}

// closedJournal returns a disk with a journal of three sessions and the records
// in it.
func closedJournal(t *testing.T, seed uint64) (*faulttest.Files, []batch.Record) {
	t.Helper()
	files := faulttest.NewFiles(seed)
	random := rand.New(rand.NewPCG(seed, 7))
	total := 0
	for life := range 3 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life)))
		require.NoError(t, err)
		for range 6 {
			n := 1 + random.IntN(2)
			mustAppend(t, j, makeBatch([]string{"readings", "events"}[random.IntN(2)], total, n))
			total += n
		}
		require.NoError(t, j.Close())
	}
	return files, contents(t, files)
}

// contents returns all records of a journal.
func contents(t *testing.T, files *faulttest.Files) []batch.Record {
	t.Helper()
	j, err := journal.Open(fakeConfig(files.Clone(), "reader"))
	require.NoError(t, err)
	defer j.Close()
	return follow(t, j, j.Oldest())
}

func bitFlips(t *testing.T, seed uint64) counts {
	random := rand.New(rand.NewPCG(seed, 8))
	files, want := closedJournal(t, seed)
	var out counts
	for _, name := range files.Names() {
		size := len(files.Bytes(name))
		for at := random.IntN(longer(7, 1)); at < size; at += 1 + longer(6, 0) {
			if strings.HasSuffix(name, "/mark") && at >= 64 && at < 4096 {
				continue // nothing is there
			}
			disk := files.Clone()
			disk.Flip(name, int64(at), uint(random.IntN(8)))
			out.faults++
			out.acked += len(want)
			one := openFlipped(t, disk, want, name, at)
			out.add(one)
		}
	}
	return out
}

func openFlipped(t *testing.T, disk *faulttest.Files, want []batch.Record, name string, at int) (out counts) {
	cfg := fakeConfig(disk, "reader")
	j, err := journal.Open(cfg)
	if err == nil {
		defer j.Close()
		compare(&out, j, want, fmt.Sprintf("%s at %d", name, at))
		return out
	}
	var damage *journal.CorruptionError
	if !errors.As(err, &damage) || damage.File != name {
		out.bad++
		out.wrong("%s at %d: %v", name, at, err)
		return out
	}
	if int64(at) < damage.Offset || damage.Offset > 0 && int64(at) > damage.Offset+400 {
		out.bad++
		out.wrong("%s at %d: the error names offset %d", name, at, damage.Offset)
	}
	out.add(acceptLoss(t, cfg, want, damage))
	return out
}

// compare counts what is not as it was.
func compare(out *counts, j *journal.Journal, want []batch.Record, where string) {
	c := j.Follow(j.Oldest(), batch.Part{})
	for i := range want {
		got, found, err := c.Next()
		switch {
		case err != nil:
			out.bad++
			out.wrong("%s: %v", where, err)
			return
		case !found:
			out.lost += len(want) - i
			out.wrong("%s: %d records are gone and no error said so", where, len(want)-i)
			return
		case got.Position != want[i].Position || got.Batch.Session != want[i].Batch.Session || got.Batch.FirstSeq != want[i].Batch.FirstSeq ||
			!reflect.DeepEqual(content(got.Batch), content(want[i].Batch)):
			out.lost++
			out.wrong("%s: record %d is another one", where, i)
		}
	}
}

// content returns all that a batch holds, in a form that can be compared.
func content(b *batch.Batch) []any {
	out := []any{b.Received.UnixNano()}
	for i := range uint32(b.Len()) {
		r := b.Row(i)
		out = append(out, *b.Series(r), r.Index, r.Size, b.Reading(i))
	}
	return out
}

// acceptLoss opens the journal without what cannot be read, twice.
func acceptLoss(t *testing.T, cfg journal.Config, want []batch.Record, damage *journal.CorruptionError) (out counts) {
	cfg.AcceptLoss = true
	for _, session := range []string{"acceptor", "later"} {
		cfg.Session = session
		j, err := journal.Open(cfg)
		if err != nil {
			out.bad++
			out.wrong("accept the loss: %v", err)
			return out
		}
		l := newLedger()
		l.next = 1000
		l.produce(j, 1, 1)
		kept := 0
		records, err := walk(j, j.Oldest())
		if err != nil {
			out.bad++
			out.wrong("follow: %v", err)
		}
		for _, r := range records {
			if strings.HasPrefix(r.Batch.Session, "life") {
				kept++
			}
		}
		least := len(want) - 1
		if damage.Offset == 0 {
			least = len(want) - 6
		}
		if kept < least {
			out.lost += least - kept
			out.wrong("%d of %d records are left after %v", kept, len(want), damage)
		}
		if session == "later" {
			if n := len(records) - kept; n != 2 {
				out.lost += 2 - n
				out.wrong("%d of 2 records are there that were appended after %v", n, damage)
			}
		}
		assert.NoError(t, j.Close())
		cfg.AcceptLoss = false
	}
	if cfg.Files.(*faulttest.Files).Bytes(damage.File+".corrupt") == nil {
		out.bad++
		out.wrong("no copy was kept of %s", damage.File)
	}
	return out
}

// FS-4: an fsync fails, once or from then on, and with it what it should have
// made durable; the power goes later.
func TestFS4FsyncFails(t *testing.T) {
	t.Parallel()
	report(t, "FS-4", longer(40, 2000), fsyncFails)
}

func fsyncFails(seed uint64) counts {
	random := rand.New(rand.NewPCG(seed, 5))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 3 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life)))
		if err != nil {
			out.bad++
			out.wrong("open: %v", err)
			return out
		}
		var producers, consumers sync.WaitGroup
		done := make(chan struct{})
		consumers.Go(func() { l.consume(j, seed, done) })
		healthy := 1 + random.IntN(20)
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, healthy) })
		}
		producers.Wait()
		times := 1
		if random.IntN(2) == 0 {
			times = -1
		}
		before := l.unknown
		files.FailSync(syscall.EIO, times)
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, 20) })
		}
		producers.Wait()
		if l.unknown > before && j.Err() == nil {
			out.bad++
			out.wrong("the journal takes more after a failed fsync")
		}
		out.faults += files.Failed()
		next := files.PowerCut()
		close(done)
		consumers.Wait()
		_ = j.Close()
		files = next
	}
	j, err := journal.Open(fakeConfig(files, "last"))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}

// FS-4, once more: after the failed fsync the daemon is started again, as its log
// asks for, clients repeat the requests that were not answered, and then the power
// fails.
func TestFS4FsyncFailsBeforeARestart(t *testing.T) {
	t.Parallel()
	report(t, "FS-4", longer(40, 2000), fsyncFailsBeforeARestart)
}

func fsyncFailsBeforeARestart(seed uint64) counts {
	random := rand.New(rand.NewPCG(seed, 10))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 3 {
		for _, restarted := range []bool{false, true} {
			j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d-%t", life, restarted)))
			if err != nil {
				out.bad++
				out.wrong("open: %v", err)
				return out
			}
			l.sendAgain(j)
			l.produce(j, seed, 1+random.IntN(20))
			if !restarted {
				files.FailSync(syscall.EIO, 1+random.IntN(2))
				for range 3 { // the mark's may be one of them
					l.produce(j, seed, 5)
				}
				out.faults += files.Failed()
			}
			files.FailSync(nil, 0)
			_ = j.Close()
		}
		files = files.PowerCut()
	}
	j, err := journal.Open(fakeConfig(files, "last"))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}

// FS-6: the journal's folder is removed while it is open, and another daemon
// starts in its place. A second later the first acknowledges nothing, and it leaves
// the other's files alone.
func TestFS6FolderRemoved(t *testing.T) {
	t.Parallel()
	report(t, "FS-6", longer(40, 1000), func(seed uint64) (out counts) {
		synctest.Test(t, func(*testing.T) { out = folderRemoved(seed) })
		return out
	})
}

func folderRemoved(seed uint64) (out counts) {
	random := rand.New(rand.NewPCG(seed, 11))
	files := faulttest.NewFiles(seed)
	first, err := journal.Open(fakeConfig(files, "first"))
	if err != nil {
		out.wrong("open: %v", err)
		out.bad++
		return out
	}
	before := newLedger()
	before.produce(first, seed, 1+random.IntN(60))
	files.RemoveAll()
	out.faults++
	if random.IntN(2) == 0 { // a second is what it may take
		<-time.After(time.Second + time.Millisecond)
	}
	second, err := journal.Open(fakeConfig(files, "second"))
	if err != nil {
		out.wrong("open in its place: %v", err)
		out.bad++
		return out
	}
	l := newLedger()
	l.produce(second, seed, 60)
	first.Trim(first.End()) // all of the first is stored by now
	<-time.After(time.Second + time.Millisecond)
	acked := len(before.acked)
	before.produce(first, seed, 30)
	if n := len(before.acked) - acked; n > 0 {
		out.lost += n
		out.wrong("%d readings are acknowledged a second after the folder was removed", n)
	}
	if first.Err() == nil {
		out.bad++
		out.wrong("the journal is ready without its folder")
	}
	_ = first.Close()
	l.produce(second, seed, 10)
	next := files.PowerCut()
	_ = second.Close() // on a dead disk
	j, err := journal.Open(fakeConfig(next, "last"))
	if err != nil {
		out.bad++
		out.wrong("open after the power cut: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}

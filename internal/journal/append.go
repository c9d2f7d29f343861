package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// busyTimeout is how long a request waits for those before it to be written.
const busyTimeout = 10 * time.Second

// Append takes all readings of b or none, as ingest.Journal says. It returns when
// they are durable here, or, if r.Want is Stored, when they are stored or
// StoredTimeout has passed; the receipt says which. In memory only stored readings
// are acknowledged: then the timeout is an error of kind UnknownOutcome, and the
// readings are still written.
func (j *Journal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j.cfg.Faults.At(fault.BeforeAppend)
	receipt, err := j.appendOnce(ctx, b, &r)
	if err != nil {
		j.metrics.refuse(err)
		j.logRefusal(err)
		return batch.Receipt{}, err
	}
	j.cfg.Faults.At(fault.AfterAck)
	return receipt, nil
}

func (j *Journal) appendOnce(ctx context.Context, b *batch.Batch, r *batch.Request) (batch.Receipt, error) {
	if j.cfg.Memory && r.Want != telemetry.Stored {
		return batch.Receipt{}, telemetry.Errorf(telemetry.Invalid, "ack_unavailable", "ack %s needs a journal, and this daemon has none; allowed is stored", r.Want)
	}
	if r.Key == "" || j.cfg.Faults.Off(fault.Keys) {
		return j.take(ctx, b, r, nil)
	}
	if len(r.Answer) > maxAnswer {
		return batch.Receipt{}, telemetry.Errorf(telemetry.TooLarge, "answer_too_large", "the answer to be kept with the Idempotency-Key has more than %d bytes", maxAnswer)
	}
	known, f, err := j.keys.begin(ctx, r, true)
	switch {
	case err != nil:
		return batch.Receipt{}, err
	case known != nil:
		return j.repeated(ctx, known, r)
	}
	receipt, err := j.take(ctx, b, r, f)
	return receipt, err
}

// Repeat implements ingest.Journal: it answers a request whose key is known as
// Append does, and never appends anything.
func (j *Journal) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	if j.cfg.Faults.Off(fault.Keys) {
		return batch.Receipt{}, nil
	}
	known, _, err := j.keys.begin(ctx, &r, false)
	if known == nil || err != nil {
		return batch.Receipt{}, err
	}
	return j.repeated(ctx, known, &r)
}

// repeated answers a request that was taken before.
func (j *Journal) repeated(ctx context.Context, known *keyEntry, r *batch.Request) (batch.Receipt, error) {
	receipt := batch.Receipt{Ack: telemetry.Journaled, Repeated: true, Answer: []byte(known.answer)}
	gone := j.gone.Load()
	if r.Want == telemetry.Stored || j.cfg.Memory || gone { // the latter keep nothing that is not stored
		stored, refused, w := j.keys.outcome(known)
		if !stored {
			// Without a waiter they are stored when everything before them is, too.
			var done <-chan struct{}
			if w != nil {
				done = w.done
			}
			stored = j.awaitStored(ctx, done, known.end)
			if w != nil {
				refused = w.result()
			}
		}
		receipt.Refused = refused
		switch {
		case stored:
			receipt.Ack = telemetry.Stored
		case j.cfg.Memory:
			return batch.Receipt{}, j.errUnstored(ctx, true)
		case gone:
			return batch.Receipt{}, errUnknownOutcome("the request was accepted before, but the journal's folder was removed or replaced, and its readings may not be stored", ErrGone)
		}
	}
	j.cfg.Faults.At(fault.BeforeAck)
	return receipt, nil
}

// take writes b. f is the flight of its key, or nil.
func (j *Journal) take(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (batch.Receipt, error) {
	e, written, err := j.enter(ctx, b, r, f)
	if err != nil {
		if f != nil {
			j.keys.failed(f, err)
		}
		return batch.Receipt{}, err
	}
	e.batch = nil // requests wait for seconds until their readings are stored
	if e.waiter != nil {
		defer j.leave(&e)
	}
	select {
	case <-written.done:
	case <-ctx.Done():
		select {
		case <-written.done:
		default: // what waits cannot be called back
			return batch.Receipt{}, errUnknownOutcome("the request ended before the readings were known to be journaled", ctx.Err())
		}
	}
	if written.err != nil {
		return batch.Receipt{}, written.err
	}
	receipt := batch.Receipt{Ack: telemetry.Journaled}
	if e.waiter != nil {
		if r.Journaled != nil {
			r.Journaled()
		}
		switch {
		case j.awaitStored(ctx, e.waiter.done, never):
			receipt.Ack = telemetry.Stored
		case j.cfg.Memory:
			return batch.Receipt{}, j.errUnstored(ctx, f != nil)
		}
		receipt.Refused = e.waiter.result()
	}
	j.cfg.Faults.At(fault.BeforeAck)
	return receipt, nil
}

// leave notes that a request waits no more for its readings.
func (j *Journal) leave(e *entry) {
	j.waiters.remove(e.position, e.waiter)
	if e.flight != nil {
		j.keys.leave(e.flight)
	}
}

// errUnstored tells a client what to do whose readings are in memory and not known
// to be stored.
func (j *Journal) errUnstored(ctx context.Context, keyed bool) error {
	advice := "repeating it may store them twice; an Idempotency-Key prevents that"
	if keyed {
		advice = "repeat it with the same Idempotency-Key"
	}
	if err := ctx.Err(); err != nil {
		return errUnknownOutcome("the request ended before the readings were known to be stored; "+advice, err)
	}
	return errUnknownOutcome(fmt.Sprintf("MongoDB did not confirm the request's readings within %v, they may be stored; %s", j.cfg.StoredTimeout, advice), nil)
}

// A commit is what one fsync makes durable: the records that gathered during the
// fsync before.
type commit struct {
	buf     []byte
	entries []entry
	written *outcome
	writing *writing // the session and settings of all its records
}

// An outcome is what the requests of a commit are told.
type outcome struct {
	done chan struct{}
	err  error // once done
}

// An entry is one record of a commit.
type entry struct {
	batch          *batch.Batch
	position, next uint64
	weight         int64
	flight         *flight
	waiter         *waiter
}

func newCommit() *commit { return &commit{written: &outcome{done: make(chan struct{})}} }

// enter encodes b and adds it to the pending commit.
func (j *Journal) enter(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (entry, *outcome, error) {
	if err := j.admit(b); err != nil {
		return entry{}, nil, err
	}
	b.SetGranularity(j.granularity)
	weight := min(b.MemorySize(), j.cfg.MaxWaiting)
	if err := j.acquire(ctx, weight); err != nil {
		return entry{}, nil, err
	}
	buf, _ := j.buffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxRecycled {
			j.buffers.Put(buf)
		}
	}()
	h := header{readings: uint32(b.Len())}
	var key *keyed
	if f != nil {
		h.flags, key = flagKey, &f.keyed
	}
	// A large record gets its buffer at once, since growing one leaves garbage.
	if most := headerSize + int(b.MemorySize()); most > maxRecycled && cap(*buf) < most {
		*buf = make([]byte, 0, most)
	}
	var space [headerSize]byte
	record := appendPayload(append((*buf)[:0], space[:]...), b, key)
	*buf = record
	payload, size := record[headerSize:], int64(len(record))
	if len(payload) > maxPayload || size > j.cfg.MaxBytes/2 {
		j.limiter.Release(weight)
		return entry{}, nil, telemetry.Errorf(telemetry.TooLarge, "body_too_large",
			"the request takes %d bytes in the journal; it may take half of the journal's %d (%s)", size, j.cfg.MaxBytes, j.cfg.limitFlag())
	}
	h.length, h.crc = uint32(len(payload)), checksum(0, payload)
	if err := j.space.reserve(j.cfg.Now(), size); err != nil {
		j.limiter.Release(weight)
		return entry{}, nil, errDiskFull(err)
	}
	e := entry{batch: b, flight: f, weight: weight}
	if r.Want == telemetry.Stored {
		e.waiter = newWaiter(b.Len())
		b.Tracker = e.waiter
		if f != nil {
			f.waiter = e.waiter
		}
	}
	written, err := j.place(&e, &h, record)
	if err != nil {
		j.limiter.Release(weight)
		j.space.release(size)
		return entry{}, nil, err
	}
	j.logRoom()
	return e, written, nil
}

// admit checks that the batch can be taken now.
func (j *Journal) admit(b *batch.Batch) error {
	checked := ""
	for i := range b.SeriesLen() {
		name := b.SeriesAt(i).Stream
		if name == checked {
			continue
		}
		if _, ok := j.cfg.Streams[name]; !ok {
			return telemetry.Errorf(telemetry.NotFound, "stream_unknown", "stream %s does not exist", telemetry.Quote([]byte(name)))
		}
		checked = name
		if j.cfg.Admit == nil {
			continue
		}
		if err := j.cfg.Admit(name); err != nil {
			return unavailable(codeAway, "MongoDB does not answer, and without a journal nothing can be taken", err)
		}
	}
	if err := j.space.check(j.cfg.Now()); err != nil {
		return errDiskFull(err)
	}
	return nil
}

// acquire waits until the batches before it have left enough memory.
func (j *Journal) acquire(ctx context.Context, weight int64) error {
	if j.limiter.TryAcquire(weight) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	if err := j.limiter.Acquire(ctx, weight); err != nil {
		return unavailable(codeBusy, "the journal's disk is slower than the readings arrive; nothing was taken", err)
	}
	return nil
}

// place is the critical section: the record gets its sequences and its position,
// and stands in the pending commit when it ends.
func (j *Journal) place(e *entry, h *header, record []byte) (*outcome, error) {
	drawn := uint64(0)
	if j.cfg.Faults.Off(fault.Order) {
		drawn = j.drawEarly(uint64(h.readings))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	size := int64(len(record))
	switch {
	case j.failed != nil:
		return nil, j.failed
	case j.stopping:
		return nil, errStopping()
	case j.full(size):
		j.wanted.Store(size)
		return nil, j.errFull()
	}
	j.watchClock()
	h.firstSeq = drawn
	if drawn == 0 {
		h.firstSeq = j.nextSeq
		j.nextSeq += uint64(h.readings)
	}
	h.position = j.nextPos
	h.durable = j.End()
	h.put(record, j.writing.seed)
	e.batch.Session, e.batch.FirstSeq = j.writing.Session, h.firstSeq
	e.position, e.next = h.position, h.next()
	j.nextPos = e.next
	j.wanted.Store(0) // requests of this size are taken again
	j.bytes.Add(size)
	if e.waiter != nil {
		j.waiters.add(e.position, e.waiter)
	}
	if int64(len(j.pending.buf))+size > j.cfg.SegmentBytes {
		j.closePending() // a commit is in one segment
	}
	c := j.pending
	if len(c.entries) == 0 {
		signal(j.wake)
	}
	c.writing = j.writing
	c.buf = append(c.buf, record...)
	c.entries = append(c.entries, *e)
	return c.written, nil
}

// full reports whether n more bytes are too many.
func (j *Journal) full(n int64) bool {
	held := j.bytes.Load() + n
	return !j.cfg.Faults.Off(fault.Limit) && (held > j.cfg.MaxBytes || held == j.cfg.MaxBytes && n == 0)
}

// drawEarly is the sabotage of fault.Order: it draws the sequences before the
// position, and every other time lets another request go first.
func (j *Journal) drawEarly(n uint64) uint64 {
	j.mu.Lock()
	drawn, before := j.nextSeq, j.nextPos
	j.nextSeq += n
	j.mu.Unlock()
	for i, overtaken := 0, drawn%2 == 0; i < 1000 && !overtaken; i++ {
		runtime.Gosched()
		j.mu.Lock()
		overtaken = j.nextPos != before
		j.mu.Unlock()
	}
	return drawn
}

// maxRecycled is the size of the largest buffer that is kept.
const maxRecycled = 1 << 20

// commitLoop writes what is pending until the journal is closed.
func (j *Journal) commitLoop() {
	for range j.wake {
		c, ending := j.nextCommit()
		for ; c != nil; c, ending = j.nextCommit() {
			j.commit(c)
			clear(c.entries)
			c.buf, c.entries, c.written = c.buf[:0], c.entries[:0], &outcome{done: make(chan struct{})}
			if cap(c.buf) > 2*maxRecycled {
				c.buf = nil
			}
			j.mu.Lock()
			j.spare = c
			j.mu.Unlock()
			signal(j.tidy)
		}
		if ending {
			return
		}
	}
}

// nextCommit takes the oldest commit; nil if nothing is pending. When ending is
// true nothing more will come.
func (j *Journal) nextCommit() (c *commit, ending bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.filled) == 0 {
		j.closePending()
	}
	if len(j.filled) > 0 {
		c = j.filled[0]
		j.filled = j.filled[1:]
	}
	return c, j.ending
}

// takeAll takes all commits that wait, in order.
func (j *Journal) takeAll() []*commit {
	j.closePending()
	all := j.filled
	j.filled = nil
	return all
}

// closePending replaces the pending commit by an empty one if it has records.
func (j *Journal) closePending() {
	if len(j.pending.entries) == 0 {
		return
	}
	j.filled = append(j.filled, j.pending)
	if j.pending, j.spare = j.spare, nil; j.pending == nil {
		j.pending = newCommit()
	}
}

// commit makes c durable and answers its requests.
func (j *Journal) commit(c *commit) {
	faults := j.cfg.Faults
	defer j.space.release(int64(len(c.buf)))
	if faults.Off(fault.Fsync) {
		j.publish(c)
		if err := j.write(c); err != nil {
			j.fail(errFailed(fmt.Errorf("write the journal: %w", err)))
		}
		j.endFullSegment()
		return
	}
	if err := j.write(c); err != nil {
		j.writeFailed(c, err)
		return
	}
	faults.At(fault.AfterAppend)
	faults.At(fault.BeforeFsync)
	begin := time.Now()
	if err := j.activeFile.Sync(); err != nil && !faults.Off(fault.StopOnFsync) {
		// It is unknown what the file holds now, and another fsync would not tell.
		err = fmt.Errorf("sync journal segment %s: %w", j.active.name, err)
		j.fail(errFailed(err))
		j.refuse(c, errUnknownOutcome("the journal's disk did not confirm the readings; they may be stored after a restart", err))
		return
	}
	if j.gone.Load() {
		j.published.add(c.entries) // they are still in memory, so they can be stored
		j.refuse(c, errUnknownOutcome("the journal's folder was removed or replaced; the readings may be stored", ErrGone))
		return
	}
	if !j.cfg.Memory {
		j.metrics.fsync.Observe(time.Since(begin).Seconds())
		j.metrics.requests.Observe(float64(len(c.entries)))
	}
	faults.At(fault.AfterFsync)
	j.logWritten()
	j.publish(c)
	j.endFullSegment()
}

// write writes c behind the last record, in a new segment if necessary.
func (j *Journal) write(c *commit) error {
	from, to := c.entries[0].position, c.entries[len(c.entries)-1].next
	a := j.active
	if a == nil || a.settings.Session != c.writing.Session || a.end > a.base && a.size+int64(len(c.buf)) > j.cfg.SegmentBytes {
		if !j.hasFolder() { // a file that is closed now could not be opened again
			return ErrGone
		}
		if a != nil {
			j.endSegment()
		}
		// Everything in earlier segments is durable by now; a start relies on that.
		seg, f, err := createSegment(j.cfg.Files, j.cfg.Dir, from, c.writing.settings)
		if err != nil {
			return fmt.Errorf("create a journal segment: %w", err)
		}
		seg.open = true
		j.bytes.Add(seg.size)
		j.segMu.Lock()
		j.active, j.activeFile = seg, f
		j.segments = append(j.segments, seg)
		j.segMu.Unlock()
		a = seg
	}
	if _, err := j.activeFile.WriteAt(c.buf, a.offset(from)); err != nil {
		return fmt.Errorf("write journal segment %s: %w", a.name, err)
	}
	if j.cfg.Memory {
		j.countUnstored(c)
	}
	j.segMu.Lock()
	a.end, a.size = to, a.offset(to)
	j.segMu.Unlock()
	return nil
}

// countUnstored has the keeper delete the segment when all its readings are stored,
// whatever comes before it: one bucket that cannot be written must not fill memory.
func (j *Journal) countUnstored(c *commit) {
	a := j.active
	a.unstored.Add(int64(len(c.entries)))
	for i := range c.entries {
		c.entries[i].waiter.whenStored(func() {
			if a.unstored.Add(-1) == 0 {
				signal(j.tidy)
			}
		})
	}
}

// endSegment closes the active segment, so that the keeper may delete it. One
// without records is removed from the list: the next one has its name.
func (j *Journal) endSegment() {
	a := j.active
	if err := j.activeFile.Close(); err != nil {
		j.cfg.Logger.Warn("close a journal segment", "segment", a.name, "err", err)
	}
	j.segMu.Lock()
	defer j.segMu.Unlock()
	a.open = false
	j.active, j.activeFile = nil, nil
	if a.end == a.base {
		j.bytes.Add(-a.size)
		j.segments = slices.DeleteFunc(j.segments, func(s *segment) bool { return s == a })
	}
}

// endFullSegment closes the active segment once it has its size, so that it can be
// deleted without waiting for the next request. Hence what is left when everything
// is stored is less than half of MaxBytes, and any request has room beside it.
func (j *Journal) endFullSegment() {
	if a := j.active; a != nil && a.end > a.base && a.size >= j.cfg.SegmentBytes && j.hasFolder() {
		j.endSegment()
	}
}

// publish lets the records of a commit be followed, and answers its requests.
func (j *Journal) publish(c *commit) {
	for i := range c.entries {
		if e := &c.entries[i]; e.flight != nil {
			j.keys.landed(e.flight, e.next)
		}
	}
	j.published.add(c.entries)
	j.finish(c, nil)
}

// refuse answers the requests of a commit with an error.
func (j *Journal) refuse(c *commit, err error) {
	for i := range c.entries {
		if e := &c.entries[i]; e.flight != nil {
			j.keys.failed(e.flight, err)
		}
	}
	j.finish(c, err)
}

func (j *Journal) finish(c *commit, err error) {
	weight := int64(0)
	for i := range c.entries {
		weight += c.entries[i].weight
	}
	j.limiter.Release(weight)
	c.written.err = err
	close(c.written.done)
}

// writeFailed undoes a failed write. If that works, nothing of c nor of the commits
// behind it was taken, and the next request may try again.
func (j *Journal) writeFailed(c *commit, cause error) {
	if errors.Is(cause, ErrGone) {
		j.refuse(c, errGone(cause))
		return
	}
	if err := j.undo(c); err != nil {
		j.fail(errFailed(err))
		j.refuse(c, errUnknownOutcome("the journal could not be written; the readings may be stored after a restart", errors.Join(cause, err)))
		return
	}
	j.logDiskFull(cause)
	j.mu.Lock()
	behind := j.takeAll()
	j.nextPos = c.entries[0].position
	j.mu.Unlock()
	for _, one := range behind {
		j.space.release(int64(len(one.buf)))
	}
	for _, one := range append([]*commit{c}, behind...) {
		j.bytes.Add(-int64(len(one.buf)))
		j.refuse(one, errDiskFull(cause))
	}
}

func (j *Journal) undo(c *commit) error {
	a := j.active
	if a == nil || a.end != c.entries[0].position {
		return nil // not even the segment was made
	}
	if err := j.activeFile.Truncate(a.offset(a.end)); err != nil {
		return fmt.Errorf("truncate journal segment %s: %w", a.name, err)
	}
	if err := j.activeFile.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", a.name, err)
	}
	return nil
}

// fail stops the journal for good. Waiting and later requests get the refusal.
func (j *Journal) fail(refusal *telemetry.Error) {
	j.mu.Lock()
	j.failed = refusal
	behind := j.takeAll()
	j.mu.Unlock()
	j.cfg.Logger.Error("the journal failed; no readings are accepted until the daemon is restarted", "dir", j.cfg.Dir, "err", refusal)
	for _, one := range behind {
		j.refuse(one, refusal)
	}
}

// logRefusal logs once that requests begin to be refused because something is full.
func (j *Journal) logRefusal(err error) {
	var e *telemetry.Error
	if !errors.As(err, &e) {
		return
	}
	switch {
	case (e.Code == codeFull || e.Code == codeQueue) && j.full(j.wanted.Load()):
		if j.limitHit.CompareAndSwap(false, true) {
			j.cfg.Logger.Warn("the journal is full; requests are refused until MongoDB has stored some of it", "dir", j.cfg.Dir,
				"bytes", j.bytes.Load(), "max_bytes", j.cfg.MaxBytes)
		}
	case e.Code == codeDiskFull && j.space.isFull():
		j.logDiskFull(e.Err)
	}
}

// logRoom logs once that the last refused request would be taken, and some more, so
// that small requests between refused ones are not logged.
func (j *Journal) logRoom() {
	if j.limitHit.Load() && !j.full(max(j.wanted.Load(), j.cfg.MaxBytes/16)) && j.limitHit.CompareAndSwap(true, false) {
		j.cfg.Logger.Info("the journal has room again; requests are taken", "dir", j.cfg.Dir, "bytes", j.bytes.Load(), "max_bytes", j.cfg.MaxBytes)
	}
}

func (j *Journal) logDiskFull(cause error) {
	if j.diskHit.CompareAndSwap(false, true) {
		j.cfg.Logger.Warn("the journal's disk is full or cannot be written; requests are refused", "dir", j.cfg.Dir, "err", cause)
	}
}

// logWritten logs the first commit after the disk was full.
func (j *Journal) logWritten() {
	if j.diskHit.Load() && !j.space.isFull() && j.diskHit.CompareAndSwap(true, false) {
		j.cfg.Logger.Info("the journal's disk has room again; requests are taken", "dir", j.cfg.Dir)
	}
}

// diskReserve stays free, so that what was taken can be written and segments can
// still be deleted.
const diskReserve = 16 << 20

// space knows how much may be written to the disk. It asks now and then, and
// counts in between.
type space struct {
	files Files
	dir   string
	most  uint64 // of the reserve

	mu      sync.Mutex
	asked   time.Time
	limited bool   // the last answer is known
	room    int64  // beside the reserve, less what was reserved since the last answer
	step    int64  // that may be reserved before it asks again
	spent   int64  // reserved since the last answer
	waiting int64  // reserved and not written, so the disk does not count it yet
	full    bool   // nothing may be reserved until there is room for a step
	free    uint64 // the last answer
	kept    uint64 // the reserve, of that
}

// reserve takes n bytes that are about to be written, or says why they should not
// be. They are given back by release.
func (s *space) reserve(now time.Time, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.asked); age < 0 || age >= time.Second || s.spent > s.step || s.limited && s.room < s.need(n) && s.spent > 0 {
		s.ask(now)
	}
	if s.limited && s.room < s.need(n) {
		s.full = s.full || s.room < s.step
		return fmt.Errorf("%s has %d bytes free, %d of which are kept in reserve", s.dir, s.free, s.kept)
	}
	s.waiting += n
	if s.limited {
		s.full = false
		s.room -= n
		s.spent += n
	}
	return nil
}

// need returns the room without which n bytes are refused. A disk that was full
// must have room for a step, so that it does not change its mind all the time.
func (s *space) need(n int64) int64 {
	if s.full {
		return max(n, s.step)
	}
	return n
}

// check says why nothing should be written.
func (s *space) check(now time.Time) error { return s.reserve(now, 0) }

func (s *space) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// release says that reserved bytes are written, or never will be.
func (s *space) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= n
}

func (s *space) ask(now time.Time) {
	s.asked, s.spent = now, 0
	free, total, err := s.files.Space(s.dir)
	s.limited = err == nil && total > 0 // otherwise the write will tell
	if !s.limited {
		s.full = false
		return
	}
	// A sixteenth of a small disk is reserve enough.
	s.free, s.kept = free, min(s.most, total/16)
	s.room = int64(min(free, 1<<62)) - int64(s.kept) - s.waiting
	s.step = int64(s.kept / 4)
}

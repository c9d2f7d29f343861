package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Append implements ingest.Journal: it accepts all readings of b or none. It returns when they
// are durable in the journal, or, if r.Want is Stored, when they are stored or StoredTimeout
// has passed; the receipt says which. A journal in memory acknowledges only stored readings:
// there the timeout is an error of kind UnknownOutcome, and the readings are still written.
func (j *Journal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (receipt batch.Receipt, err error) {
	defer func() { j.note(err) }()
	if j.cfg.Memory && r.Want != telemetry.Stored {
		return batch.Receipt{}, telemetry.Errorf(telemetry.Invalid, "ack_unavailable", "ack %s needs a journal, and this daemon has none; allowed: stored", r.Want)
	}
	if r.Key == "" {
		return j.take(ctx, b, &r, nil)
	}
	if len(r.Answer) > maxAnswer {
		return batch.Receipt{}, telemetry.Errorf(telemetry.TooLarge, "answer_too_large", "the answer to be kept with the Idempotency-Key has more than %d bytes", maxAnswer)
	}
	known, f, err := j.keys.begin(ctx, &r, true)
	switch {
	case err != nil:
		return batch.Receipt{}, err
	case known != nil:
		if r.Memory != nil {
			r.Memory.Release()
		}
		return j.repeated(ctx, known, &r)
	}
	return j.take(ctx, b, &r, f)
}

// Repeat implements ingest.Journal: if the key of the request is known, it answers like Append,
// but it never appends anything.
func (j *Journal) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	known, _, err := j.keys.begin(ctx, &r, false)
	if known == nil || err != nil {
		return batch.Receipt{}, err
	}
	return j.repeated(ctx, known, &r)
}

// repeated returns the receipt of a request that was accepted before.
func (j *Journal) repeated(ctx context.Context, known *keyEntry, r *batch.Request) (batch.Receipt, error) {
	receipt := batch.Receipt{Ack: telemetry.Journaled, Repeated: true, Answer: []byte(known.answer)}
	gone := j.gone.Load()
	if r.Want != telemetry.Stored && !j.cfg.Memory && !gone { // in memory or without the folder, readings are only safe when stored
		return receipt, nil
	}
	stored := known.stored || j.awaitStored(ctx, known.waiter, known.end)
	if w := known.waiter; w != nil {
		receipt.Refused = w.result()
	}
	switch {
	case stored:
		receipt.Ack = telemetry.Stored
	case j.cfg.Memory:
		return batch.Receipt{}, j.errUnstored(ctx, true)
	case gone:
		return batch.Receipt{}, errUnknownOutcome("the request was accepted before, but the journal's folder was removed or replaced, and its readings may not be stored", ErrGone)
	}
	return receipt, nil
}

// take appends b, and waits as the request wants. f is the flight of its key, or nil.
func (j *Journal) take(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (batch.Receipt, error) {
	var w *waiter // has no reference to the batch, since a request may wait for seconds
	if r.Want == telemetry.Stored {
		w = newWaiter(b.Len())
		b.Tracker = w
	}
	c, position, err := j.enter(b, f, w)
	if err != nil {
		j.keys.end(f, 0, err)
		return batch.Receipt{}, err
	}
	if w != nil {
		defer j.waiters.CompareAndDelete(position, w) // after a failed write, another record may have the position
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default: // the pending record cannot be withdrawn
			if r.Memory != nil {
				r.Memory.ReleaseAfter(c.done)
			}
			return batch.Receipt{}, errUnknownOutcome("the request ended before the readings were known to be journaled", ctx.Err())
		}
	}
	switch {
	case c.err != nil:
		return batch.Receipt{}, c.err
	case w == nil:
		return batch.Receipt{Ack: telemetry.Journaled}, nil
	}
	if r.Memory != nil {
		r.Memory.Release()
	}
	ack := telemetry.Journaled
	switch {
	case j.awaitStored(ctx, w, never):
		ack = telemetry.Stored
	case j.cfg.Memory:
		return batch.Receipt{}, j.errUnstored(ctx, f != nil)
	}
	return batch.Receipt{Ack: ack, Refused: w.result()}, nil
}

// errUnstored is the error for a client whose readings are in memory and not known to be
// stored.
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

// A commit has the records that one fsync makes durable: those that arrived during the previous
// fsync. All of them are in one segment.
type commit struct {
	buf     []byte
	entries []entry
	writing *writing // the session and settings of its records
	done    chan struct{}
	err     error // once done
}

// An entry is one record of a commit.
type entry struct {
	batch          *batch.Batch
	position, next uint64
	flight         *flight
	waiter         *waiter
}

// enter encodes b and adds it to the pending commit. The memory of pending records is bounded,
// because each request holds Request.Memory until it is journaled, even if its client is gone.
func (j *Journal) enter(b *batch.Batch, f *flight, w *waiter) (c *commit, position uint64, err error) {
	if err := j.admit(b); err != nil {
		return nil, 0, err
	}
	b.SetGranularity(j.granularity)
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
		f.waiter = w
	}
	// The buffer of a large record is allocated at once, since growing it creates garbage.
	if size := headerSize + int(b.MemorySize()); size > maxRecycled && cap(*buf) < size {
		*buf = make([]byte, 0, size)
	}
	var head [headerSize]byte
	record := appendPayload(append((*buf)[:0], head[:]...), b, key)
	*buf = record
	payload, size := record[headerSize:], int64(len(record))
	if len(payload) > maxPayload || size > j.cfg.MaxBytes/2 {
		return nil, 0, telemetry.Errorf(telemetry.TooLarge, "body_too_large",
			"the request takes %d bytes in the journal; it may take half of the journal's %d (%s)", size, j.cfg.MaxBytes, j.cfg.limitFlag())
	}
	h.length, h.crc = uint32(len(payload)), checksum(0, payload)
	e := entry{batch: b, flight: f, waiter: w}
	if c, err = j.place(&e, &h, record); err != nil {
		return nil, 0, err
	}
	return c, e.position, nil
}

// admit checks that the batch can be accepted now.
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
			return j.refusal(codeAway, err)
		}
	}
	if err := j.space.take(j.cfg.Now(), 0); err != nil {
		return j.refusal(codeDiskFull, err)
	}
	return nil
}

// place is the critical section: it assigns the sequences and the position of the record, and
// adds the record to the pending commit.
func (j *Journal) place(e *entry, h *header, record []byte) (*commit, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	size := int64(len(record))
	switch {
	case j.ended != nil:
		return nil, j.ended
	case j.full(size):
		j.wanted.Store(size)
		return nil, j.errFull()
	}
	j.watchClock()
	h.firstSeq = j.nextSeq
	j.nextSeq += uint64(h.readings)
	h.position = j.nextPos
	h.durable = j.End()
	h.put(record, j.writing.seed)
	e.batch.Session, e.batch.FirstSeq = j.writing.Session, h.firstSeq
	e.position, e.next = h.position, h.next()
	j.nextPos = e.next
	j.wanted.Store(0)
	j.bytes.Add(size)
	if e.waiter != nil {
		j.waiters.Store(e.position, e.waiter)
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
	return c, nil
}

// full reports whether the journal has no space for n more bytes.
func (j *Journal) full(n int64) bool {
	held := j.bytes.Load() + n
	return held > j.cfg.MaxBytes || held == j.cfg.MaxBytes && n == 0
}

// maxRecycled is the size of the largest buffer that is kept.
const maxRecycled = 1 << 20

// commitLoop writes what is pending until the journal is closed.
func (j *Journal) commitLoop() {
	for range j.wake {
		for {
			c, ending := j.nextCommit()
			if c == nil && ending {
				return
			}
			if c == nil {
				break
			}
			j.commit(c)
			j.recycle(c)
			signal(j.tidy)
		}
	}
}

// nextCommit removes the oldest commit from the queue; nil if nothing is pending. If ending is
// true, there will be no further ones.
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

// closePending queues the pending commit, if it has records, and begins another one.
func (j *Journal) closePending() {
	if len(j.pending.entries) == 0 {
		return
	}
	j.filled = append(j.filled, j.pending)
	j.pending = &commit{buf: j.spare.buf, entries: j.spare.entries, done: make(chan struct{})}
	j.spare = commit{}
}

// recycle keeps the buffers of a commit for a later one.
func (j *Journal) recycle(c *commit) {
	clear(c.entries)
	spare := commit{buf: c.buf[:0], entries: c.entries[:0]}
	if cap(spare.buf) > 2*maxRecycled {
		spare.buf = nil
	}
	c.buf, c.entries = nil, nil // its requests only read the outcome
	j.mu.Lock()
	j.spare = spare
	j.mu.Unlock()
}

// commit makes c durable and answers its requests.
func (j *Journal) commit(c *commit) {
	if err := j.space.take(j.cfg.Now(), int64(len(c.buf))); err != nil {
		j.rollBack(c, err)
		return
	}
	if err := j.write(c); err != nil {
		j.writeFailed(c, err)
		return
	}
	begin := time.Now()
	if err := j.active.file.Sync(); err != nil {
		// The contents of the file are unknown now, and another fsync would not tell.
		err = fmt.Errorf("sync journal segment %s: %w", j.active.name, err)
		j.fail(codeFailed, err)
		j.answer(c, errUnknownOutcome("the journal's disk did not confirm the readings; they may be stored after a restart", err))
		return
	}
	if j.gone.Load() {
		j.published.add(c.entries) // they are still in memory, so they can be stored
		j.answer(c, errUnknownOutcome("the journal's folder was removed or replaced; the readings may be stored", ErrGone))
		return
	}
	if !j.cfg.Memory {
		j.metrics.fsync.Observe(time.Since(begin).Seconds())
		j.metrics.requests.Observe(float64(len(c.entries)))
	}
	j.answer(c, nil)
	j.endFullSegment()
}

// write writes c after the last record, in a new segment if necessary.
func (j *Journal) write(c *commit) error {
	from, to := c.entries[0].position, c.entries[len(c.entries)-1].next
	a := j.active
	if a == nil || a.settings.Session != c.writing.Session || a.end > a.base && a.size+int64(len(c.buf)) > j.cfg.SegmentBytes {
		if !j.hasFolder() {
			return ErrGone
		}
		if a != nil {
			j.endSegment()
		}
		// Everything in earlier segments is durable by now. Recovery relies on that.
		var err error
		if a, err = createSegment(j.cfg.Files, j.cfg.Dir, from, c.writing.settings); err != nil {
			return fmt.Errorf("create a journal segment: %w", err)
		}
		j.bytes.Add(a.size)
		j.segMu.Lock()
		j.active = a
		j.segments = append(j.segments, a)
		j.segMu.Unlock()
	}
	if _, err := a.file.WriteAt(c.buf, a.offset(from)); err != nil {
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

// countUnstored lets maintain delete the segment when all its readings are stored, even if
// earlier ones are not: a bucket that cannot be written must not fill the memory.
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

// endSegment ends the active segment, so that maintain may delete it. A segment without records
// is removed from the list, because the next one has the same name.
func (j *Journal) endSegment() {
	a := j.active
	j.segMu.Lock()
	defer j.segMu.Unlock()
	j.active = nil
	if a.end == a.base {
		j.bytes.Add(-a.size)
		j.segments = slices.DeleteFunc(j.segments, func(s *segment) bool { return s == a })
		if err := a.close(); err != nil {
			j.cfg.Logger.Warn("close a journal segment", "segment", a.name, "err", err)
		}
	}
}

// endFullSegment ends the active segment when it is full, so that it can be deleted without
// waiting for the next request. So when everything is stored, the journal has less than half of
// MaxBytes, which leaves space for any request.
func (j *Journal) endFullSegment() {
	if a := j.active; a != nil && a.end > a.base && a.size >= j.cfg.SegmentBytes {
		j.endSegment()
	}
}

// answer answers the requests of a commit. Without an error, it makes the records visible to
// cursors first.
func (j *Journal) answer(c *commit, err error) {
	for i := range c.entries {
		j.keys.end(c.entries[i].flight, c.entries[i].next, err)
	}
	if err == nil {
		j.published.add(c.entries)
	}
	c.err = err
	close(c.done)
}

// writeFailed undoes a failed write. If that works, the next request may try again.
func (j *Journal) writeFailed(c *commit, cause error) {
	if errors.Is(cause, ErrGone) {
		j.answer(c, j.refusal(codeGone, cause))
		return
	}
	if err := j.undo(c); err != nil {
		j.fail(codeFailed, err)
		j.answer(c, errUnknownOutcome("the journal could not be written; the readings may be stored after a restart", errors.Join(cause, err)))
		return
	}
	j.rollBack(c, cause)
}

// rollBack refuses an unwritten commit and those after it, and releases their positions.
func (j *Journal) rollBack(c *commit, cause error) {
	j.mu.Lock()
	j.closePending()
	later := j.filled
	j.filled, j.nextPos = nil, c.entries[0].position
	j.mu.Unlock()
	for _, one := range append([]*commit{c}, later...) {
		j.bytes.Add(-int64(len(one.buf)))
		j.answer(one, j.refusal(codeDiskFull, cause))
	}
}

func (j *Journal) undo(c *commit) error {
	a := j.active
	if a == nil || a.end != c.entries[0].position {
		return nil // the segment was not created
	}
	if err := a.file.Truncate(a.offset(a.end)); err != nil {
		return fmt.Errorf("truncate journal segment %s: %w", a.name, err)
	}
	if err := a.file.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", a.name, err)
	}
	return nil
}

// fail stops the journal permanently. Pending and later requests get the refusal.
func (j *Journal) fail(code string, cause error) {
	refusal := j.refusal(code, cause)
	j.mu.Lock()
	j.ended = refusal
	j.closePending()
	pending := j.filled
	j.filled = nil
	j.mu.Unlock()
	j.cfg.Logger.Error("the journal failed; no readings are accepted until the daemon is restarted", "dir", j.cfg.Dir, "err", refusal)
	for _, one := range pending {
		j.answer(one, refusal)
	}
}

// diskReserve is kept free, so that keys and marks can be written and segments deleted.
const diskReserve = 80 << 20

// space says whether the disk is full.
type space struct {
	files      Files
	dir        string
	maxReserve uint64

	mu          sync.Mutex
	asked       time.Time
	free, total uint64 // the last answer; 0: unknown
	full        bool
}

// take returns an error if the disk has no room for n more bytes. Without any, an answer of the
// last second is good enough. A disk that was full must have some more room, so that the state
// does not alternate.
func (s *space) take(now time.Time, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.asked); n > 0 || age < 0 || age >= time.Second {
		s.asked = now
		var err error
		if s.free, s.total, err = s.files.Space(s.dir); err != nil {
			s.total = 0 // writes will fail when it is full
		}
	}
	// A sixteenth of a small disk is enough.
	reserve := min(s.maxReserve, s.total/16)
	need := reserve + uint64(n)
	if s.full {
		need += reserve / 4
	}
	if s.full = s.total > 0 && s.free < need; s.full {
		return fmt.Errorf("%s has %d bytes free and needs %d, including a reserve of %d", s.dir, s.free, need, reserve)
	}
	return nil
}

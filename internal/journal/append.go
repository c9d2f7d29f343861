package journal

import (
	"context"
	"runtime"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// busyTimeout is how long a request waits for others to get to the disk.
const busyTimeout = 10 * time.Second

// Append takes all readings of b, or none, as ingest.Journal says. It returns
// when they are durable here, or, if r.Want is Stored, when they are at rest in
// the store or StoredTimeout has passed; the receipt tells which.
func (j *Journal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j.cfg.Faults.At(fault.BeforeAppend)
	receipt, err := j.appendOnce(ctx, b, &r)
	if err != nil {
		j.metrics.refuse(err)
		j.tellRefused(err)
		return batch.Receipt{}, err
	}
	j.cfg.Faults.At(fault.AfterAck)
	return receipt, nil
}

func (j *Journal) appendOnce(ctx context.Context, b *batch.Batch, r *batch.Request) (batch.Receipt, error) {
	if r.Key == "" || j.cfg.Faults.Off(fault.Keys) {
		return j.take(ctx, b, r, nil)
	}
	if len(r.Answer) > maxAnswer {
		return batch.Receipt{}, telemetry.Errorf(telemetry.TooLarge, "answer_too_large", "the answer to be kept with the Idempotency-Key has more than %d bytes", maxAnswer)
	}
	return j.keys.once(ctx, r,
		func(f *flight) (batch.Receipt, error) { return j.take(ctx, b, r, f) },
		func(known *keyEntry) (batch.Receipt, error) { return j.repeated(ctx, known, r) })
}

// Repeat implements ingest.Journal: it answers a request whose key is known, as
// Append does, and never appends anything.
func (j *Journal) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	if j.cfg.Faults.Off(fault.Keys) {
		return batch.Receipt{}, nil
	}
	return j.keys.once(ctx, &r, nil, func(known *keyEntry) (batch.Receipt, error) { return j.repeated(ctx, known, &r) })
}

// repeated answers a request that was taken before.
func (j *Journal) repeated(ctx context.Context, known *keyEntry, r *batch.Request) (batch.Receipt, error) {
	receipt := batch.Receipt{Ack: telemetry.Journaled, Repeated: true, Answer: []byte(known.answer)}
	gone := j.gone.Load()
	if r.Want == telemetry.Stored || gone { // without the folder, only stored readings count
		refused, stored := repetition{j.keys, &j.progress, j.patience()}.wait(ctx, known)
		if receipt.Refused = refused; stored {
			receipt.Ack = telemetry.Stored
		} else if gone {
			return batch.Receipt{}, errUnknownOutcome("the request was accepted before, but the journal's folder was removed or replaced, and its readings may not be stored", ErrGone)
		}
	}
	j.cfg.Faults.At(fault.BeforeAck)
	return receipt, nil
}

func (j *Journal) patience() patience {
	return patience{timeout: j.cfg.StoredTimeout, closed: j.closed}
}

// take brings b to the disk. f is the flight of its key, or nil.
func (j *Journal) take(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (batch.Receipt, error) {
	e, result, err := j.enter(ctx, b, r, f)
	if err != nil {
		if f != nil {
			j.keys.failed(f, err)
		}
		return batch.Receipt{}, err
	}
	e.batch = nil // is the commit's: requests wait for seconds until their readings are stored
	select {
	case <-result.done:
	case <-ctx.Done():
		// What waits is on its way and cannot be called back.
		select {
		case <-result.done:
		default:
			if e.waiter != nil {
				j.leave(&e)
			}
			return batch.Receipt{}, errUnknownOutcome("the request ended before the readings were known to be journaled", ctx.Err())
		}
	}
	receipt := batch.Receipt{Ack: telemetry.Journaled}
	if e.waiter != nil {
		if r.Journaled != nil {
			r.Journaled()
		}
		if result.err == nil && j.patience().wait(ctx, e.waiter.done) {
			receipt.Ack = telemetry.Stored
		}
		j.leave(&e)
		receipt.Refused = e.waiter.result()
	}
	if result.err != nil {
		return batch.Receipt{}, result.err
	}
	j.cfg.Faults.At(fault.BeforeAck)
	return receipt, nil
}

// leave says that nobody waits any more for the readings of e.
func (j *Journal) leave(e *entry) {
	j.waiters.remove(e.position, e.waiter)
	if e.flight != nil {
		j.keys.left(e.flight)
	}
}

// enter encodes b and gives it its place among what is about to be written.
func (j *Journal) enter(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (entry, *outcome, error) {
	if err := j.prepare(b); err != nil {
		return entry{}, nil, err
	}
	weight := min(b.MemorySize(), j.cfg.MaxWaiting)
	if err := j.acquire(ctx, weight); err != nil {
		return entry{}, nil, err
	}
	buf, _ := j.buffers.Get().(*[]byte)
	defer j.recycle(buf)
	h := header{readings: uint32(b.Len())}
	var key *keyed
	if f != nil {
		h.flags, key = flagKey, &f.keyed
	}
	var space [headerSize]byte
	// A large record gets its buffer at once: growing it would leave garbage of
	// its own size.
	if most := headerSize + int(b.MemorySize()); most > maxRecycled && cap(*buf) < most {
		*buf = make([]byte, 0, most)
	}
	record := appendPayload(append((*buf)[:0], space[:]...), b, key)
	*buf = record
	payload := record[headerSize:]
	if len(payload) > maxPayload || int64(len(record)) > j.cfg.MaxBytes/2 {
		j.limiter.Release(weight)
		return entry{}, nil, telemetry.Errorf(telemetry.TooLarge, "body_too_large",
			"the request takes %d bytes in the journal; it may take half of the journal's %d (--journal-max-bytes)", len(record), j.cfg.MaxBytes)
	}
	h.length, h.crc = uint32(len(payload)), checksum(0, payload)
	if err := j.space.take(j.cfg.Now(), int64(len(record))); err != nil {
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
	result, err := j.place(&e, &h, record)
	if err != nil {
		j.limiter.Release(weight)
		j.space.landed(int64(len(record)))
		return entry{}, nil, err
	}
	j.tellRoom()
	return e, result, nil
}

// prepare checks the streams of the batch and sets what they are taken in under.
func (j *Journal) prepare(b *batch.Batch) error {
	known := ""
	for i := range b.SeriesLen() {
		s := b.SeriesAt(i)
		if s.Stream == known {
			continue
		}
		if _, ok := j.cfg.Streams[s.Stream]; !ok {
			return errUnknownStream(s.Stream)
		}
		known = s.Stream
	}
	b.SetGranularity(j.windows)
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
		return unavailable(codeBusy, "the journal's disk is slower than what arrives; nothing was taken", err)
	}
	return nil
}

// place is the critical section: the record gets its sequences and its position
// and stands in the pending commit when it ends.
func (j *Journal) place(e *entry, h *header, record []byte) (*outcome, error) {
	drawn := uint64(0)
	if j.cfg.Faults.Off(fault.Order) {
		drawn = j.drawEarly(uint64(e.batch.Len()))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.failed != nil:
		return nil, j.failed
	case j.stopping:
		return nil, errStopping()
	case j.full(int64(len(record))):
		j.wanted.Store(int64(len(record)))
		return nil, errFull(j.cfg.MaxBytes)
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
	j.wanted.Store(0) // requests of this size are taken, whatever was refused before
	j.bytes.Add(int64(len(record)))
	if e.waiter != nil {
		j.waiters.add(e.position, e.waiter)
	}
	if int64(len(j.pending.buf)+len(record)) > j.cfg.SegmentBytes {
		j.fill() // a commit is in one segment
	}
	first := len(j.pending.entries) == 0
	j.pending.writing = j.writing
	result := j.pending.add(e, record)
	if first {
		signal(j.wake)
	}
	return result, nil
}

// full reports whether n more bytes are too many.
func (j *Journal) full(n int64) bool {
	held := j.bytes.Load() + n
	return !j.cfg.Faults.Off(fault.Limit) && (held > j.cfg.MaxBytes || held == j.cfg.MaxBytes && n == 0)
}

// drawEarly takes the sequences apart from the position, and lets others go
// first every other time.
func (j *Journal) drawEarly(n uint64) uint64 {
	j.mu.Lock()
	drawn, before := j.nextSeq, j.nextPos
	j.nextSeq += n
	j.mu.Unlock()
	if drawn%2 == 1 {
		yieldWhile(func() bool {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.nextPos == before
		})
	}
	return drawn
}

// yieldWhile lets others run while nothing has changed, but not for ever.
func yieldWhile(unchanged func() bool) {
	for i := 0; i < 1000 && unchanged(); i++ {
		runtime.Gosched()
	}
}

// maxRecycled is the size of the largest buffer that is kept.
const maxRecycled = 1 << 20

func (j *Journal) recycle(buf *[]byte) {
	if cap(*buf) <= maxRecycled {
		j.buffers.Put(buf)
	}
}

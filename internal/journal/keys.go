package journal

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A keyID stands for an idempotency key with its scope.
type keyID [16]byte

func newKeyID(key string) keyID {
	sum := sha256.Sum256([]byte(key))
	return keyID(sum[:16])
}

// A keyEntry is what is known of a request that was taken. There may be a
// million, hence no pointers beside the answer, which is shared where it is the
// same as the one before.
type keyEntry struct {
	id       keyID
	bodyHash uint64
	end      uint64 // position behind the request's record
	taken    int64  // ns
	answer   string
	stored   bool // its readings are known to be at rest
}

// maxAnswers is how many bytes of answers and refusals are kept. The oldest keys
// are forgotten with theirs.
const maxAnswers = 32 << 20

// A flight is a request with a key that is on its way to the disk.
type flight struct {
	keyed
	waiter *waiter // nil: nobody follows its readings
	left   bool    // the request waits no more; guarded by keys.mu
	done   chan struct{}
	entry  keyEntry // once done
	err    error    // why nothing was taken, or nobody knows
}

// keys knows the requests of the last minutes by their keys, in the order in
// which they were taken.
type keys struct {
	window time.Duration
	most   int
	now    func() time.Time

	mu      sync.Mutex
	flights map[keyID]*flight
	index   map[keyID]uint64 // number of the entry
	entries entryList
	waiters map[keyID]*waiter         // of those whose readings are being stored
	refused map[keyID][]batch.Refused // of those that are stored, where there are any
	bytes   int64                     // of answers and refusals
}

func newKeys(window time.Duration, most int, now func() time.Time) *keys {
	return &keys{
		window: window, most: most, now: now,
		flights: make(map[keyID]*flight), index: make(map[keyID]uint64),
		waiters: make(map[keyID]*waiter), refused: make(map[keyID][]batch.Refused),
	}
}

// once has a request taken, or answered as it was before. One that overlaps the
// first with its key waits for that one's outcome, and is taken itself where that
// one was not. If take is nil, an unknown request gets an empty receipt.
func (k *keys) once(
	ctx context.Context, r *batch.Request,
	take func(*flight) (batch.Receipt, error), repeated func(*keyEntry) (batch.Receipt, error),
) (batch.Receipt, error) {
	for {
		known, f, mine, err := k.begin(r, take != nil)
		switch {
		case err != nil:
			return batch.Receipt{}, err
		case known != nil:
			return repeated(known)
		case mine:
			return take(f)
		case f == nil:
			return batch.Receipt{}, nil
		}
		if known, err = f.wait(ctx); err == nil {
			return repeated(known)
		}
		if telemetry.KindOf(err) == telemetry.UnknownOutcome {
			return batch.Receipt{}, err
		}
	}
}

// begin says what to do with a request: it is known (e), in flight (f, not mine),
// or, with take, to be taken by the caller (f, mine), who must make sure that
// taken or failed is called. Without take, nothing is returned for an unknown
// request.
func (k *keys) begin(r *batch.Request, take bool) (e *keyEntry, f *flight, mine bool, err error) {
	id := newKeyID(r.Key)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if n, ok := k.index[id]; ok {
		known := *k.entries.at(n)
		if known.bodyHash != r.BodyHash {
			return nil, nil, false, errOtherBody()
		}
		return &known, nil, false, nil
	}
	if f, ok := k.flights[id]; ok {
		if f.bodyHash != r.BodyHash {
			return nil, nil, false, errOtherBody()
		}
		return nil, f, false, nil
	}
	if !take {
		return nil, nil, false, nil
	}
	f = &flight{keyed: keyed{id: id, bodyHash: r.BodyHash, answer: r.Answer}, done: make(chan struct{})}
	k.flights[id] = f
	return nil, f, true, nil
}

func errOtherBody() error {
	return telemetry.Errorf(telemetry.Conflict, "idempotency_conflict",
		"this Idempotency-Key was used with another body; a key stands for one request")
}

// taken says that a flight's record is durable. Nobody can follow it yet.
func (k *keys) taken(f *flight, end uint64) {
	f.entry = keyEntry{id: f.id, bodyHash: f.bodyHash, end: end, taken: k.now().UnixNano(), answer: string(f.answer)}
	k.mu.Lock()
	delete(k.flights, f.id)
	k.add(f.entry)
	if w := f.waiter; w != nil {
		id, end := f.id, f.entry.end
		w.whenAtRest(func() { k.stored(id, end, w) })
		if !f.left || len(k.waiters) < mostLeft {
			k.waiters[id] = w
		}
	}
	k.mu.Unlock()
	close(f.done)
}

// failed says that a flight's record was not accepted. A flight with an unknown
// outcome is kept, since its record may be in the journal: repeats of the request
// get the same error until a restart. There are few, because the journal accepts
// nothing afterwards.
func (k *keys) failed(f *flight, err error) {
	f.err = err
	if telemetry.KindOf(err) != telemetry.UnknownOutcome {
		k.mu.Lock()
		delete(k.flights, f.id)
		k.mu.Unlock()
	}
	close(f.done)
}

// load adds a key that was read from the disk, in the order of positions.
func (k *keys) load(e keyEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n, ok := k.index[e.id]; ok && k.entries.at(n).end >= e.end {
		return
	}
	k.add(e)
	k.expire()
}

func (k *keys) add(e keyEntry) {
	if last := k.entries.last(); last != nil && last.answer == e.answer {
		e.answer = last.answer
	} else {
		k.bytes += int64(len(e.answer))
	}
	k.index[e.id] = k.entries.push(e)
}

// expire forgets the oldest keys beyond the window, the number, and the bytes of
// their answers.
func (k *keys) expire() {
	oldest := k.now().Add(-k.window).UnixNano()
	for k.entries.len() > 0 {
		first, n := k.entries.first()
		if first.taken >= oldest && k.entries.len() <= k.most && k.bytes <= maxAnswers {
			return
		}
		if k.index[first.id] == n {
			delete(k.index, first.id)
			delete(k.waiters, first.id)
			k.bytes -= refusedSize(k.refused[first.id])
			delete(k.refused, first.id)
		}
		if k.entries.len() == 1 || k.entries.at(n+1).answer != first.answer {
			k.bytes -= int64(len(first.answer)) // else the next one has it, too
		}
		k.entries.drop()
	}
}

func (k *keys) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	return len(k.index)
}

// between returns the keys of the records that end behind from and not behind
// to.
func (k *keys) between(from, to uint64) []keyEntry {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	var out []keyEntry
	for n := k.entries.base; n < k.entries.base+uint64(k.entries.len()); n++ {
		e := k.entries.at(n)
		if e.end > to {
			break
		}
		if e.end > from && k.index[e.id] == n {
			out = append(out, *e)
		}
	}
	return out
}

// oldest returns the end of the oldest key's record, or none.
func (k *keys) oldest() (end uint64, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if k.entries.len() == 0 {
		return 0, false
	}
	first, _ := k.entries.first()
	return first.end, true
}

// wait returns the outcome of another one's flight.
func (f *flight) wait(ctx context.Context) (*keyEntry, error) {
	select {
	case <-f.done:
		if f.err != nil {
			return nil, f.err
		}
		return &f.entry, nil
	case <-ctx.Done():
		return nil, &telemetry.Error{
			Kind: telemetry.UnknownOutcome, Code: codeUnknown,
			Message: "the request ended while the first one with its Idempotency-Key was still on its way", Err: ctx.Err(),
		}
	}
}

// entryList is a queue of entries in chunks, so that a million are never copied
// to a larger array while the journal waits.
type entryList struct {
	chunks [][]keyEntry
	base   uint64 // number of the first entry
	skip   int    // entries of the first chunk that were dropped
	n      int
}

const entryChunk = 1024

func (l *entryList) len() int { return l.n }

func (l *entryList) at(number uint64) *keyEntry {
	i := int(number-l.base) + l.skip
	return &l.chunks[i/entryChunk][i%entryChunk]
}

func (l *entryList) first() (e *keyEntry, number uint64) { return l.at(l.base), l.base }

func (l *entryList) last() *keyEntry {
	if l.n == 0 {
		return nil
	}
	return l.at(l.base + uint64(l.n) - 1)
}

func (l *entryList) push(e keyEntry) (number uint64) {
	if l.skip+l.n == len(l.chunks)*entryChunk {
		l.chunks = append(l.chunks, make([]keyEntry, entryChunk))
	}
	number = l.base + uint64(l.n)
	l.n++
	*l.at(number) = e
	return number
}

func (l *entryList) drop() {
	*l.at(l.base) = keyEntry{}
	l.base++
	l.n--
	if l.skip++; l.skip == entryChunk {
		l.chunks[0] = nil
		l.chunks, l.skip = l.chunks[1:], 0
	}
}

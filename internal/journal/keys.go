package journal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// keys has the idempotency keys of the last minutes, in the order of their records. Each key is in
// the record of its request, so both become durable together; before a segment is deleted, its
// keys are saved in a file.
//
//	request ──▶ in flight ──record is durable──▶ known ──expires──▶ forgotten
//	               └──nothing was written──▶ forgotten
type keys struct {
	window time.Duration
	memory bool // the window begins when the readings are stored, since no request is acknowledged before
	most   int
	now    func() time.Time

	mu      sync.Mutex
	flights map[keyID]*flight
	index   map[keyID]uint64 // number of the entry
	entries deque[keyEntry]
	waiting int   // number of entries that have a waiter and are not stored
	bytes   int64 // of answers and refusals
}

// A keyID is the hash of an idempotency key with its scope.
type keyID [16]byte

func newKeyID(key string) keyID {
	sum := sha256.Sum256([]byte(key))
	return keyID(sum[:16])
}

// A keyEntry is a known key. There may be a million. Consecutive entries with equal answers share
// the string.
type keyEntry struct {
	id       keyID
	bodyHash uint64
	end      uint64 // position after the request's record
	taken    int64  // time of acceptance, in ns; in memory, time of storing
	answer   string
	stored   bool    // all its readings are known to be stored or refused
	waiter   *waiter // of a request that is not stored, or has refused readings
}

// A flight is a request with a key that is being written.
type flight struct {
	keyed
	waiter *waiter // nil: the request does not wait until its readings are stored
	done   chan struct{}
	entry  keyEntry // set when done
	err    error    // set when done, if it failed or has an unknown outcome
}

const (
	// maxAnswers limits the bytes of answers and refusals; beyond it the oldest keys
	// are forgotten.
	maxAnswers = 32 << 20
	// maxWaiters is how many waiters are kept, so that a repeated request need not wait for
	// everything that was journaled before it.
	maxWaiters = 8192
)

func newKeys(c *Config) *keys {
	return &keys{
		window: c.KeyWindow, memory: c.Memory, most: c.MaxKeys, now: c.Now,
		flights: make(map[keyID]*flight), index: make(map[keyID]uint64),
	}
}

// begin looks up the key of a request. It returns the entry of a known key. For an unknown key it
// returns a flight if take is set, and the caller must call end. If the key is
// already in flight, begin waits for the outcome, and looks it up again if the first request
// failed.
func (k *keys) begin(ctx context.Context, r *batch.Request, take bool) (*keyEntry, *flight, error) {
	id := newKeyID(r.Key)
	for {
		known, f, mine := k.lookup(id, r, take)
		switch {
		case known != nil && known.bodyHash != r.BodyHash, f != nil && f.bodyHash != r.BodyHash:
			return nil, nil, telemetry.Errorf(telemetry.Conflict, "idempotency_conflict",
				"this Idempotency-Key was used with another body; a key stands for one request")
		case known != nil || mine || f == nil:
			return known, f, nil
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, nil, errUnknownOutcome("the request ended while the first one with its Idempotency-Key was still being written", ctx.Err())
		}
		if f.err == nil {
			return &f.entry, nil, nil
		}
		if telemetry.KindOf(f.err) == telemetry.UnknownOutcome {
			return nil, nil, f.err
		}
	}
}

func (k *keys) lookup(id keyID, r *batch.Request, take bool) (known *keyEntry, f *flight, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if n, ok := k.index[id]; ok {
		e := *k.entries.at(n)
		return &e, nil, false
	}
	if f := k.flights[id]; f != nil || !take {
		return nil, f, false
	}
	f = &flight{keyed: keyed{id: id, bodyHash: r.BodyHash, answer: r.Answer}, done: make(chan struct{})}
	k.flights[id] = f
	return nil, f, true
}

// end ends a flight; nil is none. Its key becomes known when its record is durable up to a
// position, before it is published. If the outcome is unknown, the flight is kept, since its
// record may be in the journal: repeated requests get the same error until a restart. There are
// few of them, because the journal accepts nothing afterwards.
func (k *keys) end(f *flight, position uint64, err error) {
	if f == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f.err = err
	if telemetry.KindOf(err) != telemetry.UnknownOutcome {
		delete(k.flights, f.id)
	}
	if err == nil {
		f.entry = keyEntry{id: f.id, bodyHash: f.bodyHash, end: position, taken: k.now().UnixNano(), answer: string(f.answer)}
		if w := f.waiter; w != nil {
			w.whenStored(func() { k.stored(f.id, position, w) })
			if k.waiting < maxWaiters {
				f.entry.waiter = w
				k.waiting++
			}
		}
		k.add(f.entry)
	}
	close(f.done)
}

// stored notes that all readings of a request are stored or refused.
func (k *keys) stored(id keyID, end uint64, w *waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.index[id]
	if !ok || k.entries.at(n).end != end {
		return // it expired
	}
	e := k.entries.at(n)
	if e.waiter != nil {
		k.waiting--
	}
	e.stored, e.waiter = true, nil
	if k.memory {
		e.taken = k.now().UnixNano()
	}
	if refused := w.result(); len(refused) > 0 {
		e.waiter = w
		k.bytes += refusedSize(refused)
		k.expire()
	}
}

// load adds a key that was read from the disk. It is called in the order of positions.
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
	if k.entries.n > 0 && k.entries.last().answer == e.answer {
		e.answer = k.entries.last().answer
	} else {
		k.bytes += int64(len(e.answer))
	}
	k.index[e.id] = k.entries.push(e)
}

// expire forgets the oldest keys, until the window, the number and the bytes of answers are
// within their limits.
func (k *keys) expire() {
	oldest := k.now().Add(-k.window).UnixNano()
	for k.entries.n > 0 {
		first, n := k.entries.first(), k.entries.base
		fresh := first.taken >= oldest || k.memory && !first.stored
		if fresh && k.entries.n <= k.most && k.bytes <= maxAnswers {
			return
		}
		if k.index[first.id] == n {
			delete(k.index, first.id)
		}
		switch {
		case first.waiter == nil:
		case first.stored:
			k.bytes -= refusedSize(first.waiter.result())
		default:
			k.waiting--
		}
		if k.entries.n == 1 || k.entries.at(n+1).answer != first.answer {
			k.bytes -= int64(len(first.answer)) // otherwise the next one shares it
		}
		k.entries.drop()
	}
}

// refusedSize estimates the memory of refusals.
func refusedSize(refused []batch.Refused) int64 {
	n := int64(len(refused)) * 40
	for i := range refused {
		n += int64(len(refused[i].Refusal.Message))
	}
	return n
}

func (k *keys) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	return len(k.index)
}

// between returns the keys of records that end after from, and at or before to.
func (k *keys) between(from, to uint64) (out []keyEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	for n := k.entries.base; n < k.entries.base+uint64(k.entries.n); n++ {
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

// oldest returns the end of the record of the oldest key; ok is false if there is none.
func (k *keys) oldest() (end uint64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if k.entries.n == 0 {
		return 0, false
	}
	return k.entries.first().end, true
}

// A deque is a queue of numbered items; the numbers do not change. It grows in chunks, so that a
// million items are never copied while the journal waits.
type deque[T any] struct {
	chunks [][]T
	skip   int    // dropped items of the first chunk
	base   uint64 // number of the first item
	n      int
}

const chunkItems = 1024

func (d *deque[T]) at(number uint64) *T {
	i := int(number-d.base) + d.skip
	return &d.chunks[i/chunkItems][i%chunkItems]
}

func (d *deque[T]) first() *T { return d.at(d.base) }
func (d *deque[T]) last() *T  { return d.at(d.base + uint64(d.n) - 1) }

func (d *deque[T]) push(item T) (number uint64) {
	if d.skip+d.n == len(d.chunks)*chunkItems {
		d.chunks = append(d.chunks, make([]T, chunkItems))
	}
	d.n++
	*d.last() = item
	return d.base + uint64(d.n) - 1
}

// drop removes the first item.
func (d *deque[T]) drop() {
	var zero T
	*d.first() = zero
	d.base++
	d.n--
	if d.skip++; d.skip < chunkItems {
		return
	}
	empty := d.chunks[0]
	d.chunks[0] = nil
	d.chunks, d.skip = d.chunks[1:], 0
	if len(d.chunks)*chunkItems-d.n < chunkItems {
		d.chunks = append(d.chunks, empty) // keep one spare chunk
	}
}

// A keyFile holds the keys of deleted segments.
type keyFile struct {
	name string
	end  uint64 // position after the last of their records
	size int64
}

// saveKeys writes the keys of the records before a position to a file, except those that are in
// earlier files.
func (j *Journal) saveKeys(before uint64) error {
	if before <= j.saved || j.cfg.Memory {
		return nil
	}
	entries := j.keys.between(j.saved, before)
	if len(entries) > 0 {
		f := keyFile{name: segmentName(j.saved) + keysSuffix, end: before}
		content := encodeKeys(entries)
		if err := writeFile(j.cfg.Files, j.path(f.name), content); err != nil {
			return fmt.Errorf("save idempotency keys: %w", err)
		}
		f.size = int64(len(content))
		if n := len(j.keyFiles); n > 0 && j.keyFiles[n-1].name == f.name { // written by an earlier process
			j.keyBytes.Add(-j.keyFiles[n-1].size)
			j.keyFiles = j.keyFiles[:n-1]
		}
		j.addKeyFile(f)
	}
	j.saved = before
	return nil
}

func (j *Journal) addKeyFile(f keyFile) {
	j.keyFiles = append(j.keyFiles, f)
	j.keyBytes.Add(f.size)
}

// eachKeyFile calls visit for the files of keys, in the order of their segments; wrong says why
// one has no keys.
func eachKeyFile(files Files, dir string, visit func(f keyFile, entries []keyEntry, wrong error)) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		segment, ofKeys := strings.CutSuffix(name, keysSuffix)
		base, ofSegment := segmentBase(segment)
		if !ofKeys || !ofSegment {
			continue
		}
		content, err := readFile(files, filepath.Join(dir, name), maxKeyFile)
		if errors.Is(err, os.ErrNotExist) {
			continue // a running daemon deleted it during an inspection
		}
		if err != nil {
			return err
		}
		f := keyFile{name, base, int64(len(content))}
		entries, wrong := decodeKeys(content)
		for i := range entries {
			f.end = max(f.end, entries[i].end)
		}
		visit(f, entries, wrong)
	}
	return nil
}

// loadKeys reads the keys of deleted segments. A broken file is logged and ignored, since it has
// only keys and no readings.
func (j *Journal) loadKeys() error {
	err := eachKeyFile(j.cfg.Files, j.cfg.Dir, func(f keyFile, entries []keyEntry, wrong error) {
		if wrong != nil {
			j.cfg.Logger.Error("idempotency keys are lost: a repeated request may be stored twice", "file", j.path(f.name), "err", wrong)
		}
		for _, e := range entries {
			j.keys.load(e)
		}
		j.addKeyFile(f)
	})
	if err != nil {
		return err
	}
	return j.dropKeys()
}

// dropKeys deletes the files in which every key has expired.
func (j *Journal) dropKeys() error {
	oldest, ok := j.keys.oldest()
	for len(j.keyFiles) > 0 && (!ok || oldest > j.keyFiles[0].end) {
		if err := j.cfg.Files.Remove(j.path(j.keyFiles[0].name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		j.keyBytes.Add(-j.keyFiles[0].size)
		j.keyFiles = j.keyFiles[1:]
	}
	return nil
}

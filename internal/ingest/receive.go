package ingest

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A body is received whole before it is inflated and decoded, so that a slow
// sender has none of the slots of the gate. What is received is bounded, too: a
// body that is longer than a chunk reserves the rest of its length at once (or
// all that is allowed, where its length is not known), so that none waits for
// another while it holds a part. Until the first bytes have come a body holds
// nothing but firstBytes, for there may be as many of them as connections.
const (
	firstBytes = 4 << 10
	chunkBytes = 64 << 10 // what anybody may send without waiting
	// chunkSlots is how many bodies may hold a chunk at once: 64 MiB. They wait for
	// each other only where a thousand come at the same instant, or come slowly.
	chunkSlots = 1 << 10
	// wireBudget holds four bodies of the greatest length, or hundreds of a
	// thousand lines. Who sends slowly keeps his share of it, for as long as the
	// server waits for him.
	wireBudget = 32 << 20
)

// A receiver takes bodies from the wire.
type receiver struct {
	limit  int64 // of one body
	budget *semaphore.Weighted
	slots  *semaphore.Weighted // of chunkSlots
	wait   time.Duration
	pace   pace
	firsts sync.Pool // of *[firstBytes]byte
	chunks sync.Pool // of *[chunkBytes]byte
}

func newReceiver(limit int64, wait time.Duration) *receiver {
	return &receiver{
		limit: limit, wait: wait,
		budget: semaphore.NewWeighted(max(wireBudget, limit)), slots: semaphore.NewWeighted(chunkSlots),
	}
}

// A wireBody is a body as it was sent, to be read once. free must be called.
type wireBody struct {
	from     *receiver
	encoding string
	start    *[firstBytes]byte // holds all while there is no chunk
	chunks   []*[chunkBytes]byte
	first    [1]*[chunkBytes]byte // holds chunks while there is one
	slot     bool
	length   int64
	read     int64
	reserved int64
}

// receive reads the whole body of r. What it returns is never nil: on an error
// it tells how much came.
func (v *receiver) receive(r *http.Request) (*wireBody, error) {
	w := new(wireBody)
	return w, v.receiveInto(w, r, nil)
}

// receiveInto is receive with memory of the caller's. The connection that to
// answers on gets the deadlines of the pace; nil: any pace will do.
func (v *receiver) receiveInto(w *wireBody, r *http.Request, to http.ResponseWriter) (err error) {
	*w = wireBody{from: v}
	w.chunks = w.first[:0]
	if w.encoding, err = encodingOf(r); err != nil {
		return err
	}
	if r.ContentLength > v.limit {
		return errBodyTooLarge(v.limit)
	}
	p := pacer{pace: v.pace}
	if to != nil && r.ContentLength != 0 {
		p.control = http.NewResponseController(to)
	}
	p.begin()
	for {
		if err := w.makeRoom(r); err != nil {
			p.end()
			return err
		}
		n, err := r.Body.Read(w.room())
		w.length += int64(n)
		switch {
		case w.length > v.limit:
			p.end()
			return errBodyTooLarge(v.limit)
		case errors.Is(err, io.EOF):
			p.end()
			w.giveBack(w.reserved - max(0, w.length-chunkBytes))
			return nil
		case err != nil:
			return p.explain(err)
		}
		p.came(w.length)
	}
}

// makeRoom makes sure that there is room for what comes next.
func (w *wireBody) makeRoom(r *http.Request) error {
	switch {
	case w.start == nil && len(w.chunks) == 0:
		var ok bool
		if w.start, ok = w.from.firsts.Get().(*[firstBytes]byte); !ok {
			w.start = new([firstBytes]byte)
		}
	case w.start != nil && w.length == firstBytes:
		if err := acquire(r.Context(), w.from.slots, 1, w.from.wait); err != nil {
			return err
		}
		w.slot = true
		copy(w.addChunk()[:], w.start[:])
		w.from.firsts.Put(w.start)
		w.start = nil
	case w.length >= chunkBytes && w.reserved == 0:
		return w.reserve(r)
	}
	return nil
}

// reserve waits for room for what may still come.
func (w *wireBody) reserve(r *http.Request) error {
	rest := w.from.limit - chunkBytes
	if r.ContentLength >= 0 {
		rest = r.ContentLength - chunkBytes
	}
	if rest <= 0 {
		return nil
	}
	if err := acquire(r.Context(), w.from.budget, rest, w.from.wait); err != nil {
		return err
	}
	w.reserved = rest
	return nil
}

// room returns where the next bytes go. One chunk more than allowed tells a full
// body from one that is too large.
func (w *wireBody) room() []byte {
	if w.start != nil {
		return w.start[w.length:]
	}
	used := w.length % chunkBytes
	if w.length == int64(len(w.chunks))*chunkBytes {
		w.addChunk()
	}
	return w.chunks[len(w.chunks)-1][used:]
}

func (w *wireBody) addChunk() *[chunkBytes]byte {
	chunk, ok := w.from.chunks.Get().(*[chunkBytes]byte)
	if !ok {
		chunk = new([chunkBytes]byte)
	}
	w.chunks = append(w.chunks, chunk)
	return chunk
}

// Read implements io.Reader.
func (w *wireBody) Read(p []byte) (int, error) {
	if w.read == w.length {
		return 0, io.EOF
	}
	at := w.read % chunkBytes
	var piece []byte
	if w.start != nil {
		piece = w.start[at:w.length]
	} else {
		piece = w.chunks[w.read/chunkBytes][at:min(chunkBytes, at+w.length-w.read)]
	}
	n := copy(p, piece)
	w.read += int64(n)
	return n, nil
}

// giveBack gives back a part of what is reserved.
func (w *wireBody) giveBack(n int64) {
	if n > 0 {
		w.from.budget.Release(n)
		w.reserved -= n
	}
}

// free gives back what the body holds. It may be called again.
func (w *wireBody) free() {
	for _, c := range w.chunks {
		w.from.chunks.Put(c)
	}
	if w.start != nil {
		w.from.firsts.Put(w.start)
	}
	if w.slot {
		w.from.slots.Release(1)
	}
	w.start, w.chunks, w.slot, w.read, w.length = nil, nil, false, 0, 0
	w.giveBack(w.reserved)
}

func errBodyTooLarge(limit int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the body is larger than %d bytes (--max-body-bytes); nothing was taken, send smaller requests or compress them", limit)
}

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
// another while it holds a part.
const (
	chunkBytes = 64 << 10 // what anybody may send without waiting
	// wireBudget holds four bodies of the greatest length, or hundreds of a
	// thousand lines. Who sends slowly keeps his share of it, for as long as the
	// server waits for him.
	wireBudget = 32 << 20
)

// A receiver takes bodies from the wire.
type receiver struct {
	limit  int64 // of one body
	budget *semaphore.Weighted
	wait   time.Duration
	chunks sync.Pool // of *[chunkBytes]byte
}

func newReceiver(limit int64, wait time.Duration) *receiver {
	return &receiver{limit: limit, budget: semaphore.NewWeighted(max(wireBudget, limit)), wait: wait}
}

// A wireBody is a body as it was sent, to be read once. free must be called.
type wireBody struct {
	from     *receiver
	encoding string
	chunks   []*[chunkBytes]byte
	first    [1]*[chunkBytes]byte // holds chunks while there is one
	length   int64
	read     int64
	reserved int64
}

// receive reads the whole body of r. What it returns is never nil: on an error
// it tells how much came.
func (v *receiver) receive(r *http.Request) (*wireBody, error) {
	w := new(wireBody)
	return w, v.receiveInto(w, r)
}

// receiveInto is receive with memory of the caller's.
func (v *receiver) receiveInto(w *wireBody, r *http.Request) (err error) {
	*w = wireBody{from: v}
	w.chunks = w.first[:0]
	if w.encoding, err = encodingOf(r); err != nil {
		return err
	}
	if r.ContentLength > v.limit {
		return errBodyTooLarge(v.limit)
	}
	for {
		if w.length >= chunkBytes && w.reserved == 0 {
			if err := w.reserve(r); err != nil {
				return err
			}
		}
		n, err := r.Body.Read(w.room())
		w.length += int64(n)
		switch {
		case w.length > v.limit:
			return errBodyTooLarge(v.limit)
		case errors.Is(err, io.EOF):
			w.giveBack(w.reserved - max(0, w.length-chunkBytes))
			return nil
		case err != nil:
			return &telemetry.Error{
				Kind: telemetry.Invalid, Code: codeCutOff, Message: "the body did not arrive whole; nothing was taken", Err: err,
			}
		}
	}
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
	used := w.length % chunkBytes
	if w.length == int64(len(w.chunks))*chunkBytes {
		chunk, ok := w.from.chunks.Get().(*[chunkBytes]byte)
		if !ok {
			chunk = new([chunkBytes]byte)
		}
		w.chunks = append(w.chunks, chunk)
	}
	return w.chunks[len(w.chunks)-1][used:]
}

// Read implements io.Reader.
func (w *wireBody) Read(p []byte) (int, error) {
	if w.read == w.length {
		return 0, io.EOF
	}
	at := w.read % chunkBytes
	n := copy(p, w.chunks[w.read/chunkBytes][at:min(chunkBytes, at+w.length-w.read)])
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
	w.chunks, w.read, w.length = nil, 0, 0
	w.giveBack(w.reserved)
}

func errBodyTooLarge(limit int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the body is larger than %d bytes (--max-body-bytes); nothing was taken, send smaller requests or compress them", limit)
}

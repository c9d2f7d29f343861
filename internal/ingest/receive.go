package ingest

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A body is received whole before it is inflated and decoded. Until its first
// bytes have come it holds nothing but firstBytes, for there may be as many of
// them as connections; then it takes its lease of the budget.
const (
	firstBytes = 4 << 10
	chunkBytes = 64 << 10
)

// A receiver takes bodies from the wire.
type receiver struct {
	limit    int64 // of one body
	inflated int64 // the most that it may inflate to
	budget   *budget
	pace     pace
	firsts   sync.Pool // of *[firstBytes]byte
	chunks   sync.Pool // of *[chunkBytes]byte
}

func newReceiver(limit, inflated int64, b *budget) *receiver {
	return &receiver{limit: limit, inflated: inflated, budget: b}
}

// foreseen estimates how much memory a body of this length will take.
func (v *receiver) foreseen(encoding string, length int64) int64 {
	switch encoding {
	case "":
		return bodyCost(length, length)
	case "zstd":
		return min(v.budget.most(), zstdCost+bodyCost(length, min(v.inflated, usualRatio*length)))
	}
	return min(v.budget.most(), bodyCost(length, min(v.inflated, usualRatio*length)))
}

// A wireBody is a body as it was sent, to be read once. free must be called.
type wireBody struct {
	from     *receiver
	encoding string
	start    *[firstBytes]byte // holds all while there is no chunk
	chunks   []*[chunkBytes]byte
	first    [1]*[chunkBytes]byte // holds chunks while there is one
	length   int64
	read     int64
	lease    *lease    // of the request
	coming   *incoming // nil while it holds nothing
	pacer    pacer
}

// receive reads the whole body of r. What it returns is never nil: on an error
// it tells how much came.
func (v *receiver) receive(r *http.Request) (*wireBody, error) {
	w := new(wireBody)
	return w, v.receiveInto(w, &lease{of: v.budget}, r, nil)
}

// receiveInto is receive with memory and a lease of the caller, which the caller
// releases. The connection that to answers on gets the deadlines of the pace; nil:
// any pace will do.
func (v *receiver) receiveInto(w *wireBody, l *lease, r *http.Request, to http.ResponseWriter) (err error) {
	*w = wireBody{from: v, lease: l}
	w.chunks = w.first[:0]
	if w.encoding, err = encodingOf(r); err != nil {
		return err
	}
	if r.ContentLength > v.limit {
		return errBodyTooLarge(v.limit)
	}
	p := &w.pacer
	p.pace = v.pace
	if to != nil && r.ContentLength != 0 {
		p.control = http.NewResponseController(to)
	}
	p.begin()
	defer w.whole()
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
			w.whole()
			p.end()
			l.keep(v.foreseen(w.encoding, w.length))
			return nil
		case err != nil:
			return p.explain(err)
		}
		p.came(w.length)
		if w.coming != nil {
			w.coming.came.Store(w.length)
			if p.awaited.Load() { // behind came, which may have moved the deadline of giveUp
				return errAwaited()
			}
		}
	}
}

// makeRoom makes sure that there is room for what comes next.
func (w *wireBody) makeRoom(r *http.Request) error {
	v := w.from
	switch {
	case w.start == nil && len(w.chunks) == 0:
		var ok bool
		if w.start, ok = v.firsts.Get().(*[firstBytes]byte); !ok {
			w.start = new([firstBytes]byte)
		}
	case w.start != nil && w.length == firstBytes:
		length := r.ContentLength
		if length < 0 {
			length = min(chunkBytes, v.limit)
		}
		if err := w.reserve(r, length); err != nil {
			return err
		}
		copy(w.addChunk()[:], w.start[:])
		v.firsts.Put(w.start)
		w.start = nil
	case w.length == chunkBytes && r.ContentLength < 0:
		return w.reserve(r, v.limit)
	}
	return nil
}

// reserve takes the lease of a body of this length.
func (w *wireBody) reserve(r *http.Request, length int64) error {
	w.whole() // waiting here does not count against its pace
	err := w.lease.reach(r.Context(), w.from.foreseen(w.encoding, length))
	if err != nil || w.lease.size == 0 {
		return err
	}
	w.coming = &incoming{size: w.lease.size, since: time.Now(), end: w.pacer.giveUp}
	w.from.budget.comes(w.coming)
	return nil
}

// whole notes that the body is complete, or no longer expected.
func (w *wireBody) whole() {
	if w.coming != nil {
		w.from.budget.gone(w.coming)
		w.coming = nil
	}
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

// free gives back the body's buffers. It may be called again.
func (w *wireBody) free() {
	for _, c := range w.chunks {
		w.from.chunks.Put(c)
	}
	if w.start != nil {
		w.from.firsts.Put(w.start)
	}
	w.start, w.chunks, w.read, w.length = nil, nil, 0, 0
}

func errBodyTooLarge(limit int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the body is larger than %d bytes (--max-body-bytes); nothing was taken, send smaller requests or compress them", limit)
}

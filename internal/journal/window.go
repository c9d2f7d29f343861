package journal

import (
	"errors"
	"io"
)

// A window reads a file piece by piece, ahead of what is asked for.
type window struct {
	file  File
	limit int64 // end of what may be read
	ahead int   // bytes to read at least
	buf   []byte
	at    int64 // offset of buf in the file
}

// drop gives back what a large record needed: a cursor may wait behind it for long.
func (w *window) drop() {
	if cap(w.buf) > w.ahead {
		w.buf = nil
	}
}

// peek returns n bytes at an offset, fewer at the end. They are valid until the
// next call.
func (w *window) peek(offset int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(w.limit-offset, 0)))
	if n == 0 {
		return nil, nil
	}
	if from := offset - w.at; from >= 0 && from+int64(n) <= int64(len(w.buf)) {
		return w.buf[from:][:n], nil
	}
	want := int(min(int64(max(n, w.ahead)), w.limit-offset))
	// What a huge record needed is given back after it.
	if cap(w.buf) < want || cap(w.buf) > 4*max(w.ahead, want) {
		w.buf = make([]byte, want)
	}
	w.buf, w.at = w.buf[:want], offset
	got, err := w.file.ReadAt(w.buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.buf = w.buf[:got]
	return w.buf[:min(n, got)], nil
}

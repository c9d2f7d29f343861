package ingest

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxReadingBytes is how long one reading may be on its way, in JSON or line
// protocol. It is more than the rules can fill: 256 fields and 256 tags with
// names of 128 bytes and values of 1 KiB, every byte escaped as \u0000.
const maxReadingBytes = 4 << 20

// bufferBytes is the size of the buffer of a lines, and of what is kept of it.
const bufferBytes = 64 << 10

// lines cuts a body into its lines. It holds one line and what was read with
// it.
type lines struct {
	src        io.Reader
	buf        []byte
	start, end int   // of the current line, its end of line included
	number     int   // of the line, from 1
	gone       int64 // bytes of the body in front of buf
	err        error
}

// linePool keeps buffers between requests.
type linePool struct{ pool sync.Pool }

func (p *linePool) get(src io.Reader) *lines {
	l, ok := p.pool.Get().(*lines)
	if !ok {
		l = &lines{buf: make([]byte, 0, bufferBytes)}
	}
	*l = lines{src: src, buf: l.buf[:0]}
	return l
}

func (p *linePool) put(l *lines) {
	if cap(l.buf) <= bufferBytes {
		l.src = nil
		p.pool.Put(l)
	}
}

// next returns the next line without its end of line, valid until the next
// call; io.EOF when there is none. A line that is too long is skipped up to its
// end, and long is true.
func (l *lines) next() (line []byte, long bool, err error) {
	l.start = l.end
	l.number++
	if found, err := l.find(); err != nil {
		return nil, false, err
	} else if !found {
		return nil, true, l.skip()
	}
	return l.line(), l.end-l.start > maxReadingBytes, nil
}

// guess returns how many lines the body has, the current one and those behind
// it, if what was read is all and they are as long as the current one.
func (l *lines) guess() int { return (len(l.buf)-l.start)/max(l.end-l.start, 16) + 1 }

// line returns the current line without its end of line.
func (l *lines) line() []byte {
	line := l.buf[l.start:l.end]
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// skipManySpaces returns the line without most of the spaces that it begins with. A
// small compressed body can have millions of them, so they are compared many at a
// time.
func skipManySpaces(line []byte) []byte {
	const many = "                                                                "
	for len(line) >= len(many) && line[0] == ' ' && string(line[:len(many)]) == many {
		line = line[len(many):]
	}
	return line
}

// extend makes the current line contain the one behind it, and reports whether
// there was one and both are not too long. If not, cut must be called.
func (l *lines) extend() (bool, error) {
	found, err := l.find()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if found {
		l.number++
	}
	return found && l.end-l.start <= maxReadingBytes, err
}

// cut undoes extensions: the current line ends behind its first n bytes again
// and has this number.
func (l *lines) cut(n, number int) { l.end, l.number = l.start+n, number }

// find moves end behind the line that begins there; found is false if the
// current line would get too long. The last line needs no end of line.
func (l *lines) find() (found bool, err error) {
	for from := l.end; ; {
		if i := bytes.IndexByte(l.buf[from:], '\n'); i >= 0 {
			l.end = from + i + 1
			return true, nil
		}
		if len(l.buf)-l.start > maxReadingBytes {
			return false, nil
		}
		searched := len(l.buf) - l.end
		if err := l.fill(); errors.Is(err, io.EOF) {
			if l.end == len(l.buf) {
				return false, io.EOF
			}
			l.end = len(l.buf)
			return true, nil
		} else if err != nil {
			return false, err
		}
		from = l.end + searched
	}
}

// skip drops the current line up to and with its end of line.
func (l *lines) skip() error {
	for {
		if i := bytes.IndexByte(l.buf[l.start:], '\n'); i >= 0 {
			l.end = l.start + i + 1
			return nil
		}
		l.start = len(l.buf)
		l.end = l.start
		if err := l.fill(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// fill reads more behind what is there, keeping everything from start on.
func (l *lines) fill() error {
	if l.err != nil {
		return l.err
	}
	if l.start > 0 {
		l.gone += int64(l.start)
		kept := copy(l.buf, l.buf[l.start:])
		l.buf, l.end, l.start = l.buf[:kept], l.end-l.start, 0
	}
	if len(l.buf) == cap(l.buf) {
		l.buf = append(l.buf, make([]byte, cap(l.buf))...)[:len(l.buf)]
	}
	n, err := l.src.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	if err != nil {
		l.err = err
		if n == 0 {
			return err
		}
	}
	return nil
}

// peek returns the first bytes of a body of which nothing was read yet, as many
// as there are before the first end of line, and whether that was found. White
// space in front is skipped.
func (l *lines) peek() (first []byte, whole bool, err error) {
	for {
		skipped := bytes.TrimLeft(l.buf[l.end:], " \t\r\n")
		l.number += bytes.Count(l.buf[l.end:len(l.buf)-len(skipped)], []byte{'\n'})
		l.end = len(l.buf) - len(skipped)
		l.start = l.end
		if i := bytes.IndexByte(skipped, '\n'); i >= 0 {
			return skipped[:i], true, nil
		}
		if len(skipped) >= bufferBytes {
			return skipped, false, nil
		}
		if err := l.fill(); errors.Is(err, io.EOF) {
			return l.buf[l.end:], false, nil
		} else if err != nil {
			return nil, false, err
		}
	}
}

// skipSpace moves end behind white space, of a body that is not read by lines, and
// returns the byte that is there; io.EOF when there is none.
func (l *lines) skipSpace() (byte, error) {
	for {
		for ; l.end < len(l.buf); l.end++ {
			if c := l.buf[l.end]; !isJSONSpace(c) {
				return c, nil
			}
		}
		l.start = l.end
		if err := l.fill(); err != nil && l.end == len(l.buf) {
			return 0, err
		}
	}
}

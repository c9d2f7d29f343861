package ingest

import "bytes"

// maxReadingBytes is the maximum length of one reading in JSON or line protocol. It is
// more than the rules allow: 256 fields and 256 tags with names of 128 bytes and values
// of 1 KiB, every byte escaped as \u0000.
const maxReadingBytes = 4 << 20

// lines iterates over the lines of a body.
type lines struct {
	body       []byte
	start, end int // of the current line, including its line break
	number     int // of the line, from 1
}

// next returns the next line without its line break, and whether it is too long. ok is false
// if there is no next line.
func (l *lines) next() (line []byte, long, ok bool) {
	l.start = l.end
	if !l.extend() && l.end == l.start {
		return nil, false, false
	}
	return l.line(), l.end-l.start > maxReadingBytes, true
}

// extend appends the next line to the current one, and reports whether there was a next
// line and both together are not too long.
func (l *lines) extend() bool {
	if l.end == len(l.body) {
		return false
	}
	l.number++
	if i := bytes.IndexByte(l.body[l.end:], '\n'); i >= 0 {
		l.end += i + 1
	} else {
		l.end = len(l.body)
	}
	return l.end-l.start <= maxReadingBytes
}

// cut undoes extensions: the current line has n bytes again, and this number.
func (l *lines) cut(n, number int) { l.end, l.number = l.start+n, number }

// line returns the current line without its line break.
func (l *lines) line() []byte {
	line := l.body[l.start:l.end]
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// guess returns the number of remaining lines, including the current one, if all are as
// long as the current one.
func (l *lines) guess() int { return (len(l.body)-l.start)/max(l.end-l.start, 16) + 1 }

// skipManySpaces returns the line without most of the spaces that it begins with. A
// small compressed body can have millions of them, so many are compared at once.
func skipManySpaces(line []byte) []byte {
	const many = "                                                                "
	for len(line) >= len(many) && line[0] == ' ' && string(line[:len(many)]) == many {
		line = line[len(many):]
	}
	return line
}

package block

import (
	"encoding/binary"
	"errors"
)

// A reader reads numbers and bytes from a section. After its first error, it returns
// zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = errors.New(why)
	}
	r.rest = nil
}

// end returns the first error. Bytes that are left over are an error, too.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("there are bytes after the end")
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("it is too short")
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// take returns the next n bytes, nil after an error.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.fail("it is too short")
		return nil
	}
	c := r.rest[:n:n]
	r.rest = r.rest[n:]
	return c
}

func (r *reader) uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("a number is too short or too long")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// size returns a number of bytes.
func (r *reader) size() int {
	const most = 1 << 30
	v := r.uvarint()
	if v > most {
		r.fail("a size is too large")
		return 0
	}
	return int(v)
}

// count returns how many different things follow: all but the first take two bytes or more.
func (r *reader) count() int {
	n := r.size()
	if n > (len(r.rest)+1)/2 {
		r.fail("it is too short")
		return 0
	}
	return n
}

// sized returns bytes with their number in front.
func (r *reader) sized() []byte { return r.take(r.size()) }

// below checks that all numbers are.
func (r *reader) below(numbers []uint64, limit int) {
	for _, n := range numbers {
		if n >= uint64(limit) {
			r.fail("a number is out of range")
			return
		}
	}
}

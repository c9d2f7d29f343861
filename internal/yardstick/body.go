package main

import (
	"strconv"
	"strings"
	"time"
)

// A body is a request made beforehand, of which only the timestamps change, so
// that sending it costs next to nothing. All readings have the same time: it is
// one step of all hosts.
type body struct {
	text   []byte
	stamps []int         // where the timestamps stand, all of as many digits
	unit   time.Duration // that the timestamps count
	digits int
}

// moveTo sets the time.
func (b *body) moveTo(at time.Time) {
	var digits [20]byte
	stamp := strconv.AppendInt(digits[:0], at.UnixNano()/int64(b.unit), 10)
	for _, place := range b.stamps {
		copy(b.text[place:place+b.digits], stamp)
	}
}

// stamp appends the room for a timestamp.
func (b *body) stamp() {
	b.stamps = append(b.stamps, len(b.text))
	b.text = append(b.text, strings.Repeat("0", b.digits)...)
}

// Digits of timestamps since the epoch, until the year 2286.
const (
	digitsOfNanoseconds  = 19
	digitsOfMilliseconds = 13
)

// lineBody is a step in line protocol, with these values.
func lineBody(hosts []host, variant int) *body {
	b := &body{unit: time.Nanosecond, digits: digitsOfNanoseconds}
	for i := range hosts {
		b.text = append(b.text, "cpu"...)
		for t, name := range tagNames {
			b.text = append(b.text, ","+name+"="+hosts[i].tags[t]...)
		}
		separator := byte(' ')
		for f, value := range hosts[i].values[variant] {
			b.text = append(append(b.text, separator), fieldNames[f]+"="...)
			b.text = append(strconv.AppendInt(b.text, value, 10), 'i')
			separator = ','
		}
		b.text = append(b.text, ' ')
		b.stamp()
		b.text = append(b.text, '\n')
	}
	return b
}

package ingest

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc/mem"
)

// A jsonDecoder decodes bodies of JSON, one after the other.
type jsonDecoder struct {
	simple simpleDecoder
	plain  *readingDecoder
	values values
}

// jsonPool keeps decoders between requests.
type jsonPool struct{ pool sync.Pool }

func (p *jsonPool) get(in *intake) *jsonDecoder {
	d, ok := p.pool.Get().(*jsonDecoder)
	if !ok {
		d = &jsonDecoder{plain: newReadingDecoder()}
	}
	d.simple.in, d.plain.builder = in, in.builder
	return d
}

// put gives back a decoder, unless it has grown large.
func (p *jsonPool) put(d *jsonDecoder) {
	if cap(d.values.buf) > bufferBytes || cap(d.plain.text)+cap(d.plain.name) > bufferBytes {
		return
	}
	d.values = values{buf: d.values.buf[:0]}
	d.simple.in, d.simple.sensor, d.simple.tags = nil, nil, nil
	clear(d.simple.texts[:cap(d.simple.texts)])
	d.plain.letGo()
	p.pool.Put(d)
}

// open returns a decoder of the values of a body.
func (d *jsonDecoder) open(in *intake, src io.Reader) *values {
	d.values = values{in: in, simple: &d.simple, plain: d.plain, src: src, buf: d.values.buf[:0]}
	return &d.values
}

// letGo forgets the body that was decoded.
func (d *readingDecoder) letGo() {
	d.builder, d.buf = nil, bytes.Buffer{}
	if d.used {
		d.stream(strings.NewReader(""))
		d.used = false
	}
}

// wirePool keeps decoders of protobuf between requests.
type wirePool struct{ pool sync.Pool }

func (p *wirePool) get(in *intake) *wireDecoder {
	d, ok := p.pool.Get().(*wireDecoder)
	if !ok {
		d = new(wireDecoder)
	}
	d.in = in
	return d
}

// put gives back a decoder, unless it has grown large.
func (p *wirePool) put(d *wireDecoder) {
	const most = 1 << 14
	size := cap(d.times) + cap(d.tags) + cap(d.dense.times) + cap(d.dense.words) + cap(d.dense.texts) + cap(d.dense.tags)
	for i := range d.columns[:cap(d.columns)] {
		size += d.columns[:cap(d.columns)][i].letGo()
	}
	if size > most {
		return
	}
	d.in, d.dense.head = nil, nil
	clear(d.tags[:cap(d.tags)])
	clear(d.dense.tags[:cap(d.dense.tags)])
	clear(d.dense.texts[:cap(d.dense.texts)])
	p.pool.Put(d)
}

// letGo forgets the message that the column was in, and returns how many values
// it has room for.
func (c *column) letGo() int {
	c.name = nil
	clear(c.strings[:cap(c.strings)])
	return cap(c.doubles) + cap(c.ints) + cap(c.bools) + cap(c.strings) + cap(c.absent)
}

// maxAlias is how long the part of a request may be that is the key of an alias.
// What is longer is decoded each time.
const maxAlias = 4 << 10

// messagePool keeps room for messages that came in pieces. That of gRPC clears
// its buffers before they are used, a whole MiB for half of one.
type messagePool struct{ pool sync.Pool }

// keptMessage is the longest message whose room is kept.
const keptMessage = 1 << 20

// join returns the bytes of a message, and their room, which is nil if they are
// where they were.
func (p *messagePool) join(pieces mem.BufferSlice) (data []byte, room *[]byte) {
	if len(pieces) == 1 {
		return pieces[0].ReadOnlyData(), nil
	}
	length := pieces.Len()
	room, ok := p.pool.Get().(*[]byte)
	if !ok {
		room = new([]byte)
	}
	if cap(*room) < length {
		*room = make([]byte, length)
	}
	data = (*room)[:length]
	pieces.CopyTo(data)
	return data, room
}

// put takes back what join returned.
func (p *messagePool) put(room *[]byte) {
	if room != nil && cap(*room) <= keptMessage {
		p.pool.Put(room)
	}
}

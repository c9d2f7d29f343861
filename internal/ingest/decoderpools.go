package ingest

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// jsonPool keeps decoders of JSON between requests.
type jsonPool struct{ pool sync.Pool }

func (p *jsonPool) get(in *intake) *jsonDecoder {
	d, ok := p.pool.Get().(*jsonDecoder)
	if !ok {
		d = new(jsonDecoder)
	}
	d.in = in
	return d
}

// put gives back a decoder, unless it has grown large.
func (p *jsonPool) put(d *jsonDecoder) {
	if cap(d.text)+cap(d.name)+cap(d.alias) <= bufferBytes {
		*d = jsonDecoder{text: d.text[:0], name: d.name[:0], alias: d.alias[:0]}
		p.pool.Put(d)
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
	d.columns = d.columns[:cap(d.columns)]
	size := cap(d.times) + cap(d.tags) + cap(d.words) + cap(d.texts)
	for i := range d.columns {
		size += cap(d.columns[i].absent)
		d.columns[i].name = nil
	}
	if size > most {
		return
	}
	d.in = nil
	clear(d.tags[:cap(d.tags)])
	clear(d.texts[:cap(d.texts)])
	p.pool.Put(d)
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

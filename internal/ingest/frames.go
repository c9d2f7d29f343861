package ingest

import "encoding/binary"

// A frameWalker follows the frames of HTTP/2 that go over a connection in one
// direction, as far as it must to see where messages of gRPC begin and end. What
// is wrong with them is the business of the server of gRPC, which sees the same
// bytes.
type frameWalker struct {
	skip int // bytes of the preface, which a client sends first
	head [frameHead]byte
	have int // bytes of head

	left    int // bytes of the payload
	padding int // of these, how many at its end mean nothing
	padded  bool
}

const (
	frameHead    = 9
	prefaceBytes = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
	flagPadded    = 8
)

// A frameTaker is told what a frameWalker meets.
type frameTaker interface {
	// frame is called for each frame when its head has come.
	frame(kind, flags byte, stream uint32)
	// data is called for the content of frames of data, part by part.
	data(stream uint32, part []byte)
}

func (w *frameWalker) stream() uint32 { return binary.BigEndian.Uint32(w.head[5:]) &^ (1 << 31) }

// walk takes the next bytes.
func (w *frameWalker) walk(p []byte, to frameTaker) {
	if n := min(w.skip, len(p)); n > 0 {
		w.skip -= n
		p = p[n:]
	}
	for len(p) > 0 {
		if w.have < frameHead {
			n := copy(w.head[w.have:], p)
			w.have += n
			p = p[n:]
			if w.have < frameHead {
				return
			}
			w.left = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
			w.padding, w.padded = 0, w.head[3] == frameData && w.head[4]&flagPadded != 0
			to.frame(w.head[3], w.head[4], w.stream())
		}
		p = w.payload(p, to)
		if w.left == 0 {
			w.have = 0
		}
	}
}

// payload takes what is there of the payload, and returns what is behind it.
func (w *frameWalker) payload(p []byte, to frameTaker) (rest []byte) {
	if w.padded && w.left > 0 && len(p) > 0 {
		w.padding, w.padded = int(p[0]), false
		w.left--
		p = p[1:]
	}
	n := min(w.left, len(p))
	if content := min(n, w.left-w.padding); w.head[3] == frameData && content > 0 {
		to.data(w.stream(), p[:content])
	}
	w.left -= n
	return p[n:]
}

// messagePrefix is what stands in front of each message: a flag that says whether
// it is compressed, and its length.
const messagePrefix = 5

// A messageWalker follows the messages in the data of one stream.
type messageWalker struct {
	prefix [messagePrefix]byte
	have   int
	left   int64
}

// walk takes bytes of the data, and returns those behind the first message that
// begins or ends in them; began says that its length is known now, and ended that
// it is whole.
func (w *messageWalker) walk(p []byte) (rest []byte, began, ended bool) {
	if w.have < messagePrefix {
		n := copy(w.prefix[w.have:], p)
		w.have += n
		if w.have < messagePrefix {
			return nil, false, false
		}
		w.left = w.length()
		return p[n:], true, false
	}
	n := min(w.left, int64(len(p)))
	w.left -= n
	if w.left == 0 {
		w.have = 0
		return p[n:], false, true
	}
	return p[n:], false, false
}

func (w *messageWalker) length() int64    { return int64(binary.BigEndian.Uint32(w.prefix[1:])) }
func (w *messageWalker) compressed() bool { return w.prefix[0]&1 != 0 }

// inside reports whether a part of a message has come and another has not.
func (w *messageWalker) inside() bool { return w.have > 0 }

package batch

// textChunk is the length of a chunk of strings. Strings are far shorter, and
// none reaches over the end of its chunk.
const textChunk = 1 << 20

// texts holds the strings of a batch. It grows by whole chunks, since moving
// tens of megabytes to a larger array would need both at once.
type texts struct {
	chunks [][]byte
	first  int // bytes that the first chunk is made for; 0: not known
}

// add copies s and returns its position: the number of its chunk times
// textChunk, plus its place in there.
func (t *texts) add(s []byte) uint32 {
	last := len(t.chunks) - 1
	// Not even an empty string may begin at the end of a chunk, for that is the
	// position of the next one.
	if last < 0 || len(t.chunks[last])+max(len(s), 1) > textChunk {
		t.grow()
		last++
	}
	at := len(t.chunks[last])
	t.chunks[last] = append(t.chunks[last], s...)
	return uint32(last*textChunk + at)
}

// grow adds a chunk. The first one has what was said to come, or begins small,
// for most batches have little text.
func (t *texts) grow() {
	size := textChunk
	if len(t.chunks) == 0 {
		size = t.first
	}
	t.chunks = append(t.chunks, make([]byte, 0, size))
}

// at returns the n bytes at a position.
func (t *texts) at(position, n uint32) []byte {
	from := position % textChunk
	return t.chunks[position/textChunk][from : from+n : from+n]
}

// A textMark is a length of a texts.
type textMark struct{ chunks, last int }

func (t *texts) mark() textMark {
	n := len(t.chunks)
	if n == 0 {
		return textMark{}
	}
	return textMark{chunks: n, last: len(t.chunks[n-1])}
}

// cut takes away what was added behind the mark.
func (t *texts) cut(m textMark) {
	clear(t.chunks[m.chunks:])
	t.chunks = t.chunks[:m.chunks]
	if m.chunks > 0 {
		t.chunks[m.chunks-1] = t.chunks[m.chunks-1][:m.last]
	}
}

// size returns the bytes that are allocated.
func (t *texts) size() int {
	n := 0
	for _, c := range t.chunks {
		n += cap(c)
	}
	return n
}

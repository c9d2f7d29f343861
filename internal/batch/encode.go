package batch

import "encoding/binary"

// The encoded form of a batch, all numbers little endian:
//
//	head    received (ns) · rows · series · shapes · fields · values ·
//	        chunks · bytes of the series · bytes of the shapes
//	series  bytes of what follows the hash · hash · stream, sensor, number of tags,
//	        then name and value of each; a string has its length in front, see pack
//	shapes  length of the key, then the key: kind, length and name of each field
//	texts   length of the chunk, then the chunk
//	rows    time · index · size · series · shape
//	values  one word each, row after row
//
// Session and first sequence are not in it: they belong to the record that the
// batch is written in, and the granularity to the settings of its time.
const (
	headSize   = 8 + 8*4
	rowSize    = 8 + 4*4
	valueSize  = 8
	seriesHead = 4 + 8
	sizePrefix = 2 // of strings and keys, all far below 64 KiB
)

// EncodedSize is the number of bytes that AppendBinary adds.
func (b *Batch) EncodedSize() int {
	n := headSize + b.seriesSize() + b.shapesSize() + len(b.rows)*rowSize + len(b.values)*valueSize
	for _, c := range b.text.chunks {
		n += 4 + len(c)
	}
	return n
}

func (b *Batch) seriesSize() int {
	n := 0
	for i := range b.series {
		n += seriesHead + len(b.series[i].packed)
	}
	return n
}

func (b *Batch) shapesSize() int {
	n := 0
	for i := range b.shapes {
		n += sizePrefix + len(b.shapes[i].key)
	}
	return n
}

// AppendBinary adds the encoded form of b to dst.
func AppendBinary(dst []byte, b *Batch) []byte {
	fields := 0
	for i := range b.shapes {
		fields += len(b.shapes[i].Fields)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Received.UnixNano()))
	for _, n := range [...]int{
		len(b.rows), len(b.series), len(b.shapes), fields, len(b.values), len(b.text.chunks),
		b.seriesSize(), b.shapesSize(),
	} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	for i := range b.series {
		s := &b.series[i]
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.packed)))
		dst = binary.LittleEndian.AppendUint64(dst, s.hash)
		dst = append(dst, s.packed...)
	}
	for i := range b.shapes {
		dst = appendSizedText(dst, b.shapes[i].key)
	}
	for _, c := range b.text.chunks {
		dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(c))), c...)
	}
	dst = appendRows(dst, b.rows)
	return appendValues(dst, b.values)
}

func appendRows(dst []byte, rows []Row) []byte {
	at := len(dst)
	dst = extend(dst, len(rows)*rowSize)
	for i := range rows {
		r, to := &rows[i], dst[at+i*rowSize:][:rowSize]
		binary.LittleEndian.PutUint64(to, uint64(r.Time))
		binary.LittleEndian.PutUint32(to[8:], r.Index)
		binary.LittleEndian.PutUint32(to[12:], r.Size)
		binary.LittleEndian.PutUint32(to[16:], r.series)
		binary.LittleEndian.PutUint32(to[20:], r.shape)
	}
	return dst
}

func appendValues(dst []byte, values []uint64) []byte {
	at := len(dst)
	dst = extend(dst, len(values)*valueSize)
	to := dst[at:]
	for i, v := range values {
		binary.LittleEndian.PutUint64(to[i*valueSize:], v)
	}
	return dst
}

// extend makes dst n bytes longer; what they hold is left to the caller.
func extend(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	return append(dst, make([]byte, n)...)
}

func appendSizedText(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}

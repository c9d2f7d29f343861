package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// Summary is what can be said of an encoded batch at little cost.
type Summary struct {
	Received time.Time
	Readings int
}

// Summarize looks into an encoded batch without decoding it, and calls visit
// with each stream and the number of its readings; a stream may come more than
// once.
func Summarize(src []byte, visit func(stream []byte, readings int)) (Summary, error) {
	h, rest, err := decodeHead(src)
	if err != nil {
		return Summary{}, err
	}
	out := Summary{Received: time.Unix(0, h.received), Readings: h.rows}
	if h.series == 0 || visit == nil {
		return out, nil
	}
	names, same, err := streamNames(rest[:h.seriesBytes], h.series)
	if err != nil {
		return Summary{}, err
	}
	if same {
		visit(names[0], h.rows)
		return out, nil
	}
	rows := len(rest) - h.values*valueSize - h.rows*rowSize // they end the batch
	for i := range h.rows {
		n := binary.LittleEndian.Uint32(rest[rows+i*rowSize+16:])
		if int(n) >= len(names) {
			return Summary{}, fmt.Errorf("row %d of the encoded batch refers to what is not there", i)
		}
		visit(names[n], 1)
	}
	return out, nil
}

// streamNames returns the streams of n encoded series, only the first if all
// have the same.
func streamNames(section []byte, n int) (names [][]byte, same bool, err error) {
	same = true
	names = make([][]byte, 0, 1)
	for i := range n {
		var stream []byte
		var encoded []byte
		if _, encoded, section, err = cutEntry(section); err != nil {
			return nil, false, err
		}
		if stream, _, err = cutChecked(encoded); err != nil {
			return nil, false, err
		}
		if same && i > 0 && !bytes.Equal(stream, names[0]) {
			same = false
			for len(names) < i {
				names = append(names, names[0])
			}
		}
		if !same || i == 0 {
			names = append(names, stream)
		}
	}
	return names, same, nil
}

package block

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A stream of integers is a column of any kind but text: times, numbers of shapes and of
// strings, integers, booleans, and doubles as decimals. docs/storage.md describes it:
// differences of an order from 0 to 2, then runs of packed differences, or just one if
// they are all equal. If all values are an offset plus a multiple of a factor, the stream
// is that of the multiples: sensors have steps of 0.5 or 0.18 as often as of 0.01.

const (
	runLength = 128

	// The head of a stream.
	orderMask = 3
	constant  = 4
	factored  = 8

	// The width of a run: bits 0 to 6, and whether there are exceptions.
	widthMask     = 0x7f
	hasExceptions = 0x80
)

func zigzag(v uint64) uint64   { return v<<1 ^ uint64(int64(v)>>63) }
func unzigzag(v uint64) uint64 { return v>>1 ^ -(v & 1) }

// appendIntegers appends a stream, and may change the values. If bytewise is set, widths are
// multiples of eight, which zstd compresses better.
func appendIntegers(dst []byte, values []uint64, bytewise bool) []byte {
	if len(values) == 0 {
		return append(dst, constant)
	}
	order := chooseOrder(values, bytewise)
	first, same := constantDifference(values, order)
	head := byte(order)
	if same {
		head |= constant
	} else if factor := factorOf(values); factor > 1 {
		head |= factored
		dst = binary.AppendUvarint(append(dst, head), zigzag(values[0]))
		dst = binary.AppendUvarint(dst, factor)
		divide(values, factor)
	}
	if head&factored == 0 {
		dst = append(dst, head)
	}
	var last, step uint64 // value, and difference if the order is 2
	if order >= 1 {
		last = values[0]
		dst = binary.AppendUvarint(dst, zigzag(last))
	}
	if order == 2 {
		step = values[1] - last
		last = values[1]
		dst = binary.AppendUvarint(dst, zigzag(step))
	}
	values = values[order:]
	switch {
	case len(values) == 0:
		return dst
	case same:
		return binary.AppendUvarint(dst, zigzag(first))
	}
	var run [runLength]uint64
	var base uint64
	for len(values) > 0 {
		n := min(len(values), runLength)
		last, step = differences(run[:n], values, order, last, step)
		values = values[n:]
		dst = appendRun(dst, run[:n], &base, bytewise)
	}
	return dst
}

// factorOf returns the greatest factor of all distances from the first value; 0 or 1 if
// there is none to speak of.
func factorOf(values []uint64) uint64 {
	const few = 4 // for them, a factor takes more than it saves
	if len(values) <= few {
		return 0
	}
	var factor uint64
	offset := values[0]
	for _, v := range values[1:] {
		d := int64(v - offset)
		rest := uint64(max(d, -d))
		if rest>>32|factor>>32 == 0 {
			if factor != 0 && uint32(rest)%uint32(factor) == 0 {
				continue
			}
		} else if rest >= 1<<62 {
			return 0 // a distance may have run over
		}
		for rest != 0 { // Euclid's algorithm
			factor, rest = rest, factor%rest
		}
		if factor == 1 {
			break
		}
	}
	return factor
}

// divide turns values into multiples of their factor, from the first value on.
func divide(values []uint64, factor uint64) {
	const exact = 1 << 53
	offset := values[0]
	for i, v := range values {
		d := int64(v - offset)
		if d < exact && d > -exact && factor < exact { // nothing is rounded, and it is faster
			values[i] = uint64(int64(float64(d) / float64(factor)))
		} else {
			values[i] = uint64(d / int64(factor))
		}
	}
}

// constantDifference returns the first difference, and whether all are equal.
func constantDifference(values []uint64, order int) (first uint64, same bool) {
	var last, step uint64
	if order >= 1 {
		last = values[0]
	}
	if order == 2 {
		last, step = values[1], values[1]-values[0]
	}
	var run [runLength]uint64
	for rest := values[order:]; len(rest) > 0; {
		n := min(len(rest), runLength)
		last, step = differences(run[:n], rest, order, last, step)
		if len(rest) == len(values)-order {
			first = run[0]
		}
		for _, v := range run[:n] {
			if v != first {
				return first, false
			}
		}
		rest = rest[n:]
	}
	return first, true
}

// differences fills run with those of the values, which follow the value last and the
// difference step, and returns the new last and step.
func differences(run, values []uint64, order int, last, step uint64) (newLast, newStep uint64) {
	values = values[:len(run)]
	switch order {
	case 0:
		copy(run, values)
	case 1:
		for i, v := range values {
			run[i] = v - last
			last = v
		}
	default:
		for i, v := range values {
			d := v - last
			run[i] = d - step
			last, step = v, d
		}
	}
	return last, step
}

// chooseOrder returns the order that makes the first values smallest, and for long streams
// also some in the middle.
func chooseOrder(values []uint64, bytewise bool) int {
	const sample = runLength / 2
	parts := [2][]uint64{values[:min(len(values), sample)]}
	if len(values) >= 4*sample {
		parts[1] = values[len(values)/2:][:sample]
	}
	best, least := 0, math.MaxInt
	var run [sample]uint64
	for order := range min(3, len(values)) {
		cost := 0
		for _, part := range parts {
			if len(part) == 0 {
				continue
			}
			var last, step uint64
			if order >= 1 {
				last = part[0]
				cost += bits.Len64(zigzag(last)) + 7
			}
			if order == 2 {
				step = part[1] - last
				last = part[1]
				cost += bits.Len64(zigzag(step)) + 7
			}
			if n := len(part) - order; n > 0 {
				differences(run[:n], part[order:], order, last, step)
				if bytewise {
					cost += spread(run[:n])
				} else {
					cost += planRun(run[:n]).cost
				}
			}
		}
		if cost < least {
			best, least = order, cost
		}
	}
	return best
}

// spread says how much values differ, in bits: what they take after compression, roughly.
func spread(run []uint64) (sum int) {
	middle := medianOfFive(run)
	for _, v := range run {
		sum += bits.Len64(zigzag(v - middle))
	}
	return sum
}

// A plan says how a run is packed: values from base on take width bits, others are
// exceptions.
type plan struct {
	base  uint64
	width int
	cost  int // in bits, roughly
}

// planRun looks for the cheapest plan. Without exceptions, all values from the least to
// the largest fit. With them, the window is around a value in the middle:
//
//	     ┌── 2^width ──┐
//	─────┼──┴─┴┴┴┼┴┴──┴┼──────────┴── exception
//	    base    middle
func planRun(run []uint64) plan {
	least, most := int64(run[0]), int64(run[0])
	for _, v := range run {
		least, most = min(least, int64(v)), max(most, int64(v))
	}
	width := bits.Len64(uint64(most) - uint64(least))
	p := plan{base: uint64(least), width: width, cost: width*len(run) + 8 + bits.Len64(zigzag(uint64(least)))}
	if width <= 4 || len(run) < 16 {
		return p
	}
	middle := medianOfFive(run)
	var lengths [128]uint8 // how many differences from the middle have so many bits
	for _, v := range run {
		lengths[bits.Len64(zigzag(v-middle))&0x7f]++
	}
	count, sum := 0, 0                     // of exceptions, and of their bits
	for w := min(width, 63); w >= 0; w-- { // no difference is longer than width+1
		count += int(lengths[w+1])
		sum += int(lengths[w+1]) * (w + 1)
		base := middle
		if w > 0 {
			base -= 1 << (w - 1)
		}
		// An exception takes a byte for its place, and its upper bits in groups of seven.
		cost := w*len(run) + 8 + bits.Len64(zigzag(base)) + count*(8+4) + (sum-count*w)*8/7
		if count > 0 {
			cost += 8
		}
		if cost < p.cost {
			p = plan{base: base, width: w, cost: cost}
		}
	}
	return p
}

func medianOfFive(run []uint64) uint64 {
	n := len(run)
	five := [5]uint64{run[n/10], run[3*n/10], run[n/2], run[7*n/10], run[9*n/10]}
	slices.SortFunc(five[:], func(a, b uint64) int {
		if int64(a) < int64(b) {
			return -1
		}
		return 1
	})
	return five[2]
}

// appendRun appends a run; base is that of the run before.
func appendRun(dst []byte, run []uint64, base *uint64, bytewise bool) []byte {
	var p plan
	if bytewise {
		p = planBytes(run, *base)
	} else {
		p = planRun(run)
	}
	var places [runLength]byte // of exceptions
	exceptions := 0
	for i, v := range run {
		if p.width < 64 && (v-p.base)>>p.width != 0 {
			places[exceptions] = byte(i)
			exceptions++
		}
	}
	dst = binary.AppendUvarint(dst, zigzag(p.base-*base))
	*base = p.base
	if exceptions == 0 {
		return pack(append(dst, byte(p.width)), run, p.base, uint(p.width))
	}
	dst = append(dst, byte(p.width)|hasExceptions, byte(exceptions))
	dst = pack(dst, run, p.base, uint(p.width))
	dst = append(dst, places[:exceptions]...)
	for _, i := range places[:exceptions] {
		dst = binary.AppendUvarint(dst, zigzag(uint64(int64(run[i]-p.base)>>p.width)))
	}
	return dst
}

// planBytes returns a plan with whole bytes and, if that is possible, the base of the run
// before: equal values should have equal bytes in all runs.
func planBytes(run []uint64, before uint64) plan {
	least, most := int64(run[0]), int64(run[0])
	for _, v := range run {
		least, most = min(least, int64(v)), max(most, int64(v))
	}
	if least == most {
		return plan{base: run[0]}
	}
	outside := func(base uint64) (n int) {
		for _, v := range run {
			if (v-base)>>8 != 0 {
				n++
			}
		}
		return n
	}
	few := len(run) / 4
	if n := outside(before); before != 0 && n <= few {
		return plan{base: before, width: 8}
	}
	if base := medianOfFive(run) - 1<<7; outside(base) <= few {
		return plan{base: base, width: 8}
	}
	return plan{base: uint64(least), width: (bits.Len64(uint64(most)-uint64(least)) + 7) &^ 7}
}

// pack appends the lower bits of the values' distances from base.
func pack(dst []byte, run []uint64, base uint64, width uint) []byte {
	if width == 0 {
		return dst
	}
	size := (len(run)*int(width) + 7) / 8
	dst = slices.Grow(dst, size+8)
	to := dst[len(dst) : len(dst)+size+8]
	mask := ^uint64(0) >> (64 - width)
	var word uint64
	var filled uint
	at := 0
	for _, v := range run {
		d := (v - base) & mask
		word |= d << filled
		if filled += width; filled >= 64 {
			binary.LittleEndian.PutUint64(to[at:], word)
			at += 8
			filled -= 64
			word = d >> (width - filled)
		}
	}
	binary.LittleEndian.PutUint64(to[at:], word)
	return dst[:len(dst)+size]
}

// integers reads a stream of n integers and appends them to dst.
func (r *reader) integers(dst []uint64, n int) []uint64 {
	head := r.byte()
	order := int(head & orderMask)
	if head&^(orderMask|constant|factored) != 0 || order == 3 || order > n {
		r.fail("a stream of integers has an unknown form")
		return dst
	}
	if head&factored != 0 {
		offset, factor, at := unzigzag(r.uvarint()), r.uvarint(), len(dst)
		dst = r.streamOf(head, dst, n)
		for i, v := range dst[at:] {
			dst[at+i] = offset + factor*v
		}
		return dst
	}
	return r.streamOf(head, dst, n)
}

// streamOf reads a stream behind its head, offset and factor.
func (r *reader) streamOf(head byte, dst []uint64, n int) []uint64 {
	order := int(head & orderMask)
	var last, step uint64
	at := len(dst)
	if order >= 1 {
		last = unzigzag(r.uvarint())
	}
	if order == 2 {
		step = unzigzag(r.uvarint())
	}
	rest := n - order
	if head&constant == 0 && rest > 0 && len(r.rest) < 2*((rest+runLength-1)/runLength) {
		r.fail("a stream of integers is too short") // before memory is taken
	}
	if r.err != nil {
		return dst
	}
	dst = slices.Grow(dst, n)[:at+n]
	if order >= 1 {
		dst[at] = last
	}
	if order == 2 {
		last += step
		dst[at+1] = last
	}
	to := dst[at+order:]
	if head&constant != 0 {
		if rest > 0 {
			fill(to, unzigzag(r.uvarint()))
		}
		sum(to, order, last, step)
		return dst
	}
	var base uint64
	for len(to) > 0 && r.err == nil {
		run := to[:min(len(to), runLength)]
		r.run(run, &base)
		last, step = sum(run, order, last, step)
		to = to[len(run):]
	}
	if r.err != nil {
		return dst[:at]
	}
	return dst
}

func fill(to []uint64, v uint64) {
	for i := range to {
		to[i] = v
	}
}

// sum turns differences back into values: differences does the opposite.
func sum(run []uint64, order int, last, step uint64) (newLast, newStep uint64) {
	switch order {
	case 1:
		for i, d := range run {
			last += d
			run[i] = last
		}
	case 2:
		for i, d := range run {
			step += d
			last += step
			run[i] = last
		}
	}
	return last, step
}

// run reads a run; base is that of the run before.
func (r *reader) run(run []uint64, base *uint64) {
	*base += unzigzag(r.uvarint())
	head := r.byte()
	width, exceptions := uint(head&widthMask), 0
	if head&hasExceptions != 0 {
		exceptions = int(r.byte())
	}
	if width > 64 || exceptions > len(run) || exceptions > 0 && width == 64 {
		r.fail("a run of integers has an unknown form")
		return
	}
	size := (len(run)*int(width) + 7) / 8
	if len(r.rest) < size {
		r.fail("a run of integers is too short")
		return
	}
	if len(r.rest) >= size+8 {
		unpack(run, r.rest, *base, width)
	} else { // not so near the end
		var end [runLength*8 + 8]byte
		copy(end[:], r.rest)
		unpack(run, end[:size+8], *base, width)
	}
	r.rest = r.rest[size:]
	places := r.take(exceptions)
	for _, at := range places {
		high := unzigzag(r.uvarint())
		if int(at) >= len(run) {
			r.fail("an exception has no place in its run")
			return
		}
		run[at] += high << width
	}
}

// unpack reads values of width bits. There are eight more bytes behind them.
func unpack(run []uint64, from []byte, base uint64, width uint) {
	mask := ^uint64(0) >> (64 - width)
	var bit uint
	switch {
	case width == 0:
		fill(run, base)
		return
	case width <= 8: // eight values are in one word
		for len(run) >= 8 {
			word := binary.LittleEndian.Uint64(from)
			from = from[width:]
			to := run[:8:8]
			to[0] = base + word&mask
			to[1] = base + word>>width&mask
			to[2] = base + word>>(2*width)&mask
			to[3] = base + word>>(3*width)&mask
			to[4] = base + word>>(4*width)&mask
			to[5] = base + word>>(5*width)&mask
			to[6] = base + word>>(6*width)&mask
			to[7] = base + word>>(7*width)&mask
			run = run[8:]
		}
	case width > 56: // a value can be in nine bytes
		for i := range run {
			at, shift := bit>>3, bit&7
			word := binary.LittleEndian.Uint64(from[at:])>>shift | uint64(from[at+8])<<(64-shift)
			run[i] = base + word&mask
			bit += width
		}
		return
	}
	for i := range run {
		run[i] = base + binary.LittleEndian.Uint64(from[bit>>3:])>>(bit&7)&mask
		bit += width
	}
}

package block

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A stream of doubles is a stream of integers, of which each double is made:
//
//	decimals  integer / 10^exponent; doubles that are no such decimal are kept beside it
//	bits      the double's bits without zeros at their end, and the sign as the lowest bit,
//	          so that values around 0 differ in few bits
//
// The division rounds correctly, so a decimal of up to 15 digits is always the double
// that a program reads from its text.
const (
	exponentMask  = 0x1f
	asBits        = 0x1f // in place of an exponent
	withOddValues = 0x20

	maxDecimal = 1 << 53 // integers below it are exact as doubles
)

// Powers of ten that are exact.
var powers = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// decimal returns the integer of a double, false if the double is no decimal of this
// exponent.
func decimal(word uint64, power float64) (int64, bool) {
	m, ok := smallDecimal(word, power)
	if ok {
		return m, true
	}
	scaled := math.RoundToEven(math.Float64frombits(word) * power)
	if !(math.Abs(scaled) < maxDecimal) { // infinity and NaN, too
		return 0, false
	}
	m = int64(scaled)
	return m, math.Float64bits(float64(m)/power) == word
}

// smallDecimal is decimal where the integer is below 2^51; if not, it returns false. It is
// short enough to be inlined.
func smallDecimal(word uint64, power float64) (int64, bool) {
	const rounder = 3 << 51 // a sum with it has no room for digits behind the point
	m := int64(math.Float64frombits(word)*power + rounder - rounder)
	return m, math.Float64bits(float64(m)/power) == word
}

// exponentOf returns the smallest exponent with which a double is a decimal, but at least
// least; len(powers) if there is none. guess is where it is probably found.
func exponentOf(word uint64, least, guess int) int {
	e := guess
	for ; e < len(powers); e++ {
		if _, ok := decimal(word, powers[e]); ok {
			break
		}
		if !(math.Abs(math.Float64frombits(word))*powers[e] < maxDecimal) {
			return len(powers)
		}
	}
	for e > least && e <= guess {
		if _, ok := decimal(word, powers[e-1]); !ok {
			break
		}
		e--
	}
	return e
}

// chooseExponent returns the exponent, at least least, that suits a sample of the doubles,
// and the share of them that it suits. Each further digit makes all values longer by 3.3
// bits, and each double that is no decimal costs some 80 bits.
func chooseExponent(words []uint64, least int) (exponent int, share float64) {
	const sample, few = 32, 8
	var needs [len(powers) + 1]int
	n, guess := min(len(words), sample), least
	for i := range n {
		e := exponentOf(words[i*len(words)/n], least, guess)
		if needs[e]++; e < len(powers) {
			guess = max(guess, e)
		}
		if needs[len(powers)] == few && i == few-1 {
			return least, 0
		}
	}
	best, covered, all := math.MaxFloat64, 0, 0
	for e := least; e < len(powers); e++ {
		all += needs[e]
		if cost := float64(n)*3.33*float64(e) + 80*float64(n-all); needs[e] > 0 && cost < best {
			best, exponent, covered = cost, e, all
		}
	}
	return max(exponent, least), float64(covered) / float64(max(n, 1))
}

// appendDoubles appends a stream.
func (e *encoder) appendDoubles(dst []byte, words []uint64) []byte {
	exponent, share := chooseExponent(words, 0)
	if share > 0.5 {
		if e.toDecimals(words, exponent); len(e.odd) <= len(words)/8 {
			return e.appendDecimals(dst, words, exponent)
		}
		at := len(dst)
		dst = e.appendDecimals(dst, words, exponent)
		middle := len(dst)
		dst = e.appendBits(dst, words)
		if len(dst)-middle >= middle-at {
			return dst[:middle]
		}
		return append(dst[:at], dst[middle:]...)
	}
	return e.appendBits(dst, words)
}

// toDecimals turns doubles into decimals in e.integers, and the places of those that are
// none into e.odd.
func (e *encoder) toDecimals(words []uint64, exponent int) {
	power := powers[exponent]
	e.integers, e.odd = grown(e.integers, len(words)), e.odd[:0]
	to := e.integers[:len(words)]
	for i, word := range words {
		m, ok := smallDecimal(word, power)
		if !ok {
			if m, ok = decimal(word, power); !ok {
				e.addOdd(i)
				continue
			}
		}
		to[i] = uint64(m)
	}
}

// addOdd notes that value i is no decimal. The one before it costs least in its place.
func (e *encoder) addOdd(i int) {
	e.odd = append(e.odd, uint32(i))
	e.integers[i] = e.integers[max(i-1, 0)]
	if i == 0 {
		e.integers[0] = 0
	}
}

// mixedToDecimals is toDecimals for integers and doubles. It returns false if an integer is
// too large.
func (e *encoder) mixedToDecimals(words []uint64, kinds []telemetry.Kind, exponent int) bool {
	power := powers[exponent]
	e.integers, e.odd = grown(e.integers, len(words)), e.odd[:0]
	for i, word := range words {
		if kinds[i] == telemetry.Float {
			m, ok := decimal(word, power)
			if e.integers[i] = uint64(m); !ok || m%int64(power) == 0 { // a whole number would be read as an integer
				e.addOdd(i)
			}
			continue
		}
		v := int64(word)
		if v > maxDecimal || v < -maxDecimal || math.Abs(float64(v)*power) >= maxDecimal {
			return false
		}
		e.integers[i] = uint64(v * int64(power))
	}
	return true
}

// appendDecimals appends what toDecimals has made of the words.
func (e *encoder) appendDecimals(dst []byte, words []uint64, exponent int) []byte {
	head := byte(exponent)
	if len(e.odd) > 0 {
		head |= withOddValues
	}
	dst = append(dst, head)
	if len(e.odd) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(e.odd)))
		before := uint32(0)
		for _, i := range e.odd {
			dst = binary.AppendUvarint(dst, uint64(i-before))
			before = i
		}
		for _, i := range e.odd {
			dst = binary.LittleEndian.AppendUint64(dst, words[i])
		}
	}
	return appendIntegers(dst, e.integers[:len(words)], e.bytewise)
}

func (e *encoder) appendBits(dst []byte, words []uint64) []byte {
	var all uint64
	for _, word := range words {
		all |= word &^ signBit
	}
	shift := min(bits.TrailingZeros64(all), 62)
	e.integers = grown(e.integers, len(words))
	for i, word := range words {
		e.integers[i] = (word&^signBit)>>shift<<1 | word>>63
	}
	return appendIntegers(append(dst, asBits, byte(shift)), e.integers[:len(words)], e.bytewise)
}

const signBit = 1 << 63

// grown returns a slice of n values; what it holds is undefined.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// doubles reads a stream of n doubles and appends their bits to dst.
func (r *reader) doubles(dst []uint64, n int) []uint64 {
	at := len(dst)
	head := r.byte()
	if head == asBits {
		shift := uint(r.byte())
		if shift > 62 {
			r.fail("a stream of doubles has an unknown form")
			return dst
		}
		dst = r.integers(dst, n)
		for i, v := range dst[at:] {
			dst[at+i] = v>>1<<shift | v<<63
		}
		return dst
	}
	odd := r.oddValues(head, n)
	if r.err != nil {
		return dst
	}
	power := powers[head&exponentMask]
	if dst = r.integers(dst, n); r.err != nil {
		return dst
	}
	words := dst[at:]
	for i, v := range words {
		words[i] = math.Float64bits(float64(int64(v)) / power)
	}
	odd.each(func(i int, word uint64) { words[i] = word })
	return dst
}

// numbers reads a stream of n decimals, of which the whole ones are integers, and appends
// them and their kinds.
func (r *reader) numbers(dst []uint64, kinds []telemetry.Kind, n int) ([]uint64, []telemetry.Kind) {
	at := len(dst)
	head := r.byte()
	odd := r.oddValues(head, n)
	if head&exponentMask == 0 || head&exponentMask > 15 {
		r.fail("a stream of numbers has an unknown form")
	}
	if r.err != nil {
		return dst, kinds
	}
	power := powers[head&exponentMask]
	whole := int64(power)
	if dst = r.integers(dst, n); r.err != nil {
		return dst, kinds
	}
	words := dst[at:]
	for i, v := range words {
		kind := telemetry.Int
		if m := int64(v); m%whole != 0 {
			words[i], kind = math.Float64bits(float64(m)/power), telemetry.Float
		} else {
			words[i] = uint64(m / whole)
		}
		kinds = append(kinds, kind)
	}
	of := kinds[len(kinds)-n:]
	odd.each(func(i int, word uint64) { words[i], of[i] = word, telemetry.Float })
	return dst, kinds
}

// oddValues are doubles that are no decimals: their places, and behind these their bits.
type oddValues struct{ places, words []byte }

// oddValues reads those behind the head of a stream of decimals.
func (r *reader) oddValues(head byte, n int) (odd oddValues) {
	if head&^(exponentMask|withOddValues) != 0 || int(head&exponentMask) >= len(powers) {
		r.fail("a stream of doubles has an unknown form")
		return odd
	}
	if head&withOddValues == 0 {
		return odd
	}
	count := r.uvarint()
	if count > uint64(n) || count > uint64(len(r.rest)) {
		r.fail("a stream of doubles has too many odd values")
		return odd
	}
	from, place := r.rest, uint64(0)
	for range count {
		if place += r.uvarint(); place >= uint64(n) || r.err != nil {
			r.fail("an odd value has no place in its stream")
			return odd
		}
	}
	odd.places = from[:len(from)-len(r.rest)]
	odd.words = r.take(8 * int(count))
	return odd
}

func (o oddValues) each(do func(i int, word uint64)) {
	places, place := o.places, uint64(0)
	for words := o.words; len(words) > 0; words = words[8:] {
		gap, n := binary.Uvarint(places)
		places = places[n:]
		place += gap
		do(int(place), binary.LittleEndian.Uint64(words))
	}
}

package ingest

import "math"

// numberForm is how a number can be read.
type numberForm uint8

const (
	numberInt   numberForm = iota
	numberFloat            // has a fraction or an exponent
	numberHuge             // an integer that does not fit 64 bits
)

// parseInt parses a valid JSON number.
func parseInt(raw []byte) (int64, numberForm) {
	digits, negative := raw, false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var n uint64
	huge := false
	for _, c := range digits {
		if !isDigit(c) {
			return 0, numberFloat
		}
		// 19 digits fit an uint64, and any more are too many.
		huge = huge || n > (math.MaxUint64-9)/10
		n = n*10 + uint64(c-'0')
	}
	switch {
	case huge || (!negative && n > math.MaxInt64) || n > -math.MinInt64:
		return 0, numberHuge
	case negative:
		return -int64(n), numberInt
	}
	return int64(n), numberInt
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// maxDigits is how many digits always fit an unsigned 64-bit integer.
const maxDigits = 19

// readDigits appends the leading digits of s to those of n. The number is wrong if it has more
// than maxDigits digits.
func readDigits(n uint64, s []byte) (number uint64, digits int) {
	for i, c := range s {
		if c -= '0'; c > 9 {
			return n, i
		}
		n = n*10 + uint64(c)
	}
	return n, len(s)
}

// decimal returns the double n / 10^point; digits is the number of digits of n. exact is true
// if a double can represent both n and the power of ten: then the quotient is rounded only
// once, to the nearest double, as strconv does.
func decimal(n uint64, digits, point int) (v float64, exact bool) {
	if digits > maxDigits || n >= 1<<53 || point >= len(powersOfTen) {
		return 0, false
	}
	return float64(n) / powersOfTen[point], true
}

// powersOfTen are the ones that a double represents exactly.
var powersOfTen = [23]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// cutText shortens a number for a message.
func cutText(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}

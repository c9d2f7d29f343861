package ingest

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unsafe"
)

// skipSpace returns where the white space of JSON at src[i:] ends.
func skipSpace(src []byte, i int) int {
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
		i++
	}
	return i
}

// skipColon returns where the value behind the colon at src[i:] begins; 0 if
// there is no colon or nothing behind it.
func skipColon(src []byte, i int) int {
	if i = skipSpace(src, i); i == len(src) || src[i] != ':' {
		return 0
	}
	if i = skipSpace(src, i+1); i == len(src) {
		return 0
	}
	return i
}

// simpleString returns the contents of the string at src[i:] and where it ends,
// behind the quote; 0 if there is none, or one with an escape or a control
// character. Whether it is UTF-8 is not looked at.
func simpleString(src []byte, i int) (text []byte, end int) {
	if i >= len(src) || src[i] != '"' {
		return nil, 0
	}
	i++
	from := i
	for ; i+8 <= len(src); i += 8 {
		if special := specialBytes(binary.LittleEndian.Uint64(src[i:])); special != 0 {
			i += bits.TrailingZeros64(special) / 8
			if src[i] != '"' {
				return nil, 0
			}
			return src[from:i], i + 1
		}
	}
	for ; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			return src[from:i], i + 1
		case c == '\\' || c < ' ':
			return nil, 0
		}
	}
	return nil, 0
}

// specialBytes looks at eight bytes at once. The lowest bit that it returns is
// the highest of the first byte that is a quote, a backslash or a control
// character; higher ones mean nothing.
func specialBytes(word uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, backslash := word^(ones*'"'), word^(ones*'\\')
	return ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-ones*' ')&^word) & high
}

// A simpleNum is a number of JSON.
type simpleNum struct {
	end     int  // where it ends; 0 if it is not a number, or must be refused
	float   bool // it has a fraction or an exponent
	integer int64
	double  float64
}

// simpleNumber reads the number at src[i:]; what stands behind it is not looked
// at.
func simpleNumber(src []byte, i int) simpleNum {
	from := i
	if i < len(src) && src[i] == '-' {
		i++
	}
	first := i
	var n uint64 // of all digits; wrong if there are more than 19
	for ; i < len(src) && isDigit(src[i]); i++ {
		n = n*10 + uint64(src[i]-'0')
	}
	count := i - first
	if count == 0 || count > 1 && src[first] == '0' {
		return simpleNum{}
	}
	if i == len(src) || src[i] != '.' && src[i]|0x20 != 'e' {
		return simpleInteger(src[from:i], i, n, count)
	}
	point := 0 // digits behind it
	if src[i] == '.' {
		fraction := i + 1
		for i++; i < len(src) && isDigit(src[i]); i++ {
			n = n*10 + uint64(src[i]-'0')
		}
		if point = i - fraction; point == 0 {
			return simpleNum{}
		}
	}
	exponent := false
	if i < len(src) && src[i]|0x20 == 'e' {
		exponent = true
		if i = skipExponent(src, i+1); i == 0 {
			return simpleNum{}
		}
	}
	if f, exact := decimal(n, count+point, point); exact && !exponent {
		if src[from] == '-' {
			f = -f
		}
		return simpleNum{end: i, float: true, double: f}
	}
	f, err := strconv.ParseFloat(unsafe.String(&src[from], i-from), 64)
	if err != nil {
		return simpleNum{}
	}
	return simpleNum{end: i, float: true, double: f}
}

// simpleInteger returns an integer of which n and count are known.
func simpleInteger(raw []byte, end int, n uint64, count int) simpleNum {
	if count > 18 {
		v, form := parseInt(raw)
		if form != numberInt {
			return simpleNum{}
		}
		return simpleNum{end: end, integer: v}
	}
	if raw[0] == '-' {
		return simpleNum{end: end, integer: -int64(n)}
	}
	return simpleNum{end: end, integer: int64(n)}
}

// skipExponent returns where the exponent at src[i:], behind its letter, ends; 0
// if it has no digits.
func skipExponent(src []byte, i int) int {
	if i < len(src) && (src[i] == '+' || src[i] == '-') {
		i++
	}
	from := i
	for i < len(src) && isDigit(src[i]) {
		i++
	}
	if i == from {
		return 0
	}
	return i
}

// decimal returns the double whose digits make n, the last of them behind the
// point. It is exact where a double holds both the digits and the power of ten,
// so that the quotient is rounded once: to the double that is nearest, as strconv
// does.
func decimal(n uint64, digits, point int) (v float64, exact bool) {
	if digits > maxDigits || n >= 1<<53 || point >= len(powersOfTen) {
		return 0, false
	}
	return float64(n) / powersOfTen[point], true
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// powersOfTen are those that a double holds exactly.
var powersOfTen = [23]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

package telemetry

import (
	"encoding/hex"
	"strings"
)

// EscapeName percent-encodes a field or tag name that other systems allow and CheckFieldName
// does not. As in URLs, a byte becomes a percent sign and two hexadecimal digits.
//
//	http.requests  http%2Erequests    $x      %24x
//	a%             a%25               sensor  %73ensor    (ts, sensor, _id: the first byte)
//
// Most names stay as they are. An escaped name can still be too long, empty, or not UTF-8.
func EscapeName(name string) string {
	special := 0
	for i := range len(name) {
		if isSpecial(name, i) {
			special++
		}
	}
	if special == 0 {
		return name
	}
	escaped := make([]byte, 0, len(name)+2*special)
	for i := range len(name) {
		if isSpecial(name, i) {
			const digits = "0123456789ABCDEF"
			escaped = append(escaped, '%', digits[name[i]>>4], digits[name[i]&15])
		} else {
			escaped = append(escaped, name[i])
		}
	}
	return string(escaped)
}

// isSpecial reports whether the byte at i of a name is escaped.
func isSpecial(name string, i int) bool {
	switch name[i] {
	case '.', '%', 0:
		return true
	case '$':
		return i == 0
	case 't', 's', '_':
		return i == 0 && isReserved(name)
	}
	return false
}

// isReserved reports whether a name is reserved for Brim.
func isReserved(name string) bool { return name == "ts" || name == "sensor" || name == "_id" }

// UnescapeName reverses EscapeName. It returns any other name unchanged, such as 5% or a%20b.
func UnescapeName(name string) string {
	if strings.IndexByte(name, '%') < 0 {
		return name
	}
	original := make([]byte, 0, len(name))
	for rest := name; rest != ""; {
		if rest[0] != '%' {
			original, rest = append(original, rest[0]), rest[1:]
			continue
		}
		if len(rest) < 3 {
			return name
		}
		b, err := hex.DecodeString(rest[1:3])
		if err != nil {
			return name
		}
		original, rest = append(original, b[0]), rest[3:]
	}
	if out := string(original); EscapeName(out) == name {
		return out
	}
	return name
}

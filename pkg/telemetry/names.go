package telemetry

import (
	"fmt"
	"net/url"
	"strings"
)

// EscapeName percent-encodes field and tag names that CheckFieldName rejects but other
// systems allow. As in URLs, a byte becomes a percent sign and two hexadecimal digits.
//
//	http.requests  http%2Erequests    $x      %24x
//	a%             a%25               sensor  %73ensor    (ts, sensor, _id: the first byte)
//
// Most names stay as they are. An escaped name can still be too long, empty, or not UTF-8.
func EscapeName(name string) string {
	if !strings.ContainsAny(name, ".%\x00") && !strings.HasPrefix(name, "$") && !isReserved(name) {
		return name
	}
	escaped := make([]byte, 0, 3*len(name))
	for i, c := range []byte(name) {
		if c == '.' || c == '%' || c == 0 || i == 0 && (c == '$' || isReserved(name)) {
			escaped = fmt.Appendf(escaped, "%%%02X", c)
		} else {
			escaped = append(escaped, c)
		}
	}
	return string(escaped)
}

// isReserved reports whether a name is reserved for Brim.
func isReserved(name string) bool { return name == "ts" || name == "sensor" || name == "_id" }

// UnescapeName reverses EscapeName. It returns any other name unchanged, such as 5% or a%20b.
func UnescapeName(name string) string {
	if original, err := url.PathUnescape(name); err == nil && EscapeName(original) == name {
		return original
	}
	return name
}

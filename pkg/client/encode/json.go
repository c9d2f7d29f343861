package encode

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// AppendBody appends one JSON object for one reading and NDJSON for more, without
// a line break behind the last. Strings that are not UTF-8 are changed, and numbers
// that are not finite make a line that the daemon refuses: see Check.
func AppendBody(dst []byte, readings []telemetry.Reading) []byte {
	for i := range readings {
		if i > 0 {
			dst = append(dst, '\n')
		}
		dst = appendReading(dst, &readings[i])
	}
	return dst
}

// appendReading writes what Reading.AppendJSON does, for less: strings without
// anything to escape are copied, and the time is a number.
func appendReading(dst []byte, r *telemetry.Reading) []byte {
	dst = append(dst, `{"sensorId":`...)
	dst = appendString(dst, r.Sensor)
	if !r.Time.IsZero() { // or the daemon's own clock is asked for
		dst = append(dst, `,"ts":`...)
		dst = strconv.AppendInt(dst, r.Time.UnixMilli(), 10)
	}
	dst = append(dst, `,"fields":{`...)
	for i := range r.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, r.Fields[i].Name), ':')
		dst = appendValue(dst, r.Fields[i].Value)
	}
	dst = append(dst, '}')
	if len(r.Tags) > 0 {
		dst = append(dst, `,"tags":{`...)
		for i := range r.Tags {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, r.Tags[i].Name), ':')
			dst = appendString(dst, r.Tags[i].Value)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendValue(dst []byte, v telemetry.Value) []byte {
	switch v.Kind() {
	case telemetry.Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case telemetry.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case telemetry.Text:
		return appendString(dst, v.Text())
	}
	return appendFloat(dst, v.Float())
}

// decimals is the factor by which most measured values are whole.
const decimals = 1000

// appendFloat keeps a decimal point or an exponent, so that the daemon does not
// take a double for an integer. Values of up to three decimals, which is what
// sensors give, are written as two integers: a third of strconv's time.
func appendFloat(dst []byte, v float64) []byte {
	scaled := math.Round(v * decimals)
	if math.Abs(scaled) < 1e12 && scaled/decimals == v && scaled != 0 {
		return appendThousandths(dst, int64(scaled))
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
	for _, c := range dst[at:] {
		if c == '.' || c == 'e' || c == 'N' || c == 'I' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

func appendThousandths(dst []byte, v int64) []byte {
	if v < 0 {
		dst, v = append(dst, '-'), -v
	}
	dst = append(strconv.AppendInt(dst, v/decimals, 10), '.')
	v %= decimals
	dst = append(dst, '0'+byte(v/100))
	if v %= 100; v > 0 {
		dst = append(dst, '0'+byte(v/10))
	}
	if v %= 10; v > 0 {
		dst = append(dst, '0'+byte(v))
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			b, _ := json.Marshal(s) // a string always can be
			return append(dst, b...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

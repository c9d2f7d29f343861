package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// AppendJSON appends the reading in the form in which the HTTP API takes and
// gives it. Doubles keep a decimal point or an exponent, so that reading them
// back does not make integers of them.
func (r Reading) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"sensorId":`...)
	dst = appendString(dst, r.Sensor)
	dst = append(dst, `,"ts":"`...)
	dst = r.Time.UTC().AppendFormat(dst, TimeFormat)
	dst = append(dst, `","fields":{`...)
	for i, f := range r.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, f.Name), ':')
		dst = f.Value.AppendJSON(dst)
	}
	dst = append(dst, '}')
	if len(r.Tags) > 0 {
		dst = append(dst, `,"tags":{`...)
		for i, t := range r.Tags {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, t.Name), ':')
			dst = appendString(dst, t.Value)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// MarshalJSON implements json.Marshaler.
func (r Reading) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// AppendJSON appends the value alone.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case Bool:
		return strconv.AppendBool(dst, v.Bool())
	case Text:
		return appendString(dst, v.text)
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, v.Float(), 'g', -1, 64)
	if !bytes.ContainsAny(dst[at:], ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// String formats the value for people.
func (v Value) String() string {
	switch v.kind {
	case Text:
		return v.text
	case Int, Bool:
		return string(v.AppendJSON(nil))
	}
	return fmt.Sprint(v.Float())
}

func appendString(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return append(dst, b...)
}

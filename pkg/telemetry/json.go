package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the reading in the format of the HTTP API. Doubles keep a decimal
// point or an exponent, so that they are not read back as integers.
func (r Reading) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"sensorId":`...), r.Sensor)
	dst = append(dst, `,"ts":"`...)
	dst = AppendTime(dst, r.Time)
	return r.appendContent(append(dst, '"'))
}

// AppendNDJSON appends a request body: one object per reading, separated by line
// breaks, with the time in milliseconds. A reading without a time has no ts. Invalid
// UTF-8 is replaced, and a number that is not finite makes a line that the daemon
// refuses.
func AppendNDJSON(dst []byte, readings []Reading) []byte {
	for i := range readings {
		r := &readings[i]
		if i > 0 {
			dst = append(dst, '\n')
		}
		dst = appendString(append(dst, `{"sensorId":`...), r.Sensor)
		if !r.Time.IsZero() {
			dst = strconv.AppendInt(append(dst, `,"ts":`...), r.Time.UnixMilli(), 10)
		}
		dst = r.appendContent(dst)
	}
	return dst
}

// appendContent appends the fields, the tags and the closing brace.
func (r *Reading) appendContent(dst []byte) []byte {
	dst = append(dst, `,"fields":{`...)
	for i := range r.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, r.Fields[i].Name), ':')
		dst = r.Fields[i].Value.AppendJSON(dst)
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

// MarshalJSON implements json.Marshaler.
func (r Reading) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler: it reads the format of the HTTP API, and
// ignores members that a reading does not have. Numbers with a decimal point or an
// exponent are doubles, others are integers.
func (r *Reading) UnmarshalJSON(text []byte) error {
	var given struct {
		Sensor *string         `json:"sensorId"`
		Time   time.Time       `json:"ts"`
		Fields json.RawMessage `json:"fields"`
		Tags   json.RawMessage `json:"tags"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	if given.Sensor == nil || len(given.Fields) == 0 {
		return errors.New("sensorId or fields are missing")
	}
	*r = Reading{Sensor: *given.Sensor, Time: given.Time.UTC()}
	err := eachMember(given.Fields, func(name string, value json.Token) error {
		v, err := valueOf(value)
		if err != nil {
			return fmt.Errorf("field %s: %w", Quote([]byte(name)), err)
		}
		r.Fields = append(r.Fields, Field{Name: name, Value: v})
		return nil
	})
	if err != nil || len(given.Tags) == 0 {
		return err
	}
	return eachMember(given.Tags, func(name string, value json.Token) error {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("tag %s is not a string", Quote([]byte(name)))
		}
		r.Tags = append(r.Tags, Tag{Name: name, Value: text})
		return nil
	})
}

// eachMember calls see for each member of an object, in order.
func eachMember(text []byte, see func(name string, value json.Token) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("fields or tags are not an object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // keys are always strings
		if err := see(name, value); err != nil {
			return err
		}
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler, like Reading.UnmarshalJSON for values.
func (v *Value) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return err
	}
	*v, err = valueOf(t)
	return err
}

func valueOf(t json.Token) (Value, error) {
	switch v := t.(type) {
	case bool:
		return BoolValue(v), nil
	case string:
		return TextValue(v), nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			f, err := v.Float64()
			return FloatValue(f), err
		}
		i, err := v.Int64()
		return IntValue(i), err
	}
	return Value{}, errors.New("its value is not a number, a boolean or a string")
}

// AppendJSON appends only the value.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case Bool:
		return strconv.AppendBool(dst, v.Bool())
	case Text:
		return appendString(dst, v.text)
	}
	return appendFloat(dst, v.Float())
}

// appendFloat appends the shortest text that parses as v. Most measured values have
// at most three decimals; formatting them as two integers takes a third of strconv's
// time.
func appendFloat(dst []byte, v float64) []byte {
	const decimals, below = 1000, 1e6 // from there on strconv uses an exponent
	if scaled := math.Round(v * decimals); math.Abs(v) < below && scaled/decimals == v && scaled != 0 {
		n := int64(scaled)
		if n < 0 {
			dst, n = append(dst, '-'), -n
		}
		dst = append(strconv.AppendInt(dst, n/decimals, 10), '.', '0'+byte(n/100%10), '0'+byte(n/10%10), '0'+byte(n%10))
		for end := len(dst) - 1; dst[end] == '0' && dst[end-1] != '.'; end-- {
			dst = dst[:end]
		}
		return dst
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
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
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			b, _ := json.Marshal(s) // strings can always be encoded
			return append(dst, b...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

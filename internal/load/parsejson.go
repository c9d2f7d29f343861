package load

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var errNoObject = errors.New(`the line is not a JSON object; a reading is written {"sensorId":"s-1","ts":"2026-11-21T10:00:00Z","fields":{"t":23.5}}`)

// parseJSON makes a reading of a JSON object.
func (p *parser) parseJSON(line []byte) (r telemetry.Reading, err error) {
	p.buffer.Reset()
	p.buffer.Write(line)
	p.json.Reset(&p.buffer)
	if p.json.PeekKind() != '{' {
		return r, errNoObject
	}
	err = p.eachMember(func(name string, kind jsontext.Kind) error { return p.member(&r, name, kind) })
	if err == nil && p.json.PeekKind() != 0 {
		err = errors.New("there is something behind the object; allowed is one a line")
	}
	return r, err
}

// eachMember calls take for each member of the object that is next; it has to
// read the member's value.
func (p *parser) eachMember(take func(name string, kind jsontext.Kind) error) error {
	if _, err := p.json.ReadToken(); err != nil {
		return brokenJSON(err)
	}
	for p.json.PeekKind() == '"' {
		name, err := p.text()
		if err != nil {
			return err
		}
		if err := take(name, p.json.PeekKind()); err != nil {
			return err
		}
	}
	if _, err := p.json.ReadToken(); err != nil {
		return brokenJSON(err)
	}
	return nil
}

func brokenJSON(err error) error {
	return fmt.Errorf("the line is not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
}

// text reads a string.
func (p *parser) text() (string, error) {
	token, err := p.json.ReadToken()
	if err != nil {
		return "", brokenJSON(err)
	}
	return token.String(), nil
}

// member reads a member of a reading.
func (p *parser) member(r *telemetry.Reading, name string, kind jsontext.Kind) (err error) {
	switch {
	case name == "sensorId" && kind == '"':
		r.Sensor, err = p.text()
		r.Sensor = p.word([]byte(r.Sensor))
		return err
	case name == "ts" && kind == '"':
		s, err := p.text()
		if err == nil {
			r.Time, err = parseTimestamp(s)
		}
		return err
	case name == "ts" && kind == '0':
		value, err := p.json.ReadValue()
		if err != nil {
			return brokenJSON(err)
		}
		ms, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return fmt.Errorf("ts %s is not a whole number of milliseconds since 1970", telemetry.Quote(value))
		}
		r.Time = time.UnixMilli(ms).UTC()
		return nil
	case name == "fields" && kind == '{':
		return p.eachMember(func(field string, kind jsontext.Kind) error {
			v, err := p.value(field, kind)
			r.Fields = append(r.Fields, telemetry.Field{Name: p.word([]byte(field)), Value: v})
			return err
		})
	case name == "tags" && kind == '{':
		return p.eachMember(func(tag string, kind jsontext.Kind) error {
			if kind != '"' {
				return fmt.Errorf("tag %s is no string", telemetry.Quote([]byte(tag)))
			}
			v, err := p.text()
			r.Tags = append(r.Tags, telemetry.Tag{Name: p.word([]byte(tag)), Value: p.word([]byte(v))})
			return err
		})
	}
	if _, err := p.json.ReadValue(); err != nil {
		return brokenJSON(err)
	}
	return fmt.Errorf("%s is not a member of a reading, or has a wrong type; allowed are sensorId (a string), ts (a string or a number), fields and tags (objects)", telemetry.Quote([]byte(name)))
}

// value reads the value of a field.
func (p *parser) value(name string, kind jsontext.Kind) (telemetry.Value, error) {
	switch kind {
	case 't', 'f':
		token, err := p.json.ReadToken()
		if err != nil {
			return telemetry.Value{}, brokenJSON(err)
		}
		return telemetry.BoolValue(token.Bool()), nil
	case '"':
		s, err := p.text()
		return telemetry.TextValue(s), err
	case '0':
		value, err := p.json.ReadValue()
		if err != nil {
			return telemetry.Value{}, brokenJSON(err)
		}
		return number(name, string(value))
	}
	return telemetry.Value{}, fmt.Errorf("field %s is no number, boolean or string", telemetry.Quote([]byte(name)))
}

// number reads a number: an integer unless it has a point or an exponent.
func number(name, s string) (telemetry.Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return telemetry.Value{}, fmt.Errorf("field %s is %s, which does not fit a signed 64-bit integer", telemetry.Quote([]byte(name)), telemetry.Quote([]byte(s)))
		}
		return telemetry.IntValue(n), nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return telemetry.Value{}, fmt.Errorf("field %s is %s, beyond the range of a double", telemetry.Quote([]byte(name)), telemetry.Quote([]byte(s)))
	}
	return telemetry.FloatValue(v), nil
}

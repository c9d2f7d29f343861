package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// parseLine reads a line of NDJSON: a reading, or the reason why there are no more.
func parseLine(line []byte) (telemetry.Reading, error) {
	r, err := parseReading(line)
	if err == nil {
		return r, nil
	}
	var broken struct {
		Error *struct{ Code, Message string }
	}
	if json.Unmarshal(line, &broken) == nil && broken.Error != nil {
		return telemetry.Reading{}, &telemetry.Error{Code: broken.Error.Code, Message: broken.Error.Message}
	}
	return telemetry.Reading{}, err
}

// parseReading reads a reading as a daemon gives it. Numbers with a decimal point
// or an exponent are doubles, the others are integers.
func parseReading(text []byte) (telemetry.Reading, error) {
	var given struct {
		Sensor *string         `json:"sensorId"`
		Time   time.Time       `json:"ts"`
		Fields json.RawMessage `json:"fields"`
		Tags   json.RawMessage `json:"tags"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return telemetry.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	if given.Sensor == nil || len(given.Fields) == 0 {
		return telemetry.Reading{}, errors.New("decode reading: it has no sensorId or no fields")
	}
	r := telemetry.Reading{Sensor: *given.Sensor, Time: given.Time.UTC()}
	err := eachMember(given.Fields, func(name string, value json.Token) error {
		v, err := parseValue(value)
		if err != nil {
			return fmt.Errorf("field %s: %w", telemetry.Quote([]byte(name)), err)
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: v})
		return nil
	})
	if err == nil && len(given.Tags) > 0 {
		err = eachMember(given.Tags, func(name string, value json.Token) error {
			text, ok := value.(string)
			if !ok {
				return fmt.Errorf("tag %s is not a string", telemetry.Quote([]byte(name)))
			}
			r.Tags = append(r.Tags, telemetry.Tag{Name: name, Value: text})
			return nil
		})
	}
	if err != nil {
		return telemetry.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	return r, nil
}

// eachMember calls see with each member of an object, in the order of the text.
func eachMember(text []byte, see func(name string, value json.Token) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("its fields or tags are not an object")
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
		name, _ := key.(string) // a key of an object always is one
		if err := see(name, value); err != nil {
			return err
		}
	}
	return nil
}

func parseValue(t json.Token) (telemetry.Value, error) {
	switch v := t.(type) {
	case bool:
		return telemetry.BoolValue(v), nil
	case string:
		return telemetry.TextValue(v), nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			f, err := v.Float64()
			return telemetry.FloatValue(f), err
		}
		i, err := v.Int64()
		return telemetry.IntValue(i), err
	}
	return telemetry.Value{}, errors.New("its value is not a number, a boolean or a string")
}

// decodeStep reads the next step of a summary; io.EOF where there is none.
func decodeStep(d *json.Decoder) (Step, error) {
	var given struct {
		Start  time.Time
		Count  int64
		Fields map[string]struct {
			N        int64
			Min, Max json.Number
			Mean     *float64
		}
		Error *struct{ Code, Message string }
	}
	if err := d.Decode(&given); err != nil {
		return Step{}, err
	}
	if given.Error != nil {
		return Step{}, &telemetry.Error{Code: given.Error.Code, Message: given.Error.Message}
	}
	s := Step{Start: given.Start.UTC(), Count: given.Count, Fields: make(map[string]StepField, len(given.Fields))}
	for name, f := range given.Fields {
		least, err := parseValue(f.Min)
		if err != nil {
			return Step{}, fmt.Errorf("decode minimum: %w", err)
		}
		most, err := parseValue(f.Max)
		if err != nil {
			return Step{}, fmt.Errorf("decode maximum: %w", err)
		}
		field := StepField{N: f.N, Min: least, Max: most, Mean: math.NaN()}
		if f.Mean != nil {
			field.Mean = *f.Mean
		}
		s.Fields[name] = field
	}
	return s, nil
}

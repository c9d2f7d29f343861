package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// parseLine makes a reading of a line of line protocol. Its sensor is the series
// key, as the daemon has it: the measurement and the sorted tags.
func (p *parser) parseLine(line []byte) (r telemetry.Reading, err error) {
	if bytes.IndexByte(line, '\n') >= 0 {
		return r, errors.New("the line has more than one")
	}
	d := lineprotocol.NewDecoderWithBytes(line)
	if !d.Next() {
		return r, errors.New("the line is empty")
	}
	measurement, err := d.Measurement()
	if err != nil {
		return r, brokenLine(err)
	}
	name := string(measurement) // the decoder's memory is used again
	for {
		key, value, err := d.NextTag()
		if err != nil {
			return r, brokenLine(err)
		}
		if key == nil {
			break
		}
		r.Tags = append(r.Tags, telemetry.Tag{Name: p.word(key), Value: p.word(value)})
	}
	slices.SortStableFunc(r.Tags, func(a, b telemetry.Tag) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(r.Tags); i++ {
		if r.Tags[i].Name == r.Tags[i-1].Name {
			return r, fmt.Errorf("tag %s is given twice", telemetry.Quote([]byte(r.Tags[i].Name)))
		}
	}
	r.Sensor = p.word(seriesKey(name, r.Tags))
	if err := p.lineFields(d, &r); err != nil {
		return r, err
	}
	at, err := d.Time(p.precision, time.Time{})
	if err != nil {
		return r, brokenLine(err)
	}
	if p.guessed && at.Year() == 1970 {
		return r, fmt.Errorf("the timestamp is %s if it counts nanoseconds; name what it counts: us, ms or s (ns if that is right)", at.UTC().Format(time.RFC3339))
	}
	if !at.IsZero() {
		r.Time = time.UnixMilli(at.UnixMilli()).UTC()
	}
	return r, nil
}

func (p *parser) lineFields(d *lineprotocol.Decoder, r *telemetry.Reading) error {
	for {
		key, value, err := d.NextField()
		if err != nil {
			return brokenLine(err)
		}
		if key == nil {
			return nil
		}
		if slices.ContainsFunc(r.Fields, func(f telemetry.Field) bool { return f.Name == string(key) }) {
			return fmt.Errorf("field %s is given twice", telemetry.Quote(key))
		}
		f := telemetry.Field{Name: p.word(key)}
		switch value.Kind() {
		case lineprotocol.Int:
			f.Value = telemetry.IntValue(value.IntV())
		case lineprotocol.Uint:
			if value.UintV() > math.MaxInt64 {
				return fmt.Errorf("field %s is %d, which does not fit a signed 64-bit integer", telemetry.Quote(key), value.UintV())
			}
			f.Value = telemetry.IntValue(int64(value.UintV()))
		case lineprotocol.Bool:
			f.Value = telemetry.BoolValue(value.BoolV())
		case lineprotocol.String:
			f.Value = telemetry.TextValue(value.StringV())
		default:
			if refusal := telemetry.CheckFloat(key, value.FloatV()); refusal != nil {
				return refusal
			}
			f.Value = telemetry.FloatValue(value.FloatV())
		}
		r.Fields = append(r.Fields, f)
	}
}

func brokenLine(err error) error {
	const most = 200
	var syntax *lineprotocol.DecodeError
	where := ""
	if errors.As(err, &syntax) {
		where, err = fmt.Sprintf(" at column %d", syntax.Column), syntax.Err
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Errorf("the line is not line protocol: %s%s; it is written cpu,host=a usage=42.5 1795255200000000000", text, where)
}

// seriesKey returns the sensor id that the daemon gives to the series.
func seriesKey(measurement string, tags []telemetry.Tag) []byte {
	key := telemetry.AppendSeriesWord(nil, measurement, false)
	for _, t := range tags {
		key = telemetry.AppendSeriesWord(append(key, ','), t.Name, true)
		key = telemetry.AppendSeriesWord(append(key, '='), t.Value, true)
	}
	return key
}

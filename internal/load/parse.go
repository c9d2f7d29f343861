package load

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Format is what a file to replay is written in.
type Format string

// The formats.
const (
	NDJSON       Format = "ndjson" // a reading a line, as POST /v1/readings takes it
	LineProtocol Format = "line"   // InfluxDB line protocol
)

// ParseFormat returns the format that s names; empty is none.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case NDJSON, LineProtocol, "":
		return f, nil
	}
	return "", fmt.Errorf("format %q is unknown; allowed are ndjson and line, or none, to have the file looked at", s)
}

// A Precision is what a timestamp of line protocol counts.
type Precision string

// ParsePrecision returns the precision that s names; empty is none.
func ParsePrecision(s string) (Precision, error) {
	if _, known := precisions()[Precision(s)]; !known && s != "" {
		return "", fmt.Errorf("precision %q is unknown; allowed are ns, us, ms and s", s)
	}
	return Precision(s), nil
}

func precisions() map[Precision]lineprotocol.Precision {
	return map[Precision]lineprotocol.Precision{
		"ns": lineprotocol.Nanosecond, "us": lineprotocol.Microsecond, "ms": lineprotocol.Millisecond, "s": lineprotocol.Second,
	}
}

// guessFormat tells the format from the first line that is not empty.
func guessFormat(line []byte) Format {
	if line = bytes.TrimSpace(line); len(line) > 0 && (line[0] == '{' || line[0] == '[') {
		return NDJSON
	}
	return LineProtocol
}

// A parser makes readings of lines. Names, ids and values of tags, which occur
// again and again, are kept once.
type parser struct {
	words     map[string]string
	json      *jsontext.Decoder
	buffer    bytes.Buffer // that json reads
	precision lineprotocol.Precision
	guessed   bool // the precision was not given
}

// maxWords bounds what is kept.
const maxWords = 1 << 20

func newParser(precision Precision) *parser {
	p := &parser{words: make(map[string]string), precision: lineprotocol.Nanosecond, guessed: precision == ""}
	if !p.guessed {
		p.precision = precisions()[precision]
	}
	p.json = jsontext.NewDecoder(&p.buffer)
	return p
}

func (p *parser) word(b []byte) string {
	if w, ok := p.words[string(b)]; ok {
		return w
	}
	w := string(b)
	if len(p.words) < maxWords {
		p.words[w] = w
	}
	return w
}

// parse returns the reading in a line, or what is wrong with it and what is
// allowed.
func (p *parser) parse(f Format, line []byte) (telemetry.Reading, error) {
	var r telemetry.Reading
	var err error
	if f == NDJSON {
		r, err = p.parseJSON(line)
	} else {
		r, err = p.parseLine(line)
	}
	if err != nil {
		return r, err
	}
	return r, check(&r)
}

// check holds the reading to the rules of the daemon.
func check(r *telemetry.Reading) error {
	if refusal := telemetry.CheckSensor([]byte(r.Sensor)); refusal != nil {
		return refusal
	}
	switch {
	case r.Time.IsZero():
		return errors.New("the reading has no ts, which says when it is due")
	case r.Time.UnixMilli() < 0 || r.Time.Year() > 9999:
		return errors.New("the reading's time lies outside the years 1970 to 9999")
	case len(r.Fields) == 0 || len(r.Fields) > telemetry.MaxFields:
		return fmt.Errorf("the reading has %d fields; allowed are 1 to %d", len(r.Fields), telemetry.MaxFields)
	case len(r.Tags) > telemetry.MaxTags:
		return fmt.Errorf("the reading has %d tags; at most %d are allowed", len(r.Tags), telemetry.MaxTags)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		if refusal := telemetry.CheckFieldName([]byte(f.Name)); refusal != nil {
			return refusal
		}
		if f.Value.Kind() == telemetry.Text {
			if refusal := telemetry.CheckFieldText([]byte(f.Name), []byte(f.Value.Text())); refusal != nil {
				return refusal
			}
		}
	}
	for _, t := range r.Tags {
		if refusal := telemetry.CheckTagName([]byte(t.Name)); refusal != nil {
			return refusal
		}
		if refusal := telemetry.CheckTagText([]byte(t.Name), []byte(t.Value)); refusal != nil {
			return refusal
		}
	}
	return nil
}

// parseTimestamp reads an RFC 3339 timestamp, what is finer than a millisecond cut
// off towards the past.
func parseTimestamp(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil {
		return t, fmt.Errorf("ts %s is not a time; allowed are RFC 3339, like 2026-11-21T10:00:00.123Z, and whole milliseconds since 1970", telemetry.Quote([]byte(s)))
	}
	return time.UnixMilli(t.UnixMilli()).UTC(), nil
}

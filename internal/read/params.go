package read

import (
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// params are what a request asks for.
type params struct {
	call   call
	source Source
	stream string
	query  telemetry.Query // without Unstored
	after  cursor
	every  int64 // milliseconds; 0: one step
	list   telemetry.SensorQuery
	lines  bool // NDJSON rather than JSON

	storedOnly bool
}

// allowed lists the parameters of each call.
func allowed(c call) []string {
	switch c {
	case callSensors:
		return []string{"after", "limit", "prefix", "stream", "unstored"}
	case callSummary:
		return []string{"every", "from", "stream", "to", "unstored"}
	case callReadings:
		return []string{"after", "from", "limit", "stream", "to", "unstored"}
	case callLatest:
		return []string{"stream", "unstored"}
	default:
		return []string{"stream"}
	}
}

// neverEmpty are the parameters of which no value is empty.
var neverEmpty = []string{"every", "from", "limit", "to", "unstored"}

func invalid(format string, args ...any) error {
	return telemetry.Errorf(telemetry.Invalid, "invalid_parameter", format, args...)
}

// parse reads what a request asks for, the source apart.
func parse(c call, sensor string, r *http.Request) (params, error) {
	p := params{call: c, query: telemetry.Query{Sensor: sensor}}
	if c != callSensors {
		if refusal := telemetry.CheckSensor([]byte(sensor)); refusal != nil {
			return params{}, invalid("%s", refusal.Message)
		}
	}
	values, err := parseQuery(r.URL.RawQuery, allowed(c))
	if err != nil {
		return params{}, err
	}
	p.stream = values.Get("stream")
	switch s := values.Get("unstored"); s {
	case "", "on":
	case "off":
		p.storedOnly = true
	default:
		return params{}, invalid("unstored %s is unknown; allowed are on and off", telemetry.Quote([]byte(s)))
	}
	switch c {
	case callSensors:
		err = p.parseList(values)
	case callReadings:
		err = p.parseReadings(values)
	case callSummary:
		err = p.parseSummary(values)
	}
	if err != nil {
		return params{}, err
	}
	lines := c == callReadings || c == callSummary || c == callSensors
	p.lines, err = wantsLines(r.Header.Values("Accept"), lines)
	return p, err
}

// parseQuery returns the parameters, each of which may be given once.
func parseQuery(raw string, allowed []string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the query string is malformed: %v", err)
	}
	for key, given := range values {
		if !slices.Contains(allowed, key) {
			return nil, invalid("parameter %s is unknown; allowed are %s", telemetry.Quote([]byte(key)), strings.Join(allowed, ", "))
		}
		if len(given) > 1 {
			return nil, invalid("parameter %s is given %d times; once is allowed", key, len(given))
		}
		if given[0] == "" && slices.Contains(neverEmpty, key) {
			return nil, invalid("parameter %s has no value; give it one, or leave it out", key)
		}
	}
	return values, nil
}

func (p *params) parseReadings(values url.Values) error {
	if err := p.parseSpan(values); err != nil {
		return err
	}
	var err error
	if p.query.Limit, err = parseLimit(values, DefaultLimit, MaxLimit); err != nil {
		return err
	}
	if s := values.Get("after"); s != "" {
		if p.after, err = parseCursor(s); err != nil {
			return invalid("%v", err)
		}
	}
	return nil
}

func (p *params) parseSpan(values url.Values) error {
	var err error
	if p.query.From, err = parseTime(values, "from", 0); err != nil {
		return err
	}
	if p.query.To, err = parseTime(values, "to", maxTime); err != nil {
		return err
	}
	if p.query.From > p.query.To {
		return invalid("from %s is after to %s", telemetry.FormatMillis(p.query.From), telemetry.FormatMillis(p.query.To))
	}
	return nil
}

// MaxSteps is how many steps one summary may have: 10,000 steps of ten fields
// are some 8 MB of JSON.
const MaxSteps = 10_000

func (p *params) parseSummary(values url.Values) error {
	if err := p.parseSpan(values); err != nil {
		return err
	}
	text := values.Get("every")
	if text == "" {
		return nil
	}
	every, err := parseEvery(text)
	if err != nil {
		return invalid("every %v", err)
	}
	to, end := p.query.To, telemetry.FormatMillis(p.query.To)
	if values.Get("to") == "" {
		to, end = time.Now().UnixMilli(), "now" // what lies ahead counts when it is found
	}
	if p.query.From < to {
		if steps := (to-1)/every - p.query.From/every + 1; steps > MaxSteps {
			return invalid("the span from %s to %s has %d steps of %s; at most %d are allowed: give a narrower span with from and to, or a longer every",
				telemetry.FormatMillis(p.query.From), end, steps, text, MaxSteps)
		}
	}
	p.every = every
	return nil
}

func (p *params) parseList(values url.Values) error {
	p.list = telemetry.SensorQuery{Prefix: values.Get("prefix"), After: values.Get("after")}
	for key, text := range map[string]string{"prefix": p.list.Prefix, "after": p.list.After} {
		if len(text) > telemetry.MaxSensorBytes || !utf8.ValidString(text) {
			return invalid("%s %s is no part of a sensor id; those are UTF-8 of at most %d bytes", key, telemetry.Quote([]byte(text)), telemetry.MaxSensorBytes)
		}
	}
	var err error
	p.list.Limit, err = parseLimit(values, DefaultLimit, MaxSensors)
	return err
}

func parseLimit(values url.Values, absent, most int) (int, error) {
	s := values.Get("limit")
	if s == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit %s is not a number from 1 to %d", telemetry.Quote([]byte(s)), most)
	}
	return n, nil
}

// parseEvery reads the length of a step, like 90s, 5m, 1h or 7d, and returns it
// in milliseconds.
func parseEvery(s string) (int64, error) {
	wrong := fmt.Errorf("%s is not a duration of whole milliseconds up to 3000000d, written as %s", telemetry.Quote([]byte(s)), config.DurationForms)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 1 || n > 3_000_000 || days[0] == '+' {
			return 0, wrong
		}
		return n * 24 * time.Hour.Milliseconds(), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond || d%time.Millisecond != 0 {
		return 0, wrong
	}
	return d.Milliseconds(), nil
}

// maxTime is the end of the year 9999, in milliseconds since the epoch.
const maxTime = 253_402_300_800_000

// parseTime reads a time in milliseconds since the epoch.
func parseTime(values url.Values, key string, absent int64) (int64, error) {
	s := values.Get(key)
	if s == "" {
		return absent, nil
	}
	t, err := config.ParseTime(s, time.Now())
	if err != nil {
		return 0, invalid("%s %s: %v", key, telemetry.Quote([]byte(s)), err)
	}
	return min(max(0, t.UnixMilli()), maxTime), nil
}

const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// wantsLines decides between the two forms of an answer, where there are two;
// JSON is the default. Of what is accepted, the first that can be given is.
func wantsLines(accept []string, possible bool) (bool, error) {
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "" {
		return false, nil
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, given, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if q, err := strconv.ParseFloat(given["q"], 64); err == nil && q == 0 || math.IsNaN(q) {
			continue // expressly not wanted
		}
		switch {
		case media == typeLines && possible:
			return true, nil
		case media == typeJSON, media == "application/*", media == "*/*":
			return false, nil
		}
	}
	forms := typeJSON
	if possible {
		forms += " and " + typeLines
	}
	return false, telemetry.Errorf(telemetry.NotAcceptable, "unsupported_accept", "nothing of Accept %s can be given; there is %s",
		telemetry.Quote([]byte(strings.Join(accept, ", "))), forms)
}

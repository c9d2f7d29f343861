package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A PayloadFormat is the format of a message's payload.
type PayloadFormat string

const (
	PayloadAuto   PayloadFormat = "auto"   // one of the others, see formatOf
	PayloadNumber PayloadFormat = "number" // a number or a boolean
	PayloadJSON   PayloadFormat = "json"   // readings, as in POST /v1/readings
	PayloadLine   PayloadFormat = "line"   // line protocol with timestamps in nanoseconds

	payloadText PayloadFormat = "text" // a string as it is
)

// A Message is a message from a broker, with what its topic says about its readings.
type Message struct {
	Payload []byte
	Format  PayloadFormat
	// Readings replace the payload if it is already decoded.
	Readings []telemetry.Reading
	Received time.Time // the time of readings without a timestamp

	Stream string // empty: the default stream
	// Sensor is the sensor ID of readings that have none. If it is empty, the sensor ID of
	// line protocol is the series key.
	Sensor string
	Field  string // the field name of a single value
	Tags   []telemetry.Tag
}

// MessageCodes returns the codes for messages that are refused as a whole. The codes of
// readings are not among them.
func MessageCodes() []string {
	return []string{codeTooMany, codeNoReadings, codeStreamUnknown, codeInternal, codeEmpty, codeNoValue, codeMessageTooLarge, access.CodeActiveSensors}
}

// AppendMessages decodes messages and appends their readings to the journal as one batch.
// identity is the name of the sender, which needs the scope ingest; each message counts as a
// request. refused has an error for each message that was refused in whole or in part; all
// other readings are journaled when AppendMessages returns. Readings that the database refuses
// later become dead letters. If err is not nil, the readings may or may not be journaled: the
// caller must retry if it is of kind Unavailable, Quota or UnknownOutcome, or if the identity
// may not send now (Unauthenticated and Forbidden). key is the same when the caller retries, so
// that readings are stored once.
func (srv *Server) AppendMessages(ctx context.Context, identity, key string, messages []Message) (refused map[int]*telemetry.Error, err error) {
	begin := time.Now()
	if srv.stopping() {
		return nil, errStopping()
	}
	who, err := srv.config.Guard.Named(identity, len(messages))
	if err == nil {
		err = who.Require(access.Ingest)
	}
	in, l := new(intake), &lease{of: srv.budget}
	if err != nil {
		in.server = srv
		return nil, in.messagesFailed(ctx, err, begin)
	}
	defer func() {
		if err != nil {
			who.RefundRequests(len(messages)) // they will be repeated
		}
	}()
	defer l.Release()
	want := telemetry.Stored
	if slices.Contains(srv.config.Acks, telemetry.Journaled) {
		want = telemetry.Journaled
	}
	in.open(srv, srv.streams[srv.config.DefaultStream], want)
	in.who, in.lease, in.ctx = who, l, ctx
	if want == telemetry.Stored { // a timeout has an unknown outcome
		in.key = key
	}
	in.build()
	defer in.close()
	refused = make(map[int]*telemetry.Error)
	for i := range messages {
		e, err := in.decodeMessage(&messages[i])
		if err != nil {
			return nil, in.messagesFailed(ctx, err, begin)
		}
		if e != nil {
			refused[i] = e
		}
	}
	if in.count == 0 {
		srv.metrics.answered(protoMQTT, nothingTaken, time.Since(begin), &in.answer)
		return refused, nil
	}
	in.answer.Errors = in.answer.Errors[:0]
	r, err := in.append(ctx)
	if err != nil {
		return nil, in.messagesFailed(ctx, err, begin)
	}
	srv.metrics.answered(protoMQTT, r, time.Since(begin), &in.answer)
	return refused, nil
}

// messagesFailed counts messages that failed, and returns the error for the caller.
func (in *intake) messagesFailed(ctx context.Context, err error, begin time.Time) error {
	known := in.server.knownError(protoMQTT, in.appendError(ctx, err))
	in.server.metrics.answered(protoMQTT, resultOf(known.Kind), time.Since(begin), &answer{})
	return known
}

// decodeMessage decodes one message. refused says why the message, or some of its readings,
// are refused; a message that is refused as a whole adds nothing to the batch. err is an error
// that is not caused by the message, such as a lack of memory.
func (in *intake) decodeMessage(m *Message) (refused *telemetry.Error, err error) {
	stream, err := in.server.stream(m.Stream)
	if err != nil {
		return wholeRefused(err), nil
	}
	in.target, in.message = stream, m
	in.times.Unit = ""
	in.toStream(stream)
	in.builder.MapDots = in.server.config.MapDots // line protocol changes it
	in.builder.DefaultTime = m.Received.UnixMilli()
	in.scope = m.appendScope(in.scope[:0], stream.Name)
	count, rows, rejected := in.count, in.builder.Len(), in.answer.Rejected
	in.most = count + in.server.config.MaxReadings
	in.answer.Errors = in.answer.Errors[:0]
	if m.Readings != nil {
		err = in.addReadings(m.Readings)
	} else {
		err = in.decodePayload(m)
	}
	if err == nil && in.count == count {
		err = telemetry.Errorf(telemetry.Invalid, codeNoReadings, "the message contains no readings")
	}
	if err != nil && !isRefusal(err) {
		return nil, err
	}
	if err != nil {
		in.builder.Truncate(rows)
		in.count, in.answer.Rejected = count, rejected
		return wholeRefused(err), nil
	}
	if in.answer.Rejected > rejected {
		first := in.answer.Errors[0]
		return telemetry.Errorf(telemetry.Invalid, string(first.Code), "%s (refused readings: %d)", first.Message, in.answer.Rejected-rejected), nil
	}
	return nil, nil
}

// isRefusal reports whether an error is caused by the message. After other errors it may be
// accepted later, or in a smaller batch.
func isRefusal(err error) bool {
	known, ok := errors.AsType[*telemetry.Error](err)
	if !ok {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	switch known.Kind {
	case telemetry.Unavailable, telemetry.Quota, telemetry.UnknownOutcome:
		return false
	case telemetry.TooLarge:
		return known.Code == codeTooMany
	default:
		return true
	}
}

// wholeRefused returns why a message is refused.
func wholeRefused(err error) *telemetry.Error {
	known, ok := errors.AsType[*telemetry.Error](err)
	if !ok {
		known = telemetry.Errorf(telemetry.Internal, codeInternal, "%v", err)
	}
	return known
}

// appendScope appends what a topic says about the series of its readings. The separator is
// NUL, which MQTT forbids in topics.
func (m *Message) appendScope(dst []byte, stream string) []byte {
	dst = append(append(append(append(dst, stream...), 0), m.Sensor...), 0)
	for _, t := range m.Tags {
		dst = append(append(append(append(dst, t.Name...), 0), t.Value...), 0)
	}
	return append(dst, 0)
}

// decodePayload decodes the payload of a message.
func (in *intake) decodePayload(m *Message) (err error) {
	format, payload := m.Format, m.Payload
	if format == PayloadAuto {
		if format, payload, err = formatOf(payload); err != nil {
			return err
		}
	}
	switch format {
	case PayloadJSON:
		return in.decodeMessageJSON(payload)
	case PayloadLine:
		err = in.decodeLineProtocol(payload, precision{name: "ns", ratio: -1_000_000})
		in.lines = in.lines[:0]
		return err
	}
	return in.decodeValue(format, payload)
}

// formatOf detects the format of a payload, and returns what is to be decoded.
func formatOf(payload []byte) (PayloadFormat, []byte, error) {
	trimmed := bytes.TrimSpace(payload)
	if len(trimmed) == 0 {
		return "", nil, telemetry.Errorf(telemetry.Invalid, codeEmpty, "the payload is empty")
	}
	switch trimmed[0] {
	case '{', '[':
		return PayloadJSON, payload, nil
	case '"':
		var text string
		if json.Unmarshal(trimmed, &text) == nil {
			return payloadText, []byte(text), nil
		}
	}
	if _, ok := parseNumber(trimmed); ok {
		return PayloadNumber, trimmed, nil
	}
	if looksLikeLine(trimmed) {
		return PayloadLine, payload, nil
	}
	switch strings.TrimLeft(strings.ToLower(string(trimmed[:min(len(trimmed), 16)])), "+-") {
	case "nan", "inf", "infinity", "null", "undefined":
		return "", nil, telemetry.Errorf(telemetry.Invalid, codeNoValue, "the payload has no value")
	}
	return payloadText, trimmed, nil
}

// looksLikeLine reports whether the first line is a comment, or has a field with a value after
// its first space.
func looksLikeLine(payload []byte) bool {
	line, _, _ := bytes.Cut(payload, []byte{'\n'})
	if line[0] == '#' {
		return true
	}
	for rest := line; ; {
		n := bytes.IndexByte(rest, ' ')
		if n <= 0 {
			return false
		}
		escaped := rest[n-1] == '\\'
		if rest = rest[n+1:]; !escaped {
			name, value, ok := bytes.Cut(rest, []byte{'='})
			return ok && len(name) > 0 && len(value) > 0 && strings.IndexByte(`0123456789-."tTfF`, value[0]) >= 0 &&
				!bytes.ContainsAny(bytes.ReplaceAll(name, []byte(`\ `), nil), " ,")
		}
	}
}

// decodeMessageJSON decodes JSON like decodeJSON, but checks its syntax first, because a
// syntax error refuses the whole message.
func (in *intake) decodeMessageJSON(body []byte) error {
	valid := json.Valid(body)
	if valid {
		body = unflatten(body)
	}
	d := in.jsonDecoder()
	f := d.guess(body)
	d.release()
	if f == formJSON && !valid {
		return telemetry.Errorf(telemetry.Invalid, codeMalformed, "the message is not valid JSON")
	}
	return in.decodeJSON(body, f)
}

// fieldsMember finds the member fields. In a string, quotes have a backslash in front.
var fieldsMember = regexp.MustCompile(`"fields"\s*:`)

// unflatten turns a flat object, whose members are fields, as in {"temperature":21.5}, into a
// reading. All other valid bodies, also objects that give a name twice, stay as they are.
func unflatten(body []byte) []byte {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 || trimmed[0] != '{' || fieldsMember.Match(body) {
		return body
	}
	var members map[string]jsontext.Value
	if jsonv2.Unmarshal(trimmed, &members) != nil {
		return body
	}
	reading, fields := make(map[string]any), make(map[string]jsontext.Value)
	for name, value := range members {
		if name == "sensorId" || name == "ts" || name == "tags" {
			reading[name] = value
		} else {
			fields[name] = value
		}
	}
	reading["fields"] = fields
	text, err := jsonv2.Marshal(reading, jsonv2.Deterministic(true))
	if err != nil {
		return body
	}
	return text
}

// aliasMessage is the first byte of alias keys made from topics.
const aliasMessage = 'm'

// decodeValue decodes a payload that is a single value.
func (in *intake) decodeValue(format PayloadFormat, payload []byte) error {
	if err := in.begin(); err != nil {
		return err
	}
	b := in.builder
	in.alias = append(append(in.alias[:0], aliasMessage), in.scope...)
	known := in.server.known.Alias(in.alias)
	if known != nil {
		b.SameSeries(known)
	} else {
		in.addTopic(true)
	}
	field := in.message.Field
	trimmed := bytes.TrimSpace(payload)
	if format == payloadText {
		b.Text([]byte(field), payload)
	} else if v, ok := parseNumber(trimmed); ok {
		b.Add(telemetry.Field{Name: field, Value: v})
	} else {
		b.Refuse(telemetry.Refuse(telemetry.Malformed, "the payload %s is neither a number nor true or false", telemetry.Quote(trimmed)))
	}
	if in.end() && known == nil {
		in.server.known.SetAlias(in.alias, b.LastSeries())
	}
	return nil
}

// parseNumber reads a payload that is a finite number, true or false. As in JSON, a number
// without fraction and exponent is an integer, if it fits.
func parseNumber(s []byte) (telemetry.Value, bool) {
	switch string(s) {
	case "true":
		return telemetry.BoolValue(true), true
	case "false":
		return telemetry.BoolValue(false), true
	}
	if len(s) == 0 || len(s) > 64 || s[len(s)-1]|0x20 >= 'a' { // a digit or a point ends it
		return telemetry.Value{}, false
	}
	if n, err := strconv.ParseInt(string(s), 10, 64); err == nil {
		return telemetry.IntValue(n), true
	}
	for _, c := range s { // no hexadecimal, no underscores
		if !isDigit(c) && c != '.' && c != '-' && c != '+' && c|0x20 != 'e' {
			return telemetry.Value{}, false
		}
	}
	f, err := strconv.ParseFloat(string(s), 64)
	return telemetry.FloatValue(f), err == nil && !math.IsInf(f, 0)
}

// addTopic adds the tags of the topic to the current reading, and also its sensor ID if
// sensor is true.
func (in *intake) addTopic(sensor bool) {
	m := in.message
	if m == nil {
		return
	}
	if sensor && m.Sensor != "" {
		in.builder.Sensor([]byte(m.Sensor))
	}
	for _, t := range m.Tags {
		in.builder.Tag([]byte(t.Name), []byte(t.Value))
	}
}

// addReadings adds decoded readings.
func (in *intake) addReadings(readings []telemetry.Reading) error {
	for i := range readings {
		r := &readings[i]
		if err := in.begin(); err != nil {
			return err
		}
		b := in.builder
		if r.Sensor != "" {
			b.Sensor([]byte(r.Sensor))
		}
		in.addTopic(r.Sensor == "")
		for _, t := range r.Tags {
			b.Tag([]byte(t.Name), []byte(t.Value))
		}
		if !r.Time.IsZero() {
			b.Time(r.Time.UnixMilli())
		}
		for _, f := range r.Fields {
			b.Add(f)
		}
		in.end()
	}
	return nil
}

package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The decoders of JSON and line protocol are compared with encoding/json and with
// the package lineprotocol of influxdata, which know nothing of our rules.

// An outcome is all that a sender sees of a request, and what was taken of it.
type outcome struct {
	err      *telemetry.Error
	answer   answer
	count    int
	readings []telemetry.Reading
	indices  []uint32
}

func outcomeOf(in *intake, err error) outcome {
	var o outcome
	if errors.As(err, &o.err) {
		o.err.Err = nil // what only the log says
		return o
	}
	o.answer, o.count = in.answer, in.count
	b := in.builder.Batch()
	for i := range b.Len() {
		o.readings = append(o.readings, b.Reading(uint32(i)))
		o.indices = append(o.indices, b.Row(uint32(i)).Index)
	}
	return o
}

func decodeOutcome(d *Server, content []byte, decode func(*intake, []byte) error) outcome {
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	return outcomeOf(in, decode(in, content))
}

// checkJSON compares what is made of a body with what encoding/json makes of it.
func checkJSON(t require.TestingT, d *Server, content []byte) {
	for _, f := range []form{formJSON, formLines, formGuess} {
		decode := func(in *intake, body []byte) error { return in.decodeJSON(body, f) }
		d.known = batch.NewInterner(0)
		got := decodeOutcome(d, content, decode)
		require.Equal(t, got, decodeOutcome(d, content, decode), "form %d of %q with known sensors", f, content)
		values, whole := oracleValues(content)
		if f == formLines {
			values, whole = nil, true
			for line := range bytes.SplitSeq(content, []byte("\n")) {
				if line = bytes.TrimSpace(line); len(line) > 0 {
					values = append(values, line)
				}
			}
		}
		if f == formGuess {
			continue
		}
		if got.err != nil {
			require.True(t, !whole || got.err.Code == codeTooMany, "form %d of %q: %v", f, content, got.err)
			continue
		}
		require.True(t, whole, "form %d of %q was taken", f, content)
		require.Len(t, values, got.count, "form %d of %q", f, content)
		for i, r := range got.readings {
			checkOracle(t, d, values[got.indices[i]], r)
		}
		for _, e := range got.answer.Errors {
			if !json.Valid(values[e.Index]) {
				require.NotContains(t, got.indices, uint32(e.Index))
			}
		}
	}
}

// oracleValues splits a body of JSON into its values; false if its syntax is wrong.
func oracleValues(content []byte) (values [][]byte, whole bool) {
	d := json.NewDecoder(bytes.NewReader(content))
	space := bytes.TrimLeft(content, " \t\r\n")
	if len(space) > 0 && space[0] == '[' {
		var all []json.RawMessage
		if d.Decode(&all) != nil || !json.Valid(content) {
			return nil, false
		}
		for _, v := range all {
			values = append(values, v)
		}
		return values, true
	}
	for {
		var v json.RawMessage
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return values, true
		} else if err != nil || v[0] != '{' {
			return nil, false
		}
		values = append(values, v)
	}
}

// checkOracle compares a reading with what encoding/json makes of its text.
func checkOracle(t require.TestingT, d *Server, text []byte, got telemetry.Reading) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var want map[string]any
	require.NoError(t, decoder.Decode(&want), "%q was taken", text)
	require.Equal(t, want["sensorId"], got.Sensor)
	dots := func(name string) string {
		if d.config.MapDots != 0 {
			return strings.ReplaceAll(name, ".", string(d.config.MapDots))
		}
		return name
	}
	fields, _ := want["fields"].(map[string]any)
	require.Len(t, got.Fields, len(fields), "%q", text)
	tags, _ := want["tags"].(map[string]any)
	require.Len(t, got.Tags, len(tags), "%q", text)
	for name, value := range tags {
		require.Contains(t, got.Tags, telemetry.Tag{Name: dots(name), Value: fmt.Sprint(value)}, "%q", text)
	}
	for name, value := range fields {
		field := telemetry.Field{Name: dots(name)}
		switch v := value.(type) {
		case string:
			field.Value = telemetry.TextValue(v)
		case bool:
			field.Value = telemetry.BoolValue(v)
		case json.Number:
			if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
				field.Value = telemetry.IntValue(n)
			} else if double, err := strconv.ParseFloat(v.String(), 64); assert.NoError(t, err) {
				field.Value = telemetry.FloatValue(double)
			}
		}
		require.Contains(t, got.Fields, field, "%q", text)
	}
	switch ts := want["ts"].(type) {
	case json.Number:
		require.Equal(t, ts.String(), strings.Replace(strconv.FormatInt(got.Time.UnixMilli(), 10), "-0", "0", 1))
	case string:
		if at, err := time.Parse(time.RFC3339, ts); err == nil {
			require.Equal(t, at.UnixMilli(), got.Time.UnixMilli())
		}
	}
}

// drawn is a generator of bodies: readings with few names, so that series and
// shapes come again, in which anything may be out of the ordinary.
type drawn struct{ *rapid.T }

func (t drawn) of(what, usual string, others ...string) string {
	if len(others) > 0 && rapid.IntRange(0, 30).Draw(t.T, what) == 0 {
		return rapid.SampledFrom(others).Draw(t.T, what)
	}
	return usual
}

func (t drawn) space() string { return t.of("space", "", " ", "\t", "\r ", "\n", "\f") }

func (t drawn) string(usual ...string) string {
	return t.of("string", strconv.Quote(rapid.SampledFrom(usual).Draw(t.T, "text")),
		`"\u0061"`, `"}"`, `"ö{\"}"`, "\"\xff\"", `"\ud800"`, `"\ud83d\ude00\ude00"`, `""`, "\"\x01\"", `"`+strings.Repeat("long ", 300)+`"`, `"$x"`, `"a.b"`, `"ts"`, `'a'`, "a", `"a`, "null")
}

func (t drawn) value() string {
	usual := rapid.SampledFrom([]string{"0", "-1", "23.5", "1e3", "true", "false", `"on"`, "9223372036854775807", "0.1"}).Draw(t.T, "value")
	return t.of("odd value", usual, "null", "01", "1.", "-", ".5", "+1", "1e999", "-0", "-0.0", "1e-400", "9223372036854775808", "1e", "tru",
		"[1]", `{"a":{}}`, "NaN", `"\n"`, "123456789012345678901234567890.5", "1.7976931348623157e308")
}

func (t drawn) group(what string, names []string, value func() string) string {
	var b strings.Builder
	b.WriteString("{" + t.space())
	for i := range rapid.IntRange(0, 3).Draw(t.T, what) {
		if i > 0 {
			b.WriteString(t.space() + "," + t.space())
		}
		b.WriteString(t.string(names[i:i+2]...) + t.space() + ":" + t.space() + value())
	}
	return t.of(what, b.String()+t.space()+"}", "null", "[]", "{", "5", `{"a":1,}`)
}

func (t drawn) reading() string {
	members := []string{
		`"sensorId"` + t.space() + ":" + t.space() + t.string("s-1", "s-2"),
		`"ts":` + t.of("ts", `"2026-11-21T10:00:00.123Z"`, "1763719200000", "-1", "1e3", `"2026-11-21"`, "99999999999999", "null", "1.5", `"2026-11-21T10:00:60Z"`),
		`"fields":` + t.group("fields", []string{"a", "b", "c", "d"}, t.value),
		`"tags":` + t.group("tags", []string{"k", "l", "m", "n"}, func() string { return t.string("x", "y}", "z") }),
		`"other":` + t.value(),
	}[:4+rapid.IntRange(0, 20).Draw(t.T, "an unknown member")/20]
	members = rapid.Permutation(members).Draw(t.T, "order")
	if rapid.IntRange(0, 20).Draw(t.T, "one twice") == 0 {
		members = append(members, members[0])
	}
	members = members[rapid.IntRange(0, 20).Draw(t.T, "one missing")/20:]
	return t.space() + "{" + strings.Join(members, ",") + "}" + t.space()
}

func (t drawn) body() []byte {
	var b strings.Builder
	array := rapid.Bool().Draw(t.T, "array")
	if array {
		b.WriteString("[")
	}
	for i := range rapid.IntRange(0, 6).Draw(t.T, "readings") {
		if i > 0 {
			b.WriteString(t.of("separator", map[bool]string{true: ",", false: "\n"}[array], "", ",", ",,", " ", "\n", "x", "]", "5"))
		}
		b.WriteString(t.reading())
	}
	if array {
		b.WriteString(t.of("end", "]", "", "]]", "] x", ",]", "]\n", "}"))
	}
	return []byte(b.String()[:max(0, b.Len()-rapid.IntRange(0, 200).Draw(t.T, "cut off")/199*7)])
}

func TestJSONIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	dots, _ := newTestServer(t, func(c *Config) { c.MapDots, c.MaxReadings = '_', 4 })
	for _, c := range refusalCases() {
		checkJSON(t, d, []byte(c.json))
	}
	rapid.Check(t, func(t *rapid.T) {
		content := drawn{t}.body()
		checkJSON(t, d, content)
		checkJSON(t, dots, content)
	})
}

func FuzzJSON(f *testing.F) {
	seedJSON(f)
	f.Add(ndjson(makeCPU(2, 1)))
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, content []byte) { checkJSON(t, d, content) })
}

// checkLine compares what is made of a single line with what the library makes of it, with
// dots in names mapped.
func checkLine(t require.TestingT, d *Server, line string) {
	decode := func(in *intake, body []byte) error {
		return in.decodeLineProtocol(body, precision{name: "ms", ratio: 1})
	}
	d.known = batch.NewInterner(0)
	got := decodeOutcome(d, []byte(line), decode)
	require.Nil(t, got.err)
	require.Equal(t, got, decodeOutcome(d, []byte(line), decode), "%q, of a known series", line)
	want, ok := oracleLine(line)
	if len(got.readings) == 0 {
		if ok && got.count > 0 && !strings.ContainsAny(line, "xX_") { // hexadecimal numbers
			require.NotContains(t, got.answer.reasons, telemetry.Malformed, "%q is right", line)
		}
		return
	}
	require.True(t, ok, "%q was taken", line)
	r := got.readings[0]
	require.Equal(t, want.Fields, r.Fields, "%q", line)
	require.ElementsMatch(t, want.Tags, r.Tags, "%q", line)
	if !want.Time.IsZero() {
		require.Equal(t, want.Time, r.Time, "%q", line)
	}
}

// oracleLine decodes a line by the library.
func oracleLine(line string) (r telemetry.Reading, ok bool) {
	d := lineprotocol.NewDecoderWithBytes([]byte(strings.TrimSuffix(line, "\r")))
	if !d.Next() {
		return r, false
	}
	if _, err := d.Measurement(); err != nil {
		return r, false
	}
	for {
		name, value, err := d.NextTag()
		if err != nil {
			return r, false
		} else if name == nil {
			break
		}
		r.Tags = append(r.Tags, telemetry.Tag{Name: strings.ReplaceAll(string(name), ".", "_"), Value: string(value)})
	}
	for {
		name, value, err := d.NextField()
		if errors.Is(err, lineprotocol.ErrValueOutOfRange) {
			continue
		}
		if err != nil {
			return r, false
		}
		if name == nil {
			break
		}
		field := telemetry.Field{Name: strings.ReplaceAll(string(name), ".", "_")}
		switch value.Kind() {
		case lineprotocol.Float:
			field.Value = telemetry.FloatValue(value.FloatV())
		case lineprotocol.Int:
			field.Value = telemetry.IntValue(value.IntV())
		case lineprotocol.Uint:
			field.Value = telemetry.IntValue(int64(value.UintV()))
		case lineprotocol.Bool:
			field.Value = telemetry.BoolValue(value.BoolV())
		default:
			field.Value = telemetry.TextValue(value.StringV())
		}
		r.Fields = append(r.Fields, field)
	}
	text, err := d.TimeBytes()
	if ms, wrong := strconv.ParseInt(string(text), 10, 64); wrong == nil {
		r.Time = time.UnixMilli(ms).UTC()
	}
	return r, err == nil
}

// lineCorpus returns lines with what the decoders could see differently.
func lineCorpus(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, c := range refusalCases() {
		all = append(all, c.line)
	}
	for _, value := range []string{
		"1", "-1", "0", "-0", "1i", "-1i", "-0i", "1u", "-1u", "00012i", "9223372036854775807i", "9223372036854775808i", "-9223372036854775808i", "-9223372036854775809i",
		"9223372036854775808u", "18446744073709551616i", "100000000000000000000i", "00000000000000000000001i", "i", "-i", "-", ".", "-.", "1.", ".5", "-.5", "-0.0", "1..2", "1.5i", "1e5", "1e5i", "1E-5", "1e400", "-1e400", "1e", "+1", "1_0",
		"0.1", "123456789012345", "1234567890123456", "0.123456789012345", "0.1234567890123456", "12345678.87654321", "123456789.987654321", "9007199254740993", "NaN", "inf", "nil",
		"t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE", "tRUE", "truth", "yes", `""`, `"a"`, `"a b,c=d"`, `"a\"b"`, `"a\\"`, `"a\n"`, `"`, `"a`, `"a"b`, "\"\xff\"", "\"é\"", "\"\x00\"", "1\r", "1\t", "\"a\r\"",
	} {
		all = append(all, "m f="+value, "m,host=a f="+value+",g=2i 1795255200123", "m,host=a g=1,f="+value+" 1795255200123")
	}
	all = append(all,
		"", " ", "#", "# m f=1", "m", "m ", "m f", "m f=", "m f=1,", "m f=1, g=2", "m f=1 ", "m f=1  1", "m  f=1", " m f=1", "m f=1\t1", "m f=1 1 ", "m f=1 1 1", "m f=1 -1", "m f=1 a", "m f=1 1i", "m f=1 -", "m f=1 00000000000000000000001", "m f=1 9223372036854775807", "m f=1 9223372036854775808", "m f=1 99999999999999999999",
		",a=b f=1", "m, f=1", "m,a f=1", "m,a= f=1", "m,=b f=1", "m,a=b, f=1", "m,a=b,,c=d f=1", "m,a=b=c f=1", "m,a=b=c=d f=1", `m,a=b"c=d f=1`, `m,a=b\c=d f=1`, "m f=1ixa=2", "m f=1i=a=2", `m f="a"xb=1`, "m,a=b,a=c f=1", "m,z=1,b=2,a=3,host=4 f=1", "m=1,a=b f=1", "m#,a=b f=1", "#m,a=b f=1", "m,a=# f=1", "m,a=é f=1", "mem,host=a f=1", "readings f=1",
		"m f=1,f=2", "m f=1i,f=2", "m ts=1", "m _id=1", "m $a=1", "m a.b=1", "m,a.b=1 f=1", "m \"f\"=1", "m a\\ b=1", "m a\\,b=1", "m a,b=1", "m a\\=b=1", "m a=b=1", "m\\ n f=1", "m,a=b\\ c f=1", "m,a=\\ f=1", "m,a=b\\\\ f=1", "m\\=n f=1", "m f=\"\\q\\,\"", "m f=\"\\\"",
		"m f=1\r", "m f=1\r\r", "m f=1\r1", "m\x01 f=1", "m,a=\x7f f=1", "m f\x02=1",
		"m "+strings.Repeat("f=1,", 300)+"g=1", "m "+strings.Repeat("n", 129)+"=1", "m f=\""+strings.Repeat("x", 1025)+"\"", "m,a="+strings.Repeat("x", 1025)+" f=1", strings.Repeat("m", 1025)+" f=1",
	)
	return append(all, strings.Split(sample(t, "tsbs-cpu-100x1h.lp"), "\n")...)
}

// drawnLine writes a line of words that are mostly right, so that what is wrong
// stands anywhere in it.
func drawnLine(t *rapid.T) string {
	word := rapid.SampledFrom([]string{"a", "b", "host", "usage_user", "mem", "readings", "9", "x.y", "é", `\`, `a\ b`, `"`, "#", "", "$", "ts", "-", "A B", "\t"})
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"1i", "-7i", "12u", "t", "FALSE", `"s"`, `"s t,u=v"`, `"a\"b"`, `"`, "1.5", "1e3", "x", "", "-", "NaN", "1\r"}),
		rapid.Map(rapid.Float64(), func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }),
		rapid.Map(rapid.Int64(), func(v int64) string { return strconv.FormatInt(v, 10) + "i" }),
		rapid.StringMatching(`-?[0-9]{1,12}(\.[0-9]{0,10})?`),
	)
	separator := rapid.SampledFrom([]string{",", ",", ",", ",", ",", ",", ",", " ", ",,", ", ", "", "="})
	space := rapid.SampledFrom([]string{" ", " ", " ", " ", " ", " ", "  ", "\t", ""})
	end := rapid.SampledFrom([]string{"", "", "", " 1795255200123", " 1795255200123", " 1", "\r", " ", " 1 1", " -5", " x"})
	var s strings.Builder
	s.WriteString(word.Draw(t, "measurement"))
	for range rapid.IntRange(0, 3).Draw(t, "tags") {
		s.WriteString(separator.Draw(t, "comma") + word.Draw(t, "tag") + "=" + word.Draw(t, "value"))
	}
	before := space.Draw(t, "space")
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		s.WriteString(before + word.Draw(t, "field") + "=" + value.Draw(t, "value"))
		before = separator.Draw(t, "comma")
	}
	return s.String() + end.Draw(t, "end")
}

func TestLinesAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, anyTime)
	for _, line := range lineCorpus(t) {
		checkLine(t, d, line)
	}
	rapid.Check(t, func(t *rapid.T) { checkLine(t, d, drawnLine(t)) })
}

func FuzzLine(f *testing.F) {
	for _, line := range lineCorpus(f) {
		f.Add(line)
	}
	d, _ := newTestServer(f, anyTime)
	f.Fuzz(func(t *testing.T, line string) {
		if !strings.Contains(line, "\n") {
			checkLine(t, d, line)
		}
	})
}

// TestALongSeriesIsNotRemembered holds that the keys of lines have a limit, and that
// no key stands for the series of another line.
func TestALongSeriesIsNotRemembered(t *testing.T) {
	t.Parallel()
	tags := ""
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		tags += "," + name + "=" + strings.Repeat("x", 1000)
	}
	short, long, other := "m,host=a", "m,host=b"+tags, "m,host=c"+tags
	d, _ := newTestServer(t, func(c *Config) { c.SensorTag = "host" })
	text := short + " f=1\n" + long + " f=2\n" + short + " f=3\n" + other + " f=4\n" + long + " f=5\n"
	o := decodeOutcome(d, []byte(text), func(in *intake, body []byte) error {
		return in.decodeLineProtocol(body, precision{name: "ms", ratio: 1})
	})
	assert.NotNil(t, d.known.Alias([]byte("lreadings\x00"+short)))
	assert.Nil(t, d.known.Alias([]byte("lreadings\x00"+long)))
	var sensors []string
	for _, r := range o.readings {
		sensors = append(sensors, r.Sensor)
	}
	assert.Equal(t, []string{"a", "b", "a", "c", "b"}, sensors)
}

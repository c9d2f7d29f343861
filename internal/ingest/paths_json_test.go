package ingest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

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
		`"\u0061"`, `"}"`, `"ö{\"}"`, "\"\xff\"", `"\ud800"`, `""`, "\"\x01\"", `"`+strings.Repeat("long ", 300)+`"`, `"$x"`, `"a.b"`, `"ts"`, `'a'`, "a", `"a`, "null")
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

// checkBothPaths holds that a body is the same by both paths, when its sensors
// are new and when they are known.
func checkBothPaths(t require.TestingT, d *Door, content []byte) {
	for _, f := range []form{formJSON, formLines, formLook} {
		var outcomes []outcome
		for _, path := range append(bothPaths(), bothPaths()[0]) {
			in := d.newIntake(d.streams["readings"], telemetry.Stored)
			outcomes = append(outcomes, outcomeOf(in, withBody(d, content, func(b *body) error { return path.json(in, b, f) })))
		}
		require.Equal(t, outcomes[1], outcomes[0], "form %d of %q", f, content)
		require.Equal(t, outcomes[1], outcomes[2], "form %d of %q, with known sensors", f, content)
	}
}

func TestSimpleAndPlainJSONAreTheSame(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	dots, _ := newTestDoor(t, func(c *Config) { c.MapDots, c.MaxReadings = '_', 4 })
	rapid.Check(t, func(t *rapid.T) {
		content := drawn{t}.body()
		checkBothPaths(t, d, content)
		checkBothPaths(t, dots, content)
	})
}

func FuzzSimpleJSON(f *testing.F) {
	seedJSON(f)
	f.Add(ndjson(makeCPU(2, 1)))
	d, _ := newTestDoor(f)
	f.Fuzz(func(t *testing.T, content []byte) { checkBothPaths(t, d, content) })
}

// TestBodiesInPieces holds that neither the size of a body nor the pieces in
// which it comes matter, where readings that are simple and others take turns.
func TestBodiesInPieces(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	var parts []string
	for i := range 400 {
		parts = append(parts, fmt.Sprintf(`{"sensorId":"s%d","fields":{"a":%d}}`, i%10, i))
		switch i % 100 {
		case 20:
			parts = append(parts, `{"sensorId":"escaped \u0061","fields":{"a":1}}`)
		case 40:
			parts = append(parts, `{"sensorId":"long","fields":{"a":1},"tags":{"t":"`+strings.Repeat("x", 3*lookAhead)+`"}}`)
		case 60:
			parts = append(parts, `{"sensorId":"unknown","fields":{"a":1},"more":[`+strings.Repeat("1,", 2*bufferBytes)+`1]}`)
		}
	}
	for name, content := range map[string]string{
		"an array": "[" + strings.Join(parts, ",\n"+strings.Repeat(" ", 100)) + "]",
		"objects":  strings.Join(parts, "\n"),
		"an error": "[" + strings.Join(parts, ",") + ", oops]",
		"a tail":   "[" + strings.Join(parts, ",") + "]" + strings.Repeat(" ", 2*lookAhead) + "5",
		"a cut":    "[" + strings.Join(parts, ",") + ",{",
	} {
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		plain := newReadingDecoder()
		plain.builder = in.builder
		want := outcomeOf(in, decodePlainValues(in, strings.NewReader(content), plain))
		for pieces, r := range map[string]io.Reader{
			"whole": strings.NewReader(content), "halves": iotest.HalfReader(strings.NewReader(content)),
			"bytes": iotest.OneByteReader(strings.NewReader(content)), "data with its end": iotest.DataErrReader(strings.NewReader(content)),
		} {
			in := d.newIntake(d.streams["readings"], telemetry.Stored)
			decoder := d.json.get(in)
			assert.Equal(t, want, outcomeOf(in, decoder.open(in, r).decode()), "%s in %s", name, pieces)
			d.json.put(decoder)
		}
	}
}

func TestNumbersAreThoseOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	check := func(t require.TestingT, text string) {
		n := simpleNumber([]byte(text), 0)
		valid := json.Valid([]byte(text))
		if n.end == 0 || n.end < len(text) {
			integer, err := strconv.ParseInt(text, 10, 64)
			double, errDouble := strconv.ParseFloat(text, 64)
			require.False(t, valid && (err == nil || errDouble == nil && strings.ContainsAny(text, ".eE")), "%s: %d, %v", text, integer, double)
			return
		}
		require.True(t, valid, text)
		if n.float {
			want, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			require.Equal(t, math.Float64bits(want), math.Float64bits(n.double), text)
			return
		}
		want, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		require.Equal(t, want, n.integer)
	}
	for _, text := range []string{"0", "-0", "-0.0", "00", "01", "1.", "1.e5", "1e", "1e+", "9007199254740993.0", "9007199254740991.5", "0.1e1", "123456789.123456789", "1e22", "1e23", "0.00000000000000000000001", "18446744073709551616.5", "999999999999999999", "9999999999999999999", "-9223372036854775808", "-9223372036854775809"} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, strconv.FormatFloat(rapid.Float64().Draw(t, "double"), byte(rapid.SampledFrom([]rune("efg")).Draw(t, "format")), rapid.IntRange(-1, 20).Draw(t, "digits"), 64))
		check(t, rapid.StringMatching(`-?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,3})?`).Draw(t, "text"))
	})
}

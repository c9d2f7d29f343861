package ingest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lineField is a field of a reading that came before the lines, and what the
// lines write for it.
type lineField struct {
	name   string
	kind   telemetry.Kind
	values []string
}

// sameBehind holds that a body is the same on both paths behind a reading of
// these fields, which need not have come as a line.
func sameBehind(t require.TestingT, d *Door, fields []lineField, body string) {
	d.known = batch.NewInterner(0)
	var outcomes []lineOutcome
	for _, plain := range []bool{true, true, false} { // the first makes the series known
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		require.NoError(t, in.begin())
		in.builder.Sensor([]byte("s"))
		for _, f := range fields {
			name := []byte(f.name)
			switch f.kind {
			case telemetry.Float:
				in.builder.Float(name, 1)
			case telemetry.Int:
				in.builder.Int(name, 1)
			case telemetry.Bool:
				in.builder.Bool(name, true)
			default:
				in.builder.Text(name, []byte("x"))
			}
		}
		require.True(t, in.end())
		outcomes = append(outcomes, decodeLinesInto(t, in, []byte(body), plain))
	}
	plain, fast := outcomes[1], outcomes[2]
	if len(fast.Refused) > 0 {
		// One path may see strings of a line that the other refuses before them, and
		// what is allocated for strings grows by steps.
		assert.InDelta(t, plain.Memory, fast.Memory, float64(2*len(body)+16), "%q behind %v", body, fields)
		plain.Memory = fast.Memory
	}
	require.Equal(t, plain, fast, "%q behind %v", body, fields)
}

func TestLinesLikeAnyReadingBefore(t *testing.T) {
	t.Parallel()
	doors := lineDoors(t)
	name := rapid.SampledFrom([]string{"a", "b", "usage_user", "#", "-", "a,b", "a,b=1", "a=1,b", "a=1", "a b", "a 1", " ", "=", ",", `a\`, `a\ b`, `"a"`, "é", "\t"})
	value := map[telemetry.Kind][]string{
		telemetry.Float: {"1", "-0", "-0.0", "0", "0.25", "-.5", "1.", "1e3", "9007199254740993", "1i", "-", ".", "", "NaN", "1.5x", `"x"`},
		telemetry.Int:   {"1i", "-1i", "-0i", "0i", "007i", "9223372036854775807i", "-9223372036854775808i", "9223372036854775808i", "1", "1u", "1ii", "i", "-i", "-", "", "1i="},
		telemetry.Bool:  {"t", "FALSE", "x", ""},
		telemetry.Text:  {`"x"`, `"a,b=1"`, `"`, "x"},
	}
	field := rapid.Custom(func(t *rapid.T) lineField {
		f := lineField{name: name.Draw(t, "name"), kind: rapid.SampledFrom([]telemetry.Kind{
			telemetry.Int, telemetry.Int, telemetry.Float, telemetry.Float, telemetry.Int, telemetry.Float, telemetry.Bool, telemetry.Text,
		}).Draw(t, "kind")}
		for range 3 {
			f.values = append(f.values, rapid.SampledFrom(value[f.kind]).Draw(t, "value"))
		}
		return f
	})
	escape := strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `)
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOfNDistinct(field, 1, 3, func(f lineField) string { return f.name }).Draw(t, "fields")
		var body strings.Builder
		for line := range 3 {
			before := "m,host=a "
			escaped := rapid.Bool().Draw(t, "escaped")
			for _, f := range fields {
				written := f.name
				if escaped {
					written = escape.Replace(written)
				}
				body.WriteString(before + written + "=" + f.values[line])
				before = ","
			}
			body.WriteString(rapid.SampledFrom([]string{"\n", "\n", " 1795255200123456\n", " 1795255200123456\n", " \n", ",\n", ",z=1i\n", " x\n", "\r\n"}).Draw(t, "end"))
		}
		cut := body.String()
		cut = cut[:len(cut)-rapid.IntRange(0, 12).Draw(t, "cut")]
		sameBehind(t, doors[rapid.IntRange(0, len(doors)-1).Draw(t, "door")], fields, cut)
	})
}

func TestOddNamesAndCutOffFieldsBehindAReading(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	ints := func(names ...string) (fields []lineField) {
		for _, name := range names {
			fields = append(fields, lineField{name: name, kind: telemetry.Int})
		}
		return fields
	}
	double := []lineField{{name: "a", kind: telemetry.Float}}
	for _, c := range []struct {
		fields []lineField
		body   string
	}{
		{ints("a,b"), "m a,b=1i"}, {ints("a=1i,b"), "m a=1i,b=1i"}, {ints("a 1"), "m a 1=1i"}, {ints("a b"), `m a\ b=1i`}, {ints("a"), "m a=-0i"}, {ints("a"), "m a=1i"}, {ints("a"), "m a=1"}, {ints("a"), "m a="},
		{ints("a"), "m a"}, {ints("a", "b"), "m a=1i,b=1i"}, {ints("a", "b"), "m a=1i,b=1"}, {ints("a", "b"), "m a=1i,b="}, {ints("a", "b"), "m a=1i,b"}, {ints("a", "b"), "m a=1i,"}, {ints("a", "b"), "m a=1i"}, {ints("a", "b"), "m a=1i 5"},
		{double, "m a=-0"}, {double, "m a=-0.0 1"}, {double, "m a=-0i"}, {double, "m a=-"}, {double, "m a=1i"}, {double, "m a=1,"},
	} {
		sameBehind(t, d, c.fields, c.body)
		sameBehind(t, d, c.fields, c.body+"\n"+c.body)
	}
}

// TestLinesAreLikeTheLastOne holds the short cut to its purpose.
func TestLinesAreLikeTheLastOne(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t, anyTime)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	decoder := newLineDecoder(in, precision{name: "ms", ratio: 1})
	require.NoError(t, decoder.all(decoderLines("m a=1i,b=0.5 1\n")))
	for fields, want := range map[string]int{
		"a=-0i,b=-0": len("a=-0i,b=-0"), "a=7i,b=1 1": len("a=7i,b=1"), "a=1,b=1": 0, "a=1i": 0, "a=1i,b=": 0, "a=1i,b=1,c=1": 0, "b=1,a=1i": 0, "a=1i,b=1\r": 0,
	} {
		require.NoError(t, in.begin())
		assert.Equal(t, want, decoder.likeLast([]byte(fields)), fields)
		decoder.in.takeBack()
	}
}

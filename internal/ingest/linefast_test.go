package ingest

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lineOutcome is all that can be told of a body of line protocol.
type lineOutcome struct {
	Count    int
	Lines    []uint32
	Refused  []refusedReading
	Reasons  map[telemetry.Code]int
	Readings []telemetry.Reading
	Streams  []string
	Rows     [][2]uint32 // index and size
	Memory   int64
}

// decodeLinesBy decodes a body on one of the paths.
func decodeLinesBy(t require.TestingT, d *Door, content []byte, plain bool) lineOutcome {
	return decodeLinesInto(t, d.newIntake(d.streams["readings"], telemetry.Stored), content, plain)
}

// decodeLinesInto is decodeLinesBy with an intake that may have readings.
func decodeLinesInto(t require.TestingT, in *intake, content []byte, plain bool) lineOutcome {
	var pool linePool
	decoder := newLineDecoder(in, precision{name: "us", ratio: -1000})
	decoder.plain = plain
	require.NoError(t, decoder.all(pool.get(bytes.NewReader(content))))
	o := lineOutcome{Count: in.count, Lines: in.lines, Refused: in.answer.Errors, Reasons: in.answer.reasons}
	b := in.builder.Batch()
	for i := range b.Len() {
		row := b.Row(uint32(i))
		o.Readings = append(o.Readings, b.Reading(uint32(i)))
		o.Streams = append(o.Streams, b.Series(row).Stream)
		o.Rows = append(o.Rows, [2]uint32{row.Index, row.Size})
	}
	o.Memory = b.MemorySize()
	return o
}

// samePaths holds that a body is the same on both paths: where nothing is known
// of its series, which then leaves the decoding to the library alone, and where
// all of them are.
func samePaths(t require.TestingT, d *Door, content []byte) {
	d.known = batch.NewInterner(0)
	want := decodeLinesBy(t, d, content, true)
	known := decodeLinesBy(t, d, content, true)
	require.Equal(t, known, decodeLinesBy(t, d, content, false), "fast, of series that the plain path knew: %q", content)
	d.known = batch.NewInterner(0)
	require.Equal(t, want, decodeLinesBy(t, d, content, false), "fast: %q", content)
	require.Equal(t, known, decodeLinesBy(t, d, content, false), "fast, of known series: %q", content)
	require.Equal(t, known, decodeLinesBy(t, d, content, true), "plain, of series that the fast path knew: %q", content)
	want.Memory = known.Memory // less, for the series were there
	require.Equal(t, want, known, "plain, of known series: %q", content)
}

// lineDoors returns doors that read lines differently.
func lineDoors(t testing.TB) []*Door {
	t.Helper()
	usual, _ := newTestDoor(t)
	other, _ := newTestDoor(t, func(c *Config) { c.SensorTag, c.MapDots = "host", '_' })
	return []*Door{usual, other}
}

// lineCorpus returns bodies with what the paths could see differently.
func lineCorpus(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, c := range refusalCases() {
		all = append(all, c.line)
	}
	for _, value := range []string{
		"1", "-1", "0", "-0", "1i", "-1i", "-0i", "1u", "-1u", "00012i", "9223372036854775807i", "9223372036854775808i", "-9223372036854775808i", "-9223372036854775809i",
		"9223372036854775808u", "18446744073709551616i", "100000000000000000000i", "00000000000000000000001i", "i", "-i", "-", ".", "-.", "1.", ".5", "-.5", "-0.0", "1..2", "1.5i", "1e5", "1e5i", "1E-5", "1e400", "-1e400", "1e", "+1", "0x10", "1_0",
		"0.1", "123456789012345", "1234567890123456", "0.123456789012345", "0.1234567890123456", "12345678.87654321", "123456789.987654321", "9007199254740993", "NaN", "inf", "nil",
		"t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE", "tRUE", "truth", "yes", `""`, `"a"`, `"a b,c=d"`, `"a\"b"`, `"a\\"`, `"a\n"`, `"`, `"a`, `"a"b`, "\"\xff\"", "\"é\"", "\"\x00\"", "1\r", "1\t", "\"a\r\"",
	} {
		all = append(all, "m f="+value, "m,host=a f="+value+",g=2i 1795255200123456", "m,host=a g=1,f="+value+" 1795255200123456\nm,host=a f="+value)
	}
	for _, line := range []string{
		"", " ", "#", "# m f=1", "m", "m ", "m f", "m f=", "m f=1,", "m f=1, g=2", "m f=1 ", "m f=1  1", "m  f=1", " m f=1", "m f=1\t1", "m f=1 1 ", "m f=1 1 1", "m f=1 -1", "m f=1 a", "m f=1 1i", "m f=1 -", "m f=1 00000000000000000000001", "m f=1 9223372036854775807", "m f=1 9223372036854775808", "m f=1 99999999999999999999",
		",a=b f=1", "m, f=1", "m,a f=1", "m,a= f=1", "m,=b f=1", "m,a=b, f=1", "m,a=b,,c=d f=1", "m,a=b=c f=1", "m,a=b=c=d f=1", `m,a=b"c=d f=1`, `m,a=b\c=d f=1`, "m f=1ixa=2", "m f=1i=a=2", `m f="a"xb=1`, "m,a=b,a=c f=1", "m,z=1,b=2,a=3,host=4 f=1", "m=1,a=b f=1", "m#,a=b f=1", "#m,a=b f=1\nm f=1", "m,a=# f=1\nm,a=# f=2", "m,a=é f=1\nm,a=é f=2", "mem,host=a f=1\nm f=1\nmem,host=a f=2", "readings f=1",
		"m f=1,f=2", "m f=1i,f=2", "m ts=1", "m _id=1", "m $a=1", "m a.b=1\nm a_b=1\nm a.b=1", "m,a.b=1 f=1\nm,a_b=1 f=1", "m \"f\"=1", "m f\"=1,g=\"a\nb\"", "m,q=\" f=\"a\nb\" 1", "m a\\ b=1", "m a\\,b=1\nm a,b=1", "m a\\=b=1\nm a=b=1", "m\\ n f=1", "m,a=b\\ c f=1\nm,a=b\\ c f=2", "m,a=\\ f=1", "m,a=b\\\\ f=1",
		"m f=\"a\nb\",g=1 1\nm f=2", "m f=\"a\nm f=\"b\"", "m f=1\r\nm f=2\r\n", "m f=1\r\r\nm f=2", "m\x01 f=1", "m,a=\x7f f=1", "m f\x02=1",
		"m " + strings.Repeat("f=1,", 300) + "g=1", "m " + strings.Repeat("n", 129) + "=1", "m f=\"" + strings.Repeat("x", 1025) + "\"", "m,a=" + strings.Repeat("x", 1025) + " f=1", strings.Repeat("m", 1025) + " f=1",
	} {
		all = append(all, line, "m f=1\n"+line+"\nm f=\"a\",g=t 1795255200123456")
	}
	return append(all, sample(t, "tsbs-cpu-100x1h.lp"))
}

func TestBothPathsOfLinesAreTheSame(t *testing.T) {
	t.Parallel()
	for _, d := range lineDoors(t) {
		corpus := lineCorpus(t)
		for _, body := range corpus {
			samePaths(t, d, []byte(body))
		}
		samePaths(t, d, []byte(strings.Join(corpus, "\n")))
	}
}

// TestBothPathsOfLinesAreTheSameAtRandom writes lines of words that are mostly
// right, so that what is wrong stands anywhere in them.
func TestBothPathsOfLinesAreTheSameAtRandom(t *testing.T) {
	t.Parallel()
	doors := lineDoors(t)
	word := rapid.SampledFrom([]string{"a", "b", "host", "usage_user", "mem", "readings", "9", "x.y", "é", `\`, `a\ b`, `"`, "#", "", "$", "ts", "-", "A B", "\t"})
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"1i", "-7i", "12u", "t", "FALSE", `"s"`, `"s t,u=v"`, `"a\"b"`, `"`, "1.5", "1e3", "x", "", "\"\n\"", "-", "NaN", "1\r"}),
		rapid.Map(rapid.Float64(), func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }),
		rapid.Map(rapid.Int64(), func(v int64) string { return strconv.FormatInt(v, 10) + "i" }),
	)
	separator := rapid.SampledFrom([]string{",", ",", ",", ",", ",", ",", ",", " ", ",,", ", ", "", "="})
	space := rapid.SampledFrom([]string{" ", " ", " ", " ", " ", " ", "  ", "\t", ""})
	end := rapid.SampledFrom([]string{"\n", "\n", "\n", " 1795255200123456\n", " 1795255200123456\n", " 1\n", "\r\n", " \n", " 1 1\n", " -5\n", " x\n"})
	line := rapid.Custom(func(t *rapid.T) string {
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
	})
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(line, 1, 5).Draw(t, "lines"), "")
		samePaths(t, doors[rapid.IntRange(0, len(doors)-1).Draw(t, "door")], []byte(body))
	})
}

func FuzzLinePaths(f *testing.F) {
	for _, body := range lineCorpus(f) {
		if len(body) < 1000 {
			f.Add([]byte(body))
		}
	}
	doors := lineDoors(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range doors {
			samePaths(t, d, body)
		}
	})
}

// TestSimpleLinesTakeTheFastPath holds the fast path to its purpose, for without
// it everything would only be slower.
func TestSimpleLinesTakeTheFastPath(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	decoder := newLineDecoder(in, precision{name: "ms", ratio: 1})
	for line, want := range map[string]bool{
		"cpu,host=a,region=b user=58i,system=2i 1795255200123": true,
		"cpu user=1": true,
		"cpu,host=a i=-5i,u=5u,f=0.25,e=1e-9,d=-0.1234567890123456789,t=true,s=\"a b,c=d\",é=1": false,
		"cpu,host=a i=-5i,u=5u,f=0.25,e=1e-9,d=-0.1234567890123456789,t=true,s=\"a b,c=é\"":     true,
		"cpu,host=a n=9223372036854775807i":                                                     true,
		"cpu,host=a n=1e999":                                                                    true, // which the builder refuses
		"cpu,host=a s=\"\\\\\"":                                                                 false,
		"cpu,host=a s=\"open":                                                                   false,
		"cpu,host=a  n=1":                                                                       false,
		"cpu,host=a n=1 ":                                                                       false,
		"cpu,host=a n=1 -1":                                                                     false,
		"cpu,host=a\\ b n=1":                                                                    false,
		"cpu,host=é n=1":                                                                        false,
		"cpu,host=a":                                                                            false,
	} {
		count := in.count
		done, err := decoder.fast([]byte(line))
		require.NoError(t, err)
		assert.Equal(t, want, done, line)
		if !done {
			assert.Equal(t, count, in.count, "%s is left unbegun", line)
		}
	}
	require.NoError(t, decoder.all(decoderLines("cpu,host=é/ n=1\n")))
	done, err := decoder.fast([]byte("cpu,host=é/ n=2"))
	require.NoError(t, err)
	assert.True(t, done, "its series is known now")
	for range 3 {
		require.NoError(t, decoder.all(decoderLines("a x=1,y=1\nb x=1,z=1,y=1\n")))
	}
	assert.Equal(t, "x=z=y=", string(decoder.names), "only the last line's are kept")
}

func decoderLines(body string) *lines {
	var pool linePool
	return pool.get(strings.NewReader(body))
}

func TestDecimalsAreThoseOfStrconv(t *testing.T) {
	t.Parallel()
	d, _ := newTestDoor(t)
	check := func(t require.TestingT, numbers []string) {
		body := "m f=" + strings.Join(numbers, "\nm f=") + "\n"
		got := decodeLinesBy(t, d, []byte(body), false)
		var want []telemetry.Value
		for _, text := range numbers {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				want = append(want, telemetry.FloatValue(v)) // which compares bits
			}
		}
		require.Len(t, got.Readings, len(want), body)
		for i, r := range got.Readings {
			require.Equal(t, want[i], r.Fields[0].Value)
		}
	}
	check(t, []string{"0", "-0", "-0.0", "1.", ".5", "-.5", "999999999999999", "9007199254740991", "9007199254740992", "9007199254740993", "0.3", "0.0000000000000000001", "0.00000000000000000001",
		"1844674407370955161.5", "18446744073709551615.5", "9.007199254740993", "123456789.123456789", "1e22", "1e23", "1e-300", "4.9e-324", "2.2250738585072011e-308", "1e999", ".", "-", "-.", "--1", "1.1.", "1e"})
	digits := rapid.StringMatching(`-?[0-9]{1,12}(\.[0-9]{0,10})?`)
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.SliceOfN(digits, 1, 20).Draw(t, "numbers")) })
	written := rapid.Custom(func(t *rapid.T) string {
		return strconv.FormatFloat(rapid.Float64().Draw(t, "number"), rapid.SampledFrom([]byte("fge")).Draw(t, "format"), rapid.IntRange(-1, 9).Draw(t, "digits"), 64)
	})
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.SliceOfN(written, 1, 20).Draw(t, "numbers")) })
}

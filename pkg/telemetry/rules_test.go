package telemetry

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func codeOf(r *Refusal) Code {
	if r == nil {
		return ""
	}
	return r.Code
}

func TestSensors(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]Code{
		"s":                       "",
		"a s 1":                   "",
		"cpu,host=a":              "",
		"Zürich/温度":               "",
		"😀":                       "",
		strings.Repeat("s", 1024): "",
		strings.Repeat("ö", 512):  "",
		"":                        SensorMissing,
		strings.Repeat("s", 1025): SensorInvalid,
		strings.Repeat("ö", 513):  SensorInvalid,
		"a\x00":                   SensorInvalid,
		"a\tb":                    SensorInvalid,
		"a\n":                     SensorInvalid,
		"a\x7f":                   SensorInvalid,
		"a\u00a0b":                SensorInvalid, // a space that looks like a regular one
		"a\u200bb":                SensorInvalid, // zero width
		"a\u202eb":                SensorInvalid, // reverses the text
		"ö\u2028":                 SensorInvalid,
		"\xff":                    SensorInvalid,
		"a\xc3":                   SensorInvalid,
		"\xed\xa0\x80":            SensorInvalid, // half a surrogate pair
	} {
		assert.Equal(t, want, codeOf(CheckSensor([]byte(id))), "%q", id)
	}
	assert.Contains(t, CheckSensor([]byte("aö\u200b")).Message, "U+200B at byte 3")
}

func TestSensorsAreExactlyWhatIsPrintable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.ByteRange(' ', '~')), 1, 20).Draw(t, "id")
		if rapid.Bool().Draw(t, "UTF-8") {
			id = []byte(rapid.StringN(1, 20, 1024).Draw(t, "text"))
		}
		want := utf8.Valid(id)
		for _, r := range string(id) {
			want = want && unicode.IsPrint(r)
		}
		if got := CheckSensor(id) == nil; got != want {
			t.Fatalf("%q: %v", id, got)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"t": true, "usage_user": true, "Temperatur °C": true, "a$": true, "-": true, "TS": true, "id": true, "0": true,
		strings.Repeat("n", 128): true, "tab\t": true,
		"": false, strings.Repeat("n", 129): false, "$t": false, "a.b": false, ".": false, "a\x00": false,
		"ts": false, "sensor": false, "_id": false, "\xff": false,
	} {
		if good {
			assert.Nil(t, CheckFieldName([]byte(name)), "%q", name)
			assert.Nil(t, CheckTagName([]byte(name)), "%q", name)
			continue
		}
		assert.Equal(t, FieldName, codeOf(CheckFieldName([]byte(name))), "%q", name)
		assert.Equal(t, TagName, codeOf(CheckTagName([]byte(name))), "%q", name)
	}
	assert.Contains(t, CheckFieldName([]byte("a.b")).Message, "--map-dots")
}

func TestValues(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		assert.Equal(t, ValueNotFinite, codeOf(CheckFloat([]byte("t"), v)))
	}
	for _, v := range []float64{0, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64} {
		assert.Nil(t, CheckFloat([]byte("t"), v))
	}
	for text, good := range map[string]bool{"": true, "a\x00\n": true, strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false, "\xff": false} {
		assert.Equal(t, good, CheckFieldText([]byte("t"), []byte(text)) == nil, "%q", text)
		assert.Equal(t, good, CheckTagText([]byte("t"), []byte(text)) == nil, "%q", text)
	}
	assert.Equal(t, ValueText, codeOf(CheckFieldText(nil, []byte("\xff"))))
	assert.Equal(t, TagValue, codeOf(CheckTagText(nil, []byte("\xff"))))
}

func TestTimesAreWrittenInTimeFormat(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("east", 5*3600+1800)
	for _, ns := range []int64{0, -1, 999_999, 1_000_000, 1_700_000_000_009_999_999, 1_700_000_000_090_000_000, 1_700_000_000_900_000_000, -62_000_000_000_000_001} {
		at := time.Unix(0, ns).In(east)
		assert.Equal(t, at.UTC().Format(TimeFormat), string(AppendTime([]byte("ts="), at)[3:]))
	}
}

func BenchmarkAppendTime(b *testing.B) {
	at, dst := time.UnixMilli(1_700_000_000_123), make([]byte, 0, 32)
	for b.Loop() {
		dst = AppendTime(dst[:0], at)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	r := TimeRange{Oldest: 1000, Newest: 2000}
	for ms, want := range map[int64]Code{
		math.MinInt64: TimeOutOfRange, -1: TimeOutOfRange, 0: TimeExpired, 999: TimeExpired,
		1000: "", 2000: "", 2001: TimeOutOfRange, math.MaxInt64: TimeOutOfRange,
	} {
		assert.Equal(t, want, codeOf(r.CheckTime(ms)), ms)
	}
	assert.Equal(t, "ts 1969-12-31T23:59:59.999Z is before 1970-01-01T00:00:00.000Z (--min-time)", r.CheckTime(-1).Message)
	assert.Contains(t, r.CheckTime(2001).Message, "the newest allowed now is 1970-01-01T00:00:02.000Z (--max-future)")
}

func TestTimesInAnotherUnitAreNamed(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		instant, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return instant.UnixMilli()
	}
	r := TimeRange{Earliest: at("2000-01-01T00:00:00Z"), Newest: at("2026-11-22T10:10:00Z")}
	for _, c := range []struct {
		unit    string
		ms      int64
		message string
	}{
		{"", r.Earliest - 1, "ts 1999-12-31T23:59:59.999Z is before 2000-01-01T00:00:00.000Z (--min-time)"},
		{"", 1795255200, "ts 1970-01-21T18:40:55.200Z is before 2000-01-01T00:00:00.000Z (--min-time); it looks like seconds, and must be milliseconds"},
		{"", 1795255200_000_000, "(--max-future); it looks like microseconds, and must be milliseconds"},
		{"", 1795255200_000_000_000, "(--max-future); it looks like nanoseconds, and must be milliseconds"},
		{"ns", 1795, "(--min-time); it looks like seconds, which need precision=s"},
		{"ns", 1795255, "(--min-time); it looks like milliseconds, which need precision=ms"},
		{"us", 1795255, "(--min-time); it looks like seconds, which need precision=s"},
		{"ms", 1795255200_000_000_000, "(--max-future); it looks like nanoseconds, which need precision=ns"},
		{"s", 1795255200_000_000, "(--max-future); it looks like milliseconds, which need precision=ms"},
		{"", 12, "is before 2000-01-01T00:00:00.000Z (--min-time)"},
		{"", 0, "ts 1970-01-01T00:00:00.000Z is before 2000-01-01T00:00:00.000Z (--min-time)"},
	} {
		r.Unit = c.unit
		refusal := r.CheckTime(c.ms)
		require.NotNil(t, refusal, "%d %s", c.ms, c.unit)
		assert.Equal(t, TimeOutOfRange, refusal.Code)
		assert.True(t, strings.HasSuffix(refusal.Message, c.message), "%d %s: %s", c.ms, c.unit, refusal.Message)
	}
	r.Unit, r.Oldest = "", at("2026-11-01T00:00:00Z")
	assert.Equal(t, TimeOutOfRange, r.CheckTime(1795255200).Code, "the unit is told in place of the retention")
}

func TestFormatMillis(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{
		0: "1970-01-01T00:00:00.000Z", -1: "1969-12-31T23:59:59.999Z", 1795255200120: "2026-11-21T10:00:00.120Z",
		253402300799999: "9999-12-31T23:59:59.999Z", 253402300800000: "253402300800000", math.MinInt64: "-9223372036854775808",
	} {
		assert.Equal(t, want, FormatMillis(ms))
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                       `""`,
		`a"\`:                    `"a\"\\"`,
		"\n\x00\u200b'":          `"\n\x00\u200b'"`,
		"öl 😀":                   `"öl 😀"`,
		"\xff":                   `"\xff"`,
		strings.Repeat("a", 64):  `"` + strings.Repeat("a", 64) + `"`,
		strings.Repeat("a", 65):  `"` + strings.Repeat("a", 64) + `…"`,
		strings.Repeat("'", 200): `"` + strings.Repeat("'", 64) + `…"`,
	} {
		assert.Equal(t, want, Quote([]byte(given)))
	}
	rapid.Check(t, func(t *rapid.T) {
		quoted := Quote(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if !utf8.ValidString(quoted) || len(quoted) > 700 {
			t.Fatalf("%q", quoted)
		}
		for _, r := range quoted {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", quoted, r)
			}
		}
	})
}

func TestCodesAreNamedOnce(t *testing.T) {
	t.Parallel()
	seen := make(map[Code]bool)
	for _, c := range Codes() {
		require.False(t, seen[c], c)
		seen[c] = true
		assert.Regexp(t, `^[a-z_]+$`, string(c))
	}
}

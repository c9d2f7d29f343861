package ingest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestLineIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	w := post(t, d, "/write?db=telegraf&rp=autogen", "text/plain", `cpu,rack=7,host=h\ 1,a\,b=c\=d f=1.5,e=1e3,i=-3i,u=9223372036854775807u,yes=t,no=FALSE,s="a \"b\" \\ c,d=1",min=-9223372036854775808i 1795255200123456789`+"\n")
	require.Equal(t, 204, w.Code, w.Body)
	assert.Empty(t, w.Body.String())
	r := j.readings()[0]
	assert.Equal(t, `cpu,a\,b=c\=d,host=h\ 1,rack=7`, r.Sensor)
	assert.Equal(t, "2026-11-21T10:00:00.123Z", r.Time.Format(telemetry.TimeFormat))
	assert.Equal(t, []telemetry.Tag{{Name: "a,b", Value: "c=d"}, {Name: "host", Value: "h 1"}, {Name: "rack", Value: "7"}}, r.Tags)
	assert.Equal(t, []telemetry.Field{
		{Name: "f", Value: telemetry.FloatValue(1.5)},
		{Name: "e", Value: telemetry.FloatValue(1000)},
		{Name: "i", Value: telemetry.IntValue(-3)},
		{Name: "u", Value: telemetry.IntValue(math.MaxInt64)},
		{Name: "yes", Value: telemetry.BoolValue(true)},
		{Name: "no", Value: telemetry.BoolValue(false)},
		{Name: "s", Value: telemetry.TextValue(`a "b" \ c,d=1`)},
		{Name: "min", Value: telemetry.IntValue(math.MinInt64)},
	}, r.Fields)
}

func TestSeriesKeys(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`cpu t=1`:                               `cpu`,
		`cpu,b=2,a=1 t=1`:                       `cpu,a=1,b=2`,
		`cpu,B=2,a=1,A=0 t=1`:                   `cpu,A=0,B=2,a=1`, // by bytes
		`a\,b\ c=d t=1`:                         `a\,b\ c=d`,
		`cpu,k\ 1=v\,2\=3 t=1`:                  `cpu,k\ 1=v\,2\=3`,
		`cpu,ä=ö t=1`:                           `cpu,ä=ö`,
		`cpu,path=C:\temp t=1`:                  `cpu,path=C:\\temp`,
		`cpu,q="quoted" t=1`:                    `cpu,q="quoted"`,
		`  cpu,a=1   t=1   1795255200123456789`: `cpu,a=1`,
	} {
		d, j := newTestServer(t)
		require.Equal(t, 204, post(t, d, "/write", "", line).Code, line)
		assert.Equal(t, want, j.readings()[0].Sensor, line)
		require.Equal(t, 204, post(t, d, "/write", "", line+"\n"+line).Code, line)
		assert.Equal(t, want, j.readings()[2].Sensor, "%s, looked up", line)
	}
}

func TestSensorTagNamesTheSensor(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) { c.SensorTag = "host" })
	w := post(t, d, "/api/v2/write?bucket=b&org=o", "", "cpu,rack=1,host=h\\ 1 t=1\ncpu,host=h\\ 1,rack=1 t=2\nmem,host=h2 t=3\nmem,host=h2 t=4\n")
	require.Equal(t, 204, w.Code, w.Body)
	var sensors []string
	for _, r := range j.readings() {
		sensors = append(sensors, r.Sensor)
	}
	assert.Equal(t, []string{"h 1", "h 1", "h2", "h2"}, sensors)
	assert.Equal(t, []telemetry.Tag{{Name: "host", Value: "h 1"}, {Name: "rack", Value: "1"}}, j.readings()[0].Tags, "it stays a tag")
	assert.Equal(t, j.readings()[0].Tags, j.readings()[1].Tags, "the order of tags does not matter")
}

func TestMeasurementSelectsTheStream(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	require.Equal(t, 204, post(t, d, "/write", "", "cpu t=1\nmem t=1\ncpu t=1\nmem t=1\nreadings t=1\n").Code)
	assert.Equal(t, []string{"readings", "mem", "readings", "mem", "readings"}, j.streams())
	require.Len(t, j.batches, 1)
}

func TestPrecisions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, timestamp, want string }{
		{"", "1795255200123999999", "2026-11-21T10:00:00.123Z"},
		{"?precision=ns", "1795255200123999999", "2026-11-21T10:00:00.123Z"},
		{"?precision=n", "1795255200123999999", "2026-11-21T10:00:00.123Z"},
		{"?precision=us", "1795255200123999", "2026-11-21T10:00:00.123Z"},
		{"?precision=u", "1795255200123999", "2026-11-21T10:00:00.123Z"},
		{"?precision=ms", "1795255200123", "2026-11-21T10:00:00.123Z"},
		{"?precision=s", "1795255200", "2026-11-21T10:00:00.000Z"},
		{"?precision=m", "29920920", "2026-11-21T10:00:00.000Z"},
		{"?precision=h", "498682", "2026-11-21T10:00:00.000Z"},
		{"", "0", "1970-01-01T00:00:00.000Z"},
		{"", "-0", "1970-01-01T00:00:00.000Z"},
	} {
		d, j := newTestServer(t, anyTime)
		w := post(t, d, "/write"+c.query, "", "cpu t=1 "+c.timestamp)
		require.Equal(t, 204, w.Code, "%s: %s", c.query, w.Body)
		assert.Equal(t, c.want, j.readings()[0].Time.Format(telemetry.TimeFormat), c.query)
	}
	d, _ := newTestServer(t, anyTime)
	w := post(t, d, "/write?precision=d", "", "cpu t=1 1")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"precision_unknown","message":"precision \"d\" is unknown; allowed: n, u, ns, us, ms, s, m, h"`)
	for _, timestamp := range []string{"9223372036854775807", "-9223372036854775808"} {
		w := post(t, d, "/write?precision=s", "", "cpu t=1 "+timestamp)
		assert.Contains(t, w.Body.String(), "ts_out_of_range", "it must not overflow into the past")
	}
	// Half a nanosecond before 1970 is the millisecond before it.
	assert.Contains(t, post(t, d, "/write", "", "cpu t=1 -1").Body.String(), "ts 1969-12-31T23:59:59.999Z is before 1970")
}

func TestMillisRoundTowardsThePast(t *testing.T) {
	t.Parallel()
	p := precision{name: "us", ratio: -1000}
	for given, want := range map[int64]int64{0: 0, 999: 0, 1000: 1, -1: -1, -1000: -1, -1001: -2, math.MinInt64: -9223372036854776} {
		got, ok := p.millis(given)
		assert.True(t, ok)
		assert.Equal(t, want, got, given)
	}
}

// A line that resembles the previous one is decoded as it would be alone.
func TestPreviousLineDoesNotAffectDecoding(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, anyTime)
	decode := func(content string) outcome {
		d.known = batch.NewInterner(0)
		return decodeOutcome(d, []byte(content), func(in *intake, b []byte) error {
			return in.decodeLineProtocol(b, precision{name: "ms", ratio: 1})
		})
	}
	for _, first := range []string{"cpu a=1i,b=2.5 1", "cpu a=-1i 1", "cpu a\\=b=1i 1", "cpu a=t 1", `cpu a="x",b=1i 1`, "cpu a\\ b=1.5 1", "cpu a\\b=1 1"} {
		for _, second := range []string{
			"cpu a=3i,b=4.5 2", "cpu a=3i,b=4.5", "cpu a=-3i,b=-0 2", "cpu a=3,b=4.5 2", "cpu a=3i,b=4i 2", "cpu a=3i 2", "cpu a=3i,b=4.5,c=1 2",
			"cpu b=4.5,a=3i 2", "cpu a=3i,b=4.5\r", "cpu a=3i, b=4.5 2", "cpu a=3i,b= 2", "cpu a=,b=4.5 2", "cpu a=3u,b=4.5 2", "cpu a=9223372036854775808i,b=1 2",
			"cpu a=-9223372036854775808i,b=1 2", "cpu a=3i,b=1e400 2", "cpu a=3i,b=1e3 2", "cpu a=b=1i 2", "cpu a\\=b=1i 2", "cpu a b=1.5 2", "cpu a=t 2",
			`cpu a="x",b=1i 2`, "cpu a\\b=1 2", "cpu a=3i,b=4.5x 2", "cpu a=3i,b=4.5 x", "cpu a=-i,b=1 2", "cpu a", "cpu a=",
		} {
			alone, behind := decode(second), decode(first+"\n"+second)
			require.Equal(t, alone.err, behind.err)
			require.Len(t, behind.readings, len(alone.readings)+1, "%q behind %q: %v", second, first, behind.answer.Errors)
			assert.Equal(t, alone.readings, append([]telemetry.Reading(nil), behind.readings[1:]...), "%q behind %q", second, first)
			for i := range behind.answer.Errors {
				behind.answer.Errors[i].Index--
			}
			assert.Equal(t, alone.answer.Errors, behind.answer.Errors, "%q behind %q", second, first)
		}
	}
}

func TestLinesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, message string }{
		{`cpu`, "malformed: the line is not line protocol: "},
		{`cpu,host=a`, "malformed"},
		{`cpu,host= t=1`, "malformed"},
		{`cpu t`, "malformed"},
		{`cpu t=`, "malformed"},
		{`cpu t=NaN`, `malformed: field "t" has the value "NaN", which is not a number`},
		{`cpu t=0x10`, `malformed: field "t" has the value "0x10", which is not a number`},
		{`cpu t=1_000`, "malformed"},
		{`cpu t=1.5i`, `malformed: field "t" has the value "1.5i", which is not an integer`},
		{`cpu t=-1u`, "malformed"},
		{`cpu t=-i`, "malformed"},
		{`cpu t=yes`, "malformed"},
		{`cpu t=truth`, `malformed: field "t" has the value "truth", which is not a number, a boolean`},
		{`cpu t=1 12a`, "malformed"},
		{`cpu t=1 1 1`, "malformed"},
		{`cpu t=1 -`, "ts_invalid"},
		{`cpu t=1 1-1`, "ts_invalid"},
		{"cpu t=\"\xff\"", "malformed"},
		{"cp\x01u t=1", "malformed"},
		{`,a=b t=1`, "malformed"},
		{`cpu,host=a t=NaN`, `which is not a number`},
	} {
		d, j := newTestServer(t)
		// The line stands between others of its series, which are looked up.
		w := post(t, d, "/write", "", "cpu,host=a t=1\n"+c.line+"\ncpu,host=a t=2")
		assert.Equal(t, 400, w.Code, c.line)
		assert.Contains(t, w.Body.String(), "partial write: 1 of 3 lines", c.line)
		assert.Contains(t, w.Body.String(), strings.ReplaceAll(c.message, `"`, `\"`), c.line)
		assert.Contains(t, w.Body.String(), `"line":2`, c.line)
		require.Len(t, j.readings(), 2, c.line)
		assert.Equal(t, telemetry.FloatValue(2), j.readings()[1].Fields[0].Value, c.line)
	}
}

func TestStringsWithEndsOfLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		texts      string // of the taken lines
		line       string // first refused
	}{
		{"a string over three lines", "log m=\"one\ntwo\r\nthree\"\nlog m=\"four\"", "one\ntwo\r\nthree|four", ""},
		{"a string behind spaces in front", "  log   m=\"one\ntwo\"", "one\ntwo", ""},
		{"with an escaped quote before the end", "log m=\"one\\\"\ntwo\"\nlog m=\"three\"", "one\"\ntwo|three", ""},
		{"two strings", "log m=\"one\",n=\"a\nb\"\nlog m=\"two\"", "one|two", ""},
		{"a missing quote at the end of the body", "log m=\"one\nlog n=1,m=\"\"", "", `"line":1`},
		{"a missing quote and nothing behind", "log m=\"two\"\nlog m=\"one", "two", `"line":2`},
		{"a missing quote costs its line only", "log m=\"one\nlog m=\"two\"\nlog m=\"three\"", "two|three", `"line":1`},
		{"many missing quotes", "log m=\"0\nlog m=\"1\nlog m=\"2\nlog m=\"three\"\n", "three", `"line":1`},
		{"a quote in a tag", "log,t=\"a m=\"one\"\nlog,t=b m=\"two\"", "one|two", ""},
		{"a quote in a comment", "# \"\nlog m=\"one\"", "one", ""},
		{"a quote behind an escaped equals sign", "log a\\=\"b=1,m=\"one\"\nlog m=\"two\"", "one|two", ""},
		{"a quote in a measurement", "lo\"g m=\"one\"\nlog m=\"two\"", "one|two", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			w := post(t, d, "/write", "", c.body)
			var texts []string
			for _, r := range j.readings() {
				for _, f := range r.Fields {
					if f.Name == "m" && f.Value.Text() != "" {
						texts = append(texts, f.Value.Text())
					}
				}
			}
			assert.Equal(t, c.texts, strings.Join(texts, "|"), w.Body)
			assert.Contains(t, w.Body.String(), c.line)
			if c.line == "" {
				assert.Equal(t, 204, w.Code, w.Body)
			} else {
				assert.Equal(t, 400, w.Code)
			}
		})
	}
}

func TestLineProtocolAnswers(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	w := post(t, d, "/write", "", "cpu\ncpu t\n")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"nothing_taken","message":"unable to parse: 2 of 2 lines were refused, nothing was accepted; line 1: malformed: `)
	assert.Contains(t, w.Body.String(), " dropped=2")
	assert.Empty(t, j.readings())

	for _, body := range []string{"", "\n", "# only a comment\n"} {
		w = post(t, d, "/api/v2/write", "", body)
		assert.Equal(t, 400, w.Code)
		assert.JSONEq(t, `{"code":"no_readings","message":"the request contains no readings","error":"the request contains no readings"}`, w.Body.String())
	}

	w = post(t, d, "/write", "", gzipped(t, "cpu t=1\n"), "Content-Encoding", "gzip")
	assert.Equal(t, 204, w.Code)

	j.reach = telemetry.Journaled
	w = post(t, d, "/write?ack=stored", "", "cpu t=1\n")
	assert.Equal(t, 202, w.Code)
	assert.Empty(t, w.Body.String())
}

// TestDifferentSeriesHaveDifferentSensors goes through all short series of the
// characters that mean something.
func TestDifferentSeriesHaveDifferentSensors(t *testing.T) {
	t.Parallel()
	words := []string{""}
	alphabet := []string{"a", `\`, ",", " ", "="}
	for _, x := range alphabet {
		words = append(words, x)
		for _, y := range alphabet {
			words = append(words, x+y)
		}
	}
	seen := make(map[string]string)
	check := func(measurement string, pairs ...string) {
		d := lineDecoder{measurement: []byte(measurement)}
		for i := 0; i < len(pairs); i += 2 {
			d.tags = append(d.tags, wireTag{name: []byte(pairs[i]), value: []byte(pairs[i+1])})
		}
		series := fmt.Sprintf("%q %q", measurement, pairs)
		id := string(d.seriesKey())
		require.Empty(t, seen[id], "%s has the id %s too", series, id)
		seen[id] = series
	}
	for _, measurement := range words {
		check(measurement)
		for _, key := range words[1:] {
			for _, value := range words {
				check(measurement, key, value)
			}
		}
	}
	for _, value := range words { // two tags, where the first value ends
		check("m", "a", value, "b", "c")
		check("m", "a", "c", "b", value+"!")
	}
	assert.Equal(t, `m,a=\\,b=c`, seriesOf(seen, `"m" ["a" "\\" "b" "c"]`))
}

// seriesOf returns the id under which a series was seen.
func seriesOf(seen map[string]string, series string) string {
	for id, s := range seen {
		if s == series {
			return id
		}
	}
	return ""
}

package files_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var writable = []files.Format{files.Parquet, files.CSV, files.NDJSON}

// write writes readings to a file of the format.
func write(t require.TestingT, f files.Format, readings []telemetry.Reading) []byte {
	var c files.Columns
	for i := range readings {
		c.Add(&readings[i])
	}
	var out bytes.Buffer
	w, err := files.NewWriter(f, &out, &c)
	require.NoError(t, err)
	for i := range readings {
		require.NoError(t, w.Write(&readings[i]))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// read returns all rows of a file.
func read(t require.TestingT, f files.Format, content []byte, o files.Options) (rows []files.Row) {
	for row, err := range files.Read(f, bytes.NewReader(content), int64(len(content)), o) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows
}

func readingsOf(t require.TestingT, rows []files.Row) (out []telemetry.Reading) {
	for _, row := range rows {
		require.NoError(t, row.Err)
		out = append(out, row.Reading)
	}
	return out
}

// canonical is a reading as text, whatever the order of its fields and tags.
func canonical(readings []telemetry.Reading) (out []string) {
	for _, r := range readings {
		fields, tags := make(map[string]any), make(map[string]string)
		for _, f := range r.Fields {
			fields[f.Name] = f.Value
		}
		for _, tag := range r.Tags {
			tags[tag.Name] = tag.Value
		}
		out = append(out, fmt.Sprintf("%q %s %v %q", r.Sensor, r.Time.Format(telemetry.TimeFormat), fields, tags))
	}
	return out
}

// names are those that could be confused with columns of another meaning.
var names = []string{"t", "h", "site", "day", "tags", "fields", "int", "text", "sensorId", "a,b", `q"q`, " ", "größe", "line\nend"}

func genReading() *rapid.Generator[telemetry.Reading] {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "5", "true", "1.5", "a\"b", "a,b", "two\nlines", "cr\r\nlf", "ü", "NaN", "=1"}), rapid.StringN(0, 20, 100))
	value := rapid.OneOf(
		rapid.Map(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64), telemetry.FloatValue),
		rapid.Map(rapid.SampledFrom([]float64{0, 23, -1.5, 1e300, math.SmallestNonzeroFloat64}), telemetry.FloatValue),
		rapid.Map(rapid.Int64(), telemetry.IntValue), rapid.Map(rapid.Bool(), telemetry.BoolValue), rapid.Map(text, telemetry.TextValue),
	)
	return rapid.Custom(func(t *rapid.T) telemetry.Reading {
		r := telemetry.Reading{
			Sensor: rapid.SampledFrom([]string{"s-1", "s-2", `"`, "a,b", "ü"}).Draw(t, "sensor"),
			Time:   time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "time")).UTC(),
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 5, rapid.ID[string]).Draw(t, "fields") {
			r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: value.Draw(t, "value")})
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string]).Draw(t, "tags") {
			r.Tags = append(r.Tags, telemetry.Tag{Name: name, Value: text.Draw(t, "tag")})
		}
		return r
	})
}

// tagColumns are the columns of CSV that are tags, which its header does not say.
func tagColumns(readings []telemetry.Reading) []string {
	var c files.Columns
	for i := range readings {
		c.Add(&readings[i])
	}
	return c.Tags()
}

func TestFilesAreReadBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, f := range writable {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				readings := rapid.SliceOfN(genReading(), 1, 20).Draw(t, "readings")
				o := files.Options{}
				if f == files.CSV {
					o.Tags = tagColumns(readings)
				}
				got := readingsOf(t, read(t, f, write(t, f, readings), o))
				assert.Equal(t, canonical(readings), canonical(got))
			})
		})
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_123).UTC()
	field := func(name string, v telemetry.Value) []telemetry.Field {
		return []telemetry.Field{{Name: name, Value: v}}
	}
	readings := []telemetry.Reading{
		{Sensor: "a", Time: at, Fields: field("t", telemetry.IntValue(23)), Tags: []telemetry.Tag{{Name: "site", Value: "north"}}},
		{Sensor: "a", Time: at, Fields: field("t", telemetry.FloatValue(23))},
		{Sensor: "a", Time: at, Fields: field("t", telemetry.TextValue("n/a"))},
		{Sensor: "b", Time: at, Fields: field("site", telemetry.BoolValue(true))},
		{Sensor: "b", Time: at, Fields: field("day", telemetry.IntValue(1))},
	}
	assert.Equal(t, strings.Join([]string{
		"ts,sensorId,tags.site,fields.day,site,t,t.text",
		`2023-11-14T22:13:20.123Z,"a","north",,,23,`,
		`2023-11-14T22:13:20.123Z,"a",,,,23.0,`,
		`2023-11-14T22:13:20.123Z,"a",,,,,"n/a"`,
		`2023-11-14T22:13:20.123Z,"b",,,true,,`,
		`2023-11-14T22:13:20.123Z,"b",,1,,,`,
	}, "\n")+"\n", string(write(t, files.CSV, readings)))
}

func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	const at = "2026-11-21T10:00:00.123Z"
	for name, one := range map[string]struct {
		format  files.Format
		content string
		options files.Options
		want    []string // readings as JSON, or errors, by row
	}{
		"csv": {
			files.CSV, "\ufeffsensorId,site,ts,t,ok\ns-1,north,1795255200123,23.5,TRUE\r\ns-2,\"so\"\"uth\",2026-11-21 10:00:00.123Z,nan,false\n", files.Options{Tags: []string{"site"}},
			[]string{
				`{"sensorId":"s-1","ts":"` + at + `","fields":{"t":23.5,"ok":true},"tags":{"site":"north"}}`,
				`{"sensorId":"s-2","ts":"` + at + `","fields":{"ok":false},"tags":{"site":"so\"uth"}}`,
			},
		},
		"csv with bad rows": {
			files.CSV, "ts,sensorId,t\n1,s\n1,s,1,2\nyesterday,s,1\n,s,1\n1,s,\"1\n\n0,s,7\n", files.Options{},
			[]string{
				"line 2: the line has 2 cells, and the header 3", "line 3: the line has 4 cells, and the header 3",
				`line 4: ts "yesterday" is not a time; allowed: milliseconds since 1970, and RFC 3339 like 2026-11-21T10:00:00.123Z`,
				"line 5: ts is missing", "line 6: column 3: a quote is missing, or stands in the middle of a cell",
				`{"sensorId":"s","ts":"1970-01-01T00:00:00.000Z","fields":{"t":7}}`,
			},
		},
		"ndjson": {
			files.NDJSON, `{"ts":1795255200123,"sensorId":"s","fields":{"t":1,"u":1.0},"tags":{}}` + "\n\n" + `{"sensorId":"s","fields":{"t":1}}` + "\n" + `{"sensorId":"s","ts":0,"fields":{"t":1},"more":1}` + "\n" + `nonsense`, files.Options{},
			[]string{
				`{"sensorId":"s","ts":"` + at + `","fields":{"t":1,"u":1.0}}`,
				"line 3: ts is missing", "line 4: this is not a reading in JSON", "line 5: this is not a reading in JSON",
			},
		},
		"influx_inspect export": {
			files.Influx, "# INFLUXDB EXPORT: 1677-09-21T00:12:43Z - 2262-04-11T23:47:16Z\n# DDL\nCREATE DATABASE plant WITH NAME autogen\n# DML\n# CONTEXT-DATABASE:plant\n# CONTEXT-RETENTION-POLICY:autogen\n# writing tsm data\n" +
				"cpu,host=a,dc=x idle=90 1795255200123456789\ncpu,host=a,dc=x idle=80 1795255200223456789\ncpu,host=a,dc=x user=5i 1795255200123456789\ncpu,host=a,dc=x user=7i 1795255200223456789\n" +
				"note,host=b text=\"two\nlines\" 1795255200123000000\n", files.Options{},
			[]string{
				`{"sensorId":"cpu,dc=x,host=a","ts":"` + at + `","fields":{"idle":90.0,"user":5},"tags":{"host":"a","dc":"x"}}`,
				`{"sensorId":"cpu,dc=x,host=a","ts":"2026-11-21T10:00:00.223Z","fields":{"idle":80.0,"user":7},"tags":{"host":"a","dc":"x"}}`,
				`{"sensorId":"note,host=b","ts":"` + at + `","fields":{"text":"two\nlines"},"tags":{"host":"b"}}`,
			},
		},
		"line protocol": {
			files.Influx, "m,id=7 a=1,b=true,c=\"x\",d=2u 1795255200\nm,id=7 a=2 1795255200\nm a=1 1795255200\nm,id=8 a=\"open 1\nm,id=8 a=1\nm,id=8 =1 1\nm,id=8 a=1 1795255200", files.Options{SensorTag: "id", Precision: "s"},
			[]string{
				`{"sensorId":"7","ts":"2026-11-21T10:00:00.000Z","fields":{"a":1.0,"b":true,"c":"x","d":2},"tags":{"id":"7"}}`,
				`{"sensorId":"7","ts":"2026-11-21T10:00:00.000Z","fields":{"a":2.0},"tags":{"id":"7"}}`,
				"line 3: the line has no tag \"id\"", "line 4: column ", "line 5: the timestamp is missing", "line 6: column 8: ",
				`{"sensorId":"8","ts":"2026-11-21T10:00:00.000Z","fields":{"a":1.0},"tags":{"id":"8"}}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, content := range [][]byte{[]byte(one.content), gzipped(t, one.content), zstded(t, one.content)} {
				rows := read(t, one.format, content, one.options)
				require.Len(t, rows, len(one.want))
				for i, row := range rows {
					got := string(row.Reading.AppendJSON(nil))
					if row.Err != nil {
						got = fmt.Sprintf("line %d: %v", row.Line, row.Err)
					}
					assert.Truef(t, strings.HasPrefix(got, one.want[i]), "%s\nis not\n%s", got, one.want[i])
				}
			}
		})
	}
}

// Unsigned integers, which pandas writes, keep their values.
func TestUnsignedIntegersOfParquet(t *testing.T) {
	t.Parallel()
	type row struct {
		Time   int64  `parquet:"ts"`
		Sensor string `parquet:"sensorId"`
		Small  uint32 `parquet:"small"`
		Large  uint64 `parquet:"large"`
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out)
	_, err := w.Write([]row{{0, "s", math.MaxUint32, math.MaxInt64}, {0, "s", 1, math.MaxUint64}})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	rows := read(t, files.Parquet, out.Bytes(), files.Options{})
	require.Len(t, rows, 2)
	assert.JSONEq(t, `{"sensorId":"s","ts":"1970-01-01T00:00:00.000Z","fields":{"small":4294967295,"large":9223372036854775807}}`, string(rows[0].Reading.AppendJSON(nil)))
	require.EqualError(t, rows[1].Err, `field "large" is 18446744073709551615, which does not fit a signed 64-bit integer`)
}

func gzipped(t *testing.T, s string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := io.WriteString(z, s)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func zstded(t *testing.T, s string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return z.EncodeAll([]byte(s), nil)
}

func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		format  files.Format
		content string
		options files.Options
		want    string
	}{
		"no parquet":        {files.Parquet, "ts,sensorId,t\n", files.Options{}, "this is not a readable Parquet file"},
		"no time":           {files.CSV, "time,sensorId,t\n", files.Options{}, `the file has no column ts; it has "time", "sensorId", "t"`},
		"no such tag":       {files.CSV, "ts,sensorId,t\n", files.Options{Tags: []string{"site"}}, `the file has no column "site", which is to be a tag`},
		"too many columns":  {files.CSV, "ts,sensorId" + strings.Repeat(",x", files.MaxColumns+1) + "\n", files.Options{}, "the file has 4097 columns beside ts and sensorId; at most 4096 are allowed"},
		"empty":             {files.CSV, "", files.Options{}, "read the header: the file is empty"},
		"unknown precision": {files.Influx, "", files.Options{Precision: "m"}, `precision "m" is unknown; allowed: ns, us, ms and s`},
		"cut off":           {files.NDJSON, string(gzipped(t, "{}\n{}\n"))[:20], files.Options{}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last error
			for _, err := range files.Read(one.format, strings.NewReader(one.content), int64(len(one.content)), one.options) {
				last = err
			}
			require.ErrorContains(t, last, one.want)
		})
	}
}

// A string of several lines keeps what is at the ends of its lines.
func TestSpacesInAStringOfSeveralLines(t *testing.T) {
	t.Parallel()
	rows := read(t, files.Influx, []byte(" m t=\"one \t\r\n two\r\nthree\" 1 \r\nm t=\"open \r\n"), files.Options{})
	require.Len(t, rows, 2)
	require.ErrorContains(t, rows[0].Err, "column")
	require.NoError(t, rows[1].Err)
	assert.Equal(t, "one \t\r\n two\r\nthree", rows[1].Reading.Fields[0].Value.Text())
}

// A backslash before a backslash stands for itself, so a value may end with one before a space.
func TestSeriesWithBackslashes(t *testing.T) {
	t.Parallel()
	rows := read(t, files.Influx, []byte(`m,path=C:\\ one v=1 1
m,path=C:\\ two v=2 2
m,path=C:\\ two u="a\\" 3
`), files.Options{})
	require.Len(t, rows, 3)
	for i, path := range []string{`C:\ one`, `C:\ two`, `C:\ two`} {
		require.NoError(t, rows[i].Err)
		assert.Equal(t, []telemetry.Tag{{Name: "path", Value: path}}, rows[i].Reading.Tags)
	}
}

// Only a quote at the beginning of a value begins a string, and one at its end ends it.
func TestQuotesOfStrings(t *testing.T) {
	t.Parallel()
	rows := read(t, files.Influx, []byte(`m 35"=1 1
m 35"=2 2
m 35"="a
b" 3
m t="open 4
m t="c",u="d" 5
m t="open 6
m t="" 7
`), files.Options{})
	var values []string
	for _, row := range rows {
		if row.Err != nil {
			values = append(values, "refused")
			continue
		}
		values = append(values, row.Reading.Fields[0].Value.String())
	}
	assert.Equal(t, []string{"refused", "refused", "1", "2", "a\nb", "c", ""}, values) // those of a series are held back
}

// An unclosed quote before a line that is too long costs only its own line.
func TestLongLineAfterAnUnclosedQuote(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4<<20+1) + "\n"
	for format, content := range map[files.Format]string{
		files.CSV:    "ts,sensorId,t\n1,\"s,2\n2,s,3\n" + long + "3,s,4\n",
		files.Influx: "# header\nm t=\"s 1\nm t=3 2\n" + long + "m t=4 3\n",
	} {
		var good, bad []int64
		for _, row := range read(t, format, []byte(content), files.Options{}) {
			if row.Err == nil {
				good = append(good, row.Line)
			} else {
				bad = append(bad, row.Line)
			}
		}
		assert.Equal(t, []int64{3, 5}, good, format)
		assert.Equal(t, []int64{2, 4}, bad, format)
	}
}

// A string may consist of line breaks only.
func TestStringOfManyLines(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("\n", telemetry.MaxTextBytes)
	for format, content := range map[files.Format]string{
		files.CSV:    "ts,sensorId,t\n1,s,\"" + text + "\"\n2,s,2\n",
		files.Influx: "m t=\"" + text + "\" 1\nm t=2 2\n",
	} {
		rows := read(t, format, []byte(content), files.Options{})
		require.Len(t, rows, 2, format)
		require.NoError(t, rows[0].Err, format)
		assert.Equal(t, text, rows[0].Reading.Fields[0].Value.Text(), format)
	}
}

func TestDotsInLineProtocol(t *testing.T) {
	t.Parallel()
	rows := read(t, files.Influx, []byte("m.x,h.y=a.b c.d=1i 1000000\nm.x,h.y=a.b c.e=2i 1000000\n"), files.Options{})
	require.Len(t, rows, 1)
	require.NoError(t, rows[0].Err)
	assert.JSONEq(t, `{"sensorId":"m.x,h.y=a.b","ts":"1970-01-01T00:00:00.001Z","fields":{"c_d":1,"c_e":2},"tags":{"h_y":"a.b"}}`, string(rows[0].Reading.AppendJSON(nil)))
}

func TestFormatOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]files.Format{"a/readings.PARQUET": files.Parquet, "x.csv.gz": files.CSV, "x.jsonl.zst": files.NDJSON, "dump.lp": files.Influx} {
		got, ok := files.FormatOf(name)
		assert.True(t, ok, name)
		assert.Equal(t, want, got, name)
	}
	_, ok := files.FormatOf("readings.xlsx")
	assert.False(t, ok)
}

func BenchmarkParse(b *testing.B) {
	line := []byte(`{"sensorId":"sensor-0001","ts":"2026-11-21T10:00:00.123Z","fields":{"t":23.517,"h":65,"p":1013.25},"tags":{"site":"north"}}`)
	p := files.NewParser()
	var r telemetry.Reading
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, p.Parse(line, &r))
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, f := range writable {
		b.Run(string(f), func(b *testing.B) {
			var c files.Columns
			r := telemetry.Reading{
				Sensor: "sensor-0001", Tags: []telemetry.Tag{{Name: "site", Value: "north"}},
				Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(23.517)}, {Name: "h", Value: telemetry.IntValue(65)}, {Name: "p", Value: telemetry.FloatValue(1013.25)}},
			}
			c.Add(&r)
			w, err := files.NewWriter(f, io.Discard, &c)
			require.NoError(b, err)
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				n++
				r.Time = time.UnixMilli(1_700_000_000_000 + 1000*n)
				r.Fields[0].Value = telemetry.FloatValue(float64(n*7919%1000) / 10)
				require.NoError(b, w.Write(&r))
			}
			require.NoError(b, w.Close())
		})
	}
}

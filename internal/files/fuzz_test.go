package files_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fuzzRead reads a file of any content, and checks what must hold for all: rows have rising
// numbers, or an error says what is wrong, and readings have a time and names.
func fuzzRead(t *testing.T, f files.Format, content []byte, o files.Options) {
	t.Helper()
	rows, last := 0, int64(0)
	for row, err := range files.Read(f, bytes.NewReader(content), int64(len(content)), o) {
		if err != nil {
			assert.NotEmpty(t, err.Error())
			assert.Less(t, len(err.Error()), 64<<10, "a message repeats the file")
			break
		}
		rows++
		// Lines of one series of line protocol are merged, and come behind others.
		assert.Positive(t, row.Line)
		if f != files.Influx {
			assert.Greater(t, row.Line, last)
		}
		last = row.Line
		switch {
		case row.Err != nil:
			assert.Less(t, len(row.Err.Error()), 64<<10, "a message repeats the row")
		case row.Reading.Time.IsZero():
			assert.Fail(t, "a reading without a time", "row %d", row.Line)
		}
	}
	if f != files.Parquet { // whose rows may be compressed to nothing
		assert.LessOrEqual(t, rows, len(content)+1)
	}
}

func FuzzReadCSV(f *testing.F) {
	for _, content := range []string{
		"", "ts,sensorId,t\n1,s,2.5\n", "\ufeffsensorId,site,ts,t\r\n\"s\",\"a\"\"b\",2026-11-21 10:00:00.123Z,nan\r\n",
		"ts,sensorId,a,a.int,a.text\n1,s,1e300,\"two\nlines\",x\n1,s\n", "ts,sensorId\n1,\"open\n1,s\n", "ts,ts,sensorId\n1,2,s\n",
	} {
		f.Add([]byte(content), true)
	}
	f.Fuzz(func(t *testing.T, content []byte, tag bool) {
		o := files.Options{}
		if tag {
			o.Tags = []string{"site"}
		}
		fuzzRead(t, files.CSV, content, o)
	})
}

func FuzzReadInflux(f *testing.F) {
	for _, content := range []string{
		"", "cpu,host=a idle=90,user=5i 1795255200123456789\ncpu,host=a sys=1u 1795255200123456789\n", "m,id=7 a=\"open 1\nm b=t 1\n",
		"# DDL\nCREATE DATABASE x\n# DML\nm\\ x,a\\,b=c\\=d f=\"two\nlines\" -1\n", "m a=1", "m a=9223372036854775808u 1", ",=  \n",
	} {
		f.Add([]byte(content), "", "s")
		f.Add([]byte(content), "host", "")
	}
	f.Fuzz(func(t *testing.T, content []byte, tag, precision string) {
		fuzzRead(t, files.Influx, content, files.Options{SensorTag: tag, Precision: precision})
	})
}

func FuzzReadNDJSON(f *testing.F) {
	for _, content := range []string{
		"", `{"sensorId":"s","ts":1,"fields":{"t":1.5,"h":2,"ok":true,"s":"x"},"tags":{"a":"b"}}` + "\n", `{"ts":"2026-11-21T10:00:00Z","sensorId":"s","fields":{}}`, "nonsense\n{}\n[",
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) { fuzzRead(t, files.NDJSON, content, files.Options{}) })
}

func FuzzReadParquet(f *testing.F) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	f.Add(write(f, files.Parquet, []telemetry.Reading{
		{Sensor: "a", Time: at, Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(23.5)}, {Name: "n", Value: telemetry.IntValue(1)}}},
		{Sensor: "b", Time: at, Fields: []telemetry.Field{{Name: "t", Value: telemetry.IntValue(7)}, {Name: "ok", Value: telemetry.BoolValue(true)}}, Tags: []telemetry.Tag{{Name: "site", Value: "x"}}},
	}))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, content []byte) { fuzzRead(t, files.Parquet, content, files.Options{}) })
}

// FuzzCSVRoundTrip writes a reading to a file of CSV and reads it back, bit by bit.
func FuzzCSVRoundTrip(f *testing.F) {
	f.Add(int64(1_700_000_000_123), "s-1", math.Float64bits(23.517), int64(math.MinInt64), true, "a\"b,\r\nc", "north")
	f.Add(int64(0), "\"", math.Float64bits(math.Copysign(0, -1)), int64(0), false, "", "")
	f.Add(int64(4_000_000_000_000), "ü,", uint64(1), int64(math.MaxInt64), true, "NaN", "=1")
	f.Fuzz(func(t *testing.T, ms int64, sensor string, bits uint64, n int64, ok bool, text, tag string) {
		value := math.Float64frombits(bits)
		wanted := sensor != "" && !math.IsNaN(value) && !math.IsInf(value, 0) && ms >= 0 && ms < 253_402_300_800_000
		for _, s := range []string{sensor, text, tag} {
			wanted = wanted && len(s) <= telemetry.MaxSensorBytes && strings.ToValidUTF8(s, "") == s
		}
		if !wanted {
			return // no such reading is accepted
		}
		readings := []telemetry.Reading{{Sensor: sensor, Time: time.UnixMilli(ms).UTC(), Fields: []telemetry.Field{
			{Name: "f", Value: telemetry.FloatValue(value)}, {Name: "n", Value: telemetry.IntValue(n)}, {Name: "ok", Value: telemetry.BoolValue(ok)}, {Name: "s", Value: telemetry.TextValue(text)},
		}, Tags: []telemetry.Tag{{Name: "site", Value: tag}}}}
		got := readingsOf(t, read(t, files.CSV, write(t, files.CSV, readings), files.Options{Tags: []string{"site"}}))
		require.Equal(t, canonical(readings), canonical(got))
		require.Len(t, got[0].Fields, 4)
		require.Equal(t, bits, math.Float64bits(got[0].Fields[0].Value.Float()))
	})
}

package load

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fileWith writes a file to replay.
func fileWith(t *testing.T, text string, zipped bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "readings")
	file, err := os.Create(path)
	require.NoError(t, err)
	if zipped {
		w := gzip.NewWriter(file)
		_, err = w.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	} else {
		_, err = file.WriteString(text)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
	return path
}

// anyTwo is a reading each second of two sensors, in NDJSON.
func anyTwo(seconds int) string {
	var b strings.Builder
	for i := range seconds {
		for _, sensor := range []string{"a", "b"} {
			fmt.Fprintf(&b, `{"sensorId":%q,"ts":%d,"fields":{"t":%d.5,"n":%d}}`+"\n", sensor, 1_767_225_600_000+1000*i, i, i)
		}
	}
	return b.String()
}

// sentWhen notes when each reading came.
type sentWhen struct {
	fakeDaemon

	at       []time.Duration
	readings []telemetry.Reading
}

func (s *sentWhen) note(since time.Duration, r *Request) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, reading := range r.Readings {
		s.at, s.readings = append(s.at, since), append(s.readings, reading)
	}
	return Answer{Accepted: len(r.Readings)}, nil
}

func replayed(t *testing.T, c Config) (*sentWhen, *Result, error) {
	t.Helper()
	var s sentWhen
	var result *Result
	var err error
	s.answer = s.note
	if c.Connections == 0 {
		c.Connections = 1
	}
	synctest.Test(t, func(t *testing.T) { result, err = s.run(context.Background(), c) })
	return &s, result, err
}

func TestAFileIsReplayedAtItsPace(t *testing.T) {
	t.Parallel()
	for _, zipped := range []bool{false, true} {
		s, r, err := replayed(t, Config{From: fileWith(t, anyTwo(10), zipped), Speedup: 2})
		require.NoError(t, err)
		require.Len(t, s.at, 20)
		for i, at := range s.at {
			assert.Equal(t, time.Duration(i/2)*500*time.Millisecond, at)
			assert.Equal(t, 1_767_225_600_000+1000*int64(i/2), s.readings[i].Time.UnixMilli())
		}
		assert.Equal(t, telemetry.FloatValue(3.5), s.readings[6].Fields[0].Value)
		assert.Equal(t, telemetry.IntValue(3), s.readings[6].Fields[1].Value)
		assert.EqualValues(t, 20, r.Acked)
		assert.Equal(t, 2, r.Setup.Sensors)
		assert.Equal(t, 4.5, r.Setup.DurationSeconds)
		assert.Equal(t, 9*time.Second, r.Setup.EventEnd.Sub(r.Setup.EventStart))
		assert.Equal(t, 2026, r.Setup.EventStart.Year())
	}
}

func TestAReplayCanBeCutShiftedAndBatched(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	s, r, err := replayed(t, Config{From: fileWith(t, anyTwo(100), false), Duration: 5 * time.Second, Start: start, Batch: 4})
	require.NoError(t, err)
	require.Len(t, s.readings, 10)
	assert.Equal(t, start, s.readings[0].Time)
	assert.Equal(t, start.Add(4*time.Second), s.readings[9].Time)
	assert.Equal(t, []time.Duration{1e9, 1e9, 1e9, 1e9, 3e9, 3e9, 3e9, 3e9, 4e9, 4e9}, s.at, "due with the last of a batch")
	assert.EqualValues(t, 3, r.Requests)
	assert.Equal(t, 5.0, r.Setup.DurationSeconds)
}

func TestWhatIsOutOfOrderIsDueAtOnce(t *testing.T) {
	t.Parallel()
	lines := strings.Split(anyTwo(4), "\n")
	lines[7], lines[2] = lines[2], lines[7] // t = 0 0 3 1 2 2 3 1
	s, r, err := replayed(t, Config{From: fileWith(t, strings.Join(lines, "\n"), false)})
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{0, 0, 3e9, 3e9, 3e9, 3e9, 3e9, 3e9}, s.at)
	assert.Less(t, r.Response.Max, 0.001, "they were not due before")
	// The first line need not be the earliest.
	lines[0], lines[2] = lines[2], lines[0]
	_, r, err = replayed(t, Config{From: fileWith(t, strings.Join(lines, "\n"), false)})
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, r.Setup.EventEnd.Sub(r.Setup.EventStart))
}

func TestLineProtocolIsReplayed(t *testing.T) {
	t.Parallel()
	text := "# a comment\n\ncpu,region=eu,host=a\\ b usage=42.5,n=3i,u=4u,ok=t,s=\"x y\" 1767225600000000000\ncpu,host=c usage=1 1767225601500999999\n"
	s, _, err := replayed(t, Config{From: fileWith(t, text, false)})
	require.NoError(t, err)
	require.Len(t, s.readings, 2)
	assert.Equal(t, `cpu,host=a\ b,region=eu`, s.readings[0].Sensor)
	assert.Equal(t, []telemetry.Tag{{Name: "host", Value: "a b"}, {Name: "region", Value: "eu"}}, s.readings[0].Tags)
	assert.Equal(t, []telemetry.Field{
		{Name: "usage", Value: telemetry.FloatValue(42.5)}, {Name: "n", Value: telemetry.IntValue(3)}, {Name: "u", Value: telemetry.IntValue(4)},
		{Name: "ok", Value: telemetry.BoolValue(true)}, {Name: "s", Value: telemetry.TextValue("x y")},
	}, s.readings[0].Fields)
	assert.Equal(t, 1500*time.Millisecond, s.at[1])
	assert.EqualValues(t, 500, s.readings[1].Time.UnixMilli()%1000, "cut to the millisecond")
}

func TestTimestampsOfLineProtocolCountWhatIsSaid(t *testing.T) {
	t.Parallel()
	for precision, stamp := range map[Precision]string{"": "1767225600123000000", "ns": "1767225600123000000", "us": "1767225600123000", "ms": "1767225600123", "s": "1767225600"} {
		s, _, err := replayed(t, Config{From: fileWith(t, "cpu u=1 "+stamp, false), FromPrecision: precision})
		require.NoError(t, err)
		assert.Equal(t, int64(1_767_225_600), s.readings[0].Time.Unix(), precision)
	}
	_, _, err := replayed(t, Config{From: fileWith(t, "cpu u=1 1767225600", false)})
	require.ErrorContains(t, err, "line 1: the timestamp is 1970-01-01T00:00:01Z if it is in nanoseconds; name its unit: us, ms or s")
	s, _, err := replayed(t, Config{From: fileWith(t, "cpu u=1 1767225600", false), FromPrecision: "ns"})
	require.NoError(t, err)
	assert.Equal(t, 1970, s.readings[0].Time.Year())
	_, err = ParsePrecision("m")
	require.ErrorContains(t, err, "ns, us, ms and s")
}

func TestAByteOrderMarkIsNoPartOfTheFirstLine(t *testing.T) {
	t.Parallel()
	for _, zipped := range []bool{false, true} {
		s, _, err := replayed(t, Config{From: fileWith(t, "\ufeff"+anyTwo(1), zipped)})
		require.NoError(t, err)
		assert.Len(t, s.readings, 2)
	}
}

func TestABadLineEndsTheReplayAndSaysWhere(t *testing.T) {
	t.Parallel()
	good := `{"sensorId":"a","ts":1767225600000,"fields":{"t":1}}` + "\n"
	for bad, want := range map[string]string{
		`{"sensorId":"a","ts":1,"fields":{"t":1}`: "is not JSON",
		`[1]`:                               "malformed: ",
		`{"sensorId":"a","fields":{"t":1}}`: "no ts",
		`{"sensorId":"a","ts":"noon","fields":{"t":1}}`:                 "ts_invalid: ",
		`{"sensorId":"a","ts":1.5,"fields":{"t":1}}`:                    "ts_invalid: ",
		`{"sensorId":"a","ts":1,"fields":{"t":null}}`:                   "value_type: ",
		`{"sensorId":"a","ts":1,"fields":{"t":1},"x":1}`:                "unknown_key: ",
		`{"sensorId":"a","ts":1,"fields":{"t":1},"tags":{"x":1}}`:       "tag_value: ",
		`{"sensorId":"a","ts":1,"fields":{"t":1e999}}`:                  "range of a double",
		`{"sensorId":"a","ts":1,"fields":{"t":9223372036854775808}}`:    "64-bit integer",
		`{"sensorId":"a","ts":1,"fields":{"a.b":1}}`:                    "contains a dot",
		`{"sensorId":"a","ts":1,"fields":{}}`:                           "fields_missing: ",
		`{"sensorId":"","ts":1,"fields":{"t":1}}`:                       "sensorId is missing",
		`{"sensorId":"a","ts":1,"fields":{"t":1}}{"x":1}`:               "malformed: ",
		`{"sensorId":"a","ts":-1,"fields":{"t":1}}`:                     "ts_out_of_range: ",
		`cpu,host=a usage=1 1767225600000000000`:                        "malformed: ",
		`{"sensorId":"a","sensorId":"b","ts":1,"fields":{"t":1}}`:       "duplicate",
		`{"sensorId":"a","ts":1,"fields":{"t":1,"t":2}}`:                "duplicate",
		`{"sensorId":"a","ts":1,"fields":{"` + "\xff" + `":1}}`:         "UTF-8",
		`{"sensorId":"` + strings.Repeat("x", maxLineBytes) + `"}`:      "longer than",
		`{"sensorId":"a","ts":253402300800000,"fields":{"t":1}}`:        "ts_out_of_range: ",
		`{"sensorId":7,"ts":1,"fields":{"t":1}}`:                        "sensor_invalid: ",
		`{"sensorId":"a","ts":1,"fields":{"t":"` + "\\u0000" + `"}}`:    "",
		`{"sensorId":"a","ts":"2026-01-01T00:00:00z","fields":{"t":1}}`: "",
	} {
		_, r, err := replayed(t, Config{From: fileWith(t, good+good+bad+"\n"+good, false), Batch: 1 + len(bad)%3})
		if want == "" {
			assert.NoError(t, err, bad)
			continue
		}
		assert.ErrorContains(t, err, "readings line 3: ")
		assert.ErrorContains(t, err, want)
		require.NotNil(t, r, "what came before is told")
		assert.EqualValues(t, 2, r.Acked)
	}
}

func TestAFileThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	_, r, err := replayed(t, Config{From: filepath.Join(t.TempDir(), "none")})
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Nil(t, r)
}

func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	s, r, err := replayed(t, Config{From: fileWith(t, anyTwo(1), false), Duration: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{0, 0}, s.at)
	assert.Less(t, r.Seconds, 1.0, "it ends with the file")
	assert.Zero(t, r.Setup.DurationSeconds)
	assert.Zero(t, r.OfferedRate, "an instant has no rate")
}

func TestAnEmptyFileIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n# nothing\n"} {
		_, r, err := replayed(t, Config{From: fileWith(t, text, false)})
		require.ErrorContains(t, err, "readings has no readings")
		assert.Nil(t, r)
	}
}

// TestAReplayIsHeldInBoundedMemory has a daemon that never answers: what a stalled
// replay keeps is bounded in bytes, not only in requests.
func TestAReplayIsHeldInBoundedMemory(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `{"sensorId":"a","ts":%d,"fields":{"t":"%s"}}`+"\n", 1_767_225_600_000+i, long)
	}
	path := fileWith(t, b.String(), false)
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{takes: time.Hour, began: time.Now()}
		g, err := New(Config{
			Senders: d.sender, timersOnly: true, Stream: Stream{GranularitySeconds: 60}, From: path, Connections: 1, Grace: time.Second,
		})
		require.NoError(t, err)
		g.maxHeld = 100_000
		r, err := g.Run(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, r.Sent)
		assert.EqualValues(t, 999, r.Dropped)
		timed := r.Curve[len(r.Curve)-1].Count
		assert.Greater(t, timed, int64(50), "those waited for the connection")
		assert.Less(t, timed, int64(100))
		assert.Zero(t, g.held.Load())
	})
}

// TestAnInterruptedReplayEndsEventTime is interrupted while the next reading is an
// hour away.
func TestAnInterruptedReplayEndsEventTime(t *testing.T) {
	t.Parallel()
	path := fileWith(t, anyTwo(2)+`{"sensorId":"a","ts":1767229200000,"fields":{"t":1}}`+"\n", false)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := (&fakeDaemon{}).run(ctx, Config{From: path})
		require.NoError(t, err)
		assert.True(t, r.Interrupted)
		assert.EqualValues(t, 4, r.Acked)
		assert.Equal(t, 5*time.Second, r.Setup.EventEnd.Sub(r.Setup.EventStart))
		assert.Equal(t, 5.0, r.Setup.DurationSeconds)
	})
}

package ingest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(content)
}

func TestSamplesOfRealDataAreTakenWhole(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nyc-weather-2013.ndjson", "ecg-360hz.ndjson"} {
		d, j := newTestServer(t)
		content := sample(t, name)
		for path, encoded := range map[string]string{"": content, "gzip": gzipped(t, content), "zstd": zstded(t, content)} {
			j.batches = nil
			w := post(t, d, "/v1/readings", typeLines, encoded, "Content-Encoding", path)
			require.Equal(t, 200, w.Code, w.Body)
			lines := strings.Split(strings.TrimSpace(content), "\n")
			readings := j.readings()
			require.Len(t, readings, len(lines))
			for i, line := range lines {
				sameAsJSON(t, line, readings[i])
			}
		}
	}
}

// sameAsJSON compares a reading with what the standard library reads.
func sameAsJSON(t *testing.T, line string, r telemetry.Reading) {
	t.Helper()
	var want struct {
		SensorID string
		TS       time.Time
		Fields   map[string]json.Number
		Tags     map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(line), &want))
	assert.Equal(t, want.SensorID, r.Sensor)
	assert.True(t, want.TS.Equal(r.Time))
	assert.Len(t, r.Fields, len(want.Fields))
	for _, f := range r.Fields {
		number := want.Fields[f.Name]
		if n, err := number.Int64(); err == nil {
			assert.Equal(t, telemetry.IntValue(n), f.Value)
		} else {
			v, err := number.Float64()
			require.NoError(t, err)
			assert.Equal(t, telemetry.FloatValue(v), f.Value)
		}
	}
	assert.Len(t, r.Tags, len(want.Tags))
	for _, tag := range r.Tags {
		assert.Equal(t, want.Tags[tag.Name], tag.Value)
	}
}

func TestSampleOfLineProtocolIsTakenWhole(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/write", "/api/v2/write?precision=ns"} {
		d, j := newTestServer(t)
		require.Equal(t, 204, post(t, d, path, "", sample(t, "tsbs-cpu-100x1h.lp")).Code)
		readings := j.readings()
		require.Len(t, readings, 100)
		first := readings[0]
		assert.Equal(t, "cpu,arch=x64,datacenter=ap-southeast-1b,hostname=host_0,os=Ubuntu16.04LTS,rack=39,region=ap-southeast-1,service=17,service_environment=production,service_version=1,team=NYC", first.Sensor)
		assert.Equal(t, "2026-01-01T00:00:00.000Z", first.Time.Format(telemetry.TimeFormat))
		assert.Len(t, first.Tags, 10)
		for _, r := range readings {
			assert.Len(t, r.Fields, 10)
			for _, f := range r.Fields {
				assert.Equal(t, telemetry.Int, f.Value.Kind(), "integers are stored as integers")
			}
		}
		assert.Equal(t, telemetry.Field{Name: "usage_guest_nice", Value: telemetry.IntValue(66)}, first.Fields[9])
	}
}

func TestGeneratedReadingsAreTheSameOverEveryProtocol(t *testing.T) {
	t.Parallel()
	made := makeCPU(60, 7)
	d, j := newTestServer(t, func(c *Config) { c.SensorTag = "hostname" })
	require.Equal(t, 204, post(t, d, "/write", "", string(lineProtocol(made))).Code)
	byLine := j.readings()
	require.Len(t, byLine, 60)
	for name, send := range map[string]func(){
		"ndjson":  func() { post(t, d, "/v1/readings", typeLines, string(ndjson(made))) },
		"array":   func() { post(t, d, "/v1/readings", typeJSON, string(jsonArray(made))) },
		"plain":   func() { writeMessage(t, d, plainRequest(made)) },
		"compact": func() { writeMessage(t, d, compactRequest(made)) },
	} {
		j.batches = nil
		send()
		readings := j.readings()
		require.Len(t, readings, 60, name)
		for i := range readings {
			readings[i].Sensor = strings.TrimPrefix(readings[i].Sensor, "cpu,hostname=")
		}
		assert.ElementsMatch(t, byLine, readings, name)
	}
}

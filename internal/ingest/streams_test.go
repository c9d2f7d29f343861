package ingest

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestFieldsThatAStreamDoesNotTakeAreRefused(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, takesOnlyT)
	w := post(t, d, "/v1/readings", typeLines, `{"sensorId":"s","fields":{"t":1}}`+"\n"+`{"sensorId":"s","fields":{"t":1,"u":2}}`+"\n"+`{"sensorId":"s","fields":{"t":3}}`)
	assert.Equal(t, 207, w.Code)
	assert.JSONEq(t, `{"accepted":2,"rejected":1,"ack":"stored","errors":[{"index":1,"code":"field_not_allowed","message":"field \"u\" is not allowed in stream readings; allowed: t"}]}`, w.Body.String())
	w = post(t, d, "/v1/streams/mem/readings", typeJSON, `{"sensorId":"s","fields":{"u":2}}`)
	assert.Equal(t, 200, w.Code, "another stream takes all")
	assert.Len(t, j.readings(), 3)
	w = post(t, d, "/write", "", "mem u=1\nreadings t=1\nreadings u=1\nmem u=2")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), "1 of 4 lines were refused, the others were taken; line 3: field_not_allowed")
	assert.Contains(t, serve(t, d, "GET", "/v1/streams").Body.String(), `"fields":["t"],"other_fields":"refuse"`)
}

// Whatever a reading came by, the fields that are left out do not change what is
// left, and readings behind it are read as ever.
func TestOtherFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	takes := func(c *Config) {
		c.Streams[0].Fields, c.Streams[0].OtherFields = []string{"a", "c", "text"}, dropOthers
	}
	one := []telemetry.Field{{Name: "a", Value: telemetry.IntValue(1)}, {Name: "c", Value: telemetry.IntValue(3)}}
	two := []telemetry.Field{{Name: "a", Value: telemetry.IntValue(4)}}
	three := []telemetry.Field{{Name: "text", Value: telemetry.TextValue("kept")}, {Name: "c", Value: telemetry.IntValue(9)}}
	want := [][]telemetry.Field{one, one, two, two, three, one}
	for path, body := range map[string]string{
		"/v1/readings": `[{"sensorId":"s","fields":{"a":1,"b":2,"c":3}},{"sensorId":"s","fields":{"a":1,"b":2,"c":3}},{"sensorId":"s","fields":{"a":4,"b":5}},{"sensorId":"s","fields":{"a":4}},` +
			`{"sensorId":"s","fields":{"lost":"long and lost","text":"kept","other":"gone","c":9}},{"sensorId":"s","fields":{"a":1,"c":3}}]`,
		"/write": "m a=1i,b=2i,c=3i\nm a=1i,b=2i,c=3i\nm a=4i,b=5i\nm a=4i\nm lost=\"long and lost\",text=\"kept\",other=\"gone\",c=9i\nm a=1i,c=3i\n",
	} {
		d, j := newTestServer(t, takes)
		for round := range 2 {
			w := post(t, d, path, typeJSON, body)
			require.Less(t, w.Code, 300, w.Body)
			var got [][]telemetry.Field
			for _, r := range j.readings()[round*len(want):] {
				got = append(got, r.Fields)
			}
			assert.Equal(t, want, got, path)
		}
		assert.EqualValues(t, 10, testutil.ToFloat64(d.metrics.dropped))
		row := j.batches[0].Row(4)
		assert.Less(t, row.Size, uint32(40), "what was left out does not count")
	}
}

func TestHowFarAheadTimesMayBeChanges(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, func(c *Config) { c.MaxFuture = time.Minute })
	next := d.config.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	send := func() string {
		return post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","ts":"`+next+`","fields":{"t":1}}`).Body.String()
	}
	assert.Contains(t, send(), "ts_out_of_range")
	d.SetMaxFuture(2 * time.Hour)
	assert.Contains(t, send(), `"accepted":1`)
	d.SetMaxFuture(0)
	assert.Contains(t, send(), `"accepted":1`, "0 is not a setting")
	d.SetMaxFuture(time.Minute)
	assert.Contains(t, send(), "ts_out_of_range")
}

func TestLimitsOfStreamsChangeWhileReadingsComeIn(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	streams := testConfig().Streams
	old := `{"sensorId":"s","ts":"2026-11-21T08:00:00Z","fields":{"t":1}}`
	require.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, old).Code)
	streams[0].Retention, streams[0].Fields = time.Hour, []string{"t"}
	d.SetStreams(streams)
	w := post(t, d, "/v1/readings", typeJSON, old)
	assert.Contains(t, w.Body.String(), "ts_expired")
	w = post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","fields":{"u":1}}`)
	assert.Contains(t, w.Body.String(), "field_not_allowed")
	assert.Contains(t, serve(t, d, "GET", "/v1/streams").Body.String(), `"retention_seconds":3600`)
}

package ingest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// published is one of sensor s-1 at a site, received a second before the batch.
func published(format PayloadFormat, payload string) Message {
	return Message{
		Format: format, Payload: []byte(payload), Received: arrivalTime.Add(-time.Second),
		Sensor: "s-1", Field: "t", Tags: []telemetry.Tag{{Name: "site", Value: "north"}},
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	received := arrivalTime.Add(-time.Second).Truncate(time.Millisecond).UTC()
	north := []telemetry.Tag{{Name: "site", Value: "north"}}
	one := func(sensor string, at time.Time, tags []telemetry.Tag, name string, v telemetry.Value) telemetry.Reading {
		return telemetry.Reading{Sensor: sensor, Time: at, Tags: tags, Fields: []telemetry.Field{{Name: name, Value: v}}}
	}
	named := published(PayloadJSON, `{"sensorId":"own","ts":"2026-11-21T09:00:00Z","fields":{"a":1}}`)
	bare := published(PayloadLine, `weather,unit=c a=1 1795251600000000000`)
	bare.Sensor = ""
	decoded := published("", "")
	decoded.Payload, decoded.Readings = nil, []telemetry.Reading{{Fields: []telemetry.Field{{Name: "a", Value: telemetry.IntValue(1)}}}}
	for name, test := range map[string]struct {
		message Message
		want    []telemetry.Reading
	}{
		"decimal":          {published(PayloadNumber, " 21.5\n"), []telemetry.Reading{one("s-1", received, north, "t", telemetry.FloatValue(21.5))}},
		"integer":          {published(PayloadNumber, "-7"), []telemetry.Reading{one("s-1", received, north, "t", telemetry.IntValue(-7))}},
		"boolean":          {published(PayloadNumber, "true"), []telemetry.Reading{one("s-1", received, north, "t", telemetry.BoolValue(true))}},
		"text":             {published(PayloadAuto, "\"eco\""), []telemetry.Reading{one("s-1", received, north, "t", telemetry.TextValue("eco"))}},
		"JSON":             {published(PayloadJSON, `{"fields":{"a":1}}`), []telemetry.Reading{one("s-1", received, north, "a", telemetry.IntValue(1))}},
		"JSON with a name": {named, []telemetry.Reading{one("own", time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), north, "a", telemetry.IntValue(1))}},
		"flat JSON": {published(PayloadJSON, `{"ts":"2026-11-21T09:00:00Z","b":9007199254740993,"a":21.50}`), []telemetry.Reading{{
			Sensor: "s-1", Time: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), Tags: north,
			Fields: []telemetry.Field{{Name: "a", Value: telemetry.FloatValue(21.5)}, {Name: "b", Value: telemetry.IntValue(9007199254740993)}},
		}}},
		"flat JSON with the word fields": {published(PayloadJSON, `{"mode":"fields","t":1}`), []telemetry.Reading{{
			Sensor: "s-1", Time: received, Tags: north,
			Fields: []telemetry.Field{{Name: "mode", Value: telemetry.TextValue("fields")}, {Name: "t", Value: telemetry.IntValue(1)}},
		}}},
		"JSON with space": {published(PayloadJSON, "{\"fields\" : {\"a\":1}}"), []telemetry.Reading{one("s-1", received, north, "a", telemetry.IntValue(1))}},
		"JSON array": {published(PayloadJSON, `[{"fields":{"a":1}},{"fields":{"a":2}}]`), []telemetry.Reading{
			one("s-1", received, north, "a", telemetry.IntValue(1)), one("s-1", received, north, "a", telemetry.IntValue(2)),
		}},
		"line protocol": {published(PayloadLine, `weather a=1`), []telemetry.Reading{one("s-1", received, north, "a", telemetry.FloatValue(1))}},
		"line protocol without a sensor": {bare, []telemetry.Reading{one("weather,site=north,unit=c", time.UnixMilli(1795251600000).UTC(),
			[]telemetry.Tag{{Name: "site", Value: "north"}, {Name: "unit", Value: "c"}}, "a", telemetry.FloatValue(1))}},
		"decoded": {decoded, []telemetry.Reading{one("s-1", received, north, "a", telemetry.IntValue(1))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, journal := newTestServer(t)
			for range 2 { // the second time the series is known
				refused, err := srv.AppendMessages(t.Context(), "", "", []Message{test.message})
				require.NoError(t, err)
				assert.Empty(t, refused)
			}
			assert.Equal(t, append(test.want, test.want...), journal.readings())
			assert.Equal(t, telemetry.Journaled, journal.wants[0])
		})
	}
}

// The same payload under two topics is of two sensors: the key of a known series contains
// what the topic says.
func TestMessagesOfTwoTopics(t *testing.T) {
	t.Parallel()
	for _, format := range []PayloadFormat{PayloadJSON, PayloadLine, PayloadNumber} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			srv, journal := newTestServer(t)
			first := published(format, map[PayloadFormat]string{PayloadJSON: `{"fields":{"a":1}}`, PayloadLine: "m a=1", PayloadNumber: "1"}[format])
			other := first
			other.Sensor = "s-2"
			south := first
			south.Tags = []telemetry.Tag{{Name: "site", Value: "south"}}
			mem := first
			mem.Stream = "mem"
			_, err := srv.AppendMessages(t.Context(), "", "", []Message{first, other, south, mem, first})
			require.NoError(t, err)
			var got []string
			for _, r := range journal.readings() {
				got = append(got, r.Sensor+" "+r.Tags[0].Value)
			}
			assert.Equal(t, []string{"s-1 north", "s-2 north", "s-1 south", "s-1 north", "s-1 north"}, got)
			assert.Equal(t, []string{"readings", "readings", "readings", "mem", "readings"}, journal.streams())
		})
	}
}

// A message that is refused leaves nothing behind, and the others of its batch are taken.
func TestRefusedMessages(t *testing.T) {
	t.Parallel()
	many := ""
	for range 6 {
		many += `{"fields":{"a":1}}` + "\n"
	}
	unknown := published(PayloadNumber, "1")
	unknown.Stream = "nope"
	nameless := published(PayloadNumber, "1")
	nameless.Sensor = ""
	for name, test := range map[string]struct {
		message Message
		code    string
		refused int
		taken   int
	}{
		"a word":             {published(PayloadNumber, "hot"), "malformed", 1, 0},
		"too large a number": {published(PayloadNumber, "1e999"), "malformed", 1, 0},
		"no number":          {published(PayloadNumber, ""), "malformed", 1, 0},
		"broken JSON":        {published(PayloadJSON, `{"fields":`), "malformed", 1, 0},
		"a broken array":     {published(PayloadJSON, `[{"fields":{"a":1}},{"fields":`), "malformed", 0, 0},
		"an empty array":     {published(PayloadJSON, `[]`), "no_readings", 0, 0},
		"one of two lines":   {published(PayloadLine, "m a=1\nm a="), "malformed", 1, 1},
		"a comment":          {published(PayloadLine, "# nothing"), "no_readings", 0, 0},
		"too many":           {published(PayloadJSON, many), "readings_too_many", 0, 0},
		"flat JSON twice":    {published(PayloadJSON, `{"a":1,"a":2}`), "unknown_key", 1, 0},
		"deep flat JSON":     {published(PayloadJSON, `{"a":{"b":1}}`), "value_type", 1, 0},
		"empty":              {published(PayloadAuto, "\n"), "empty", 0, 0},
		"not a number":       {published(PayloadAuto, "NaN"), "no_value", 0, 0},
		"infinity":           {published(PayloadAuto, "-inf"), "no_value", 0, 0},
		"null":               {published(PayloadAuto, "null"), "no_value", 0, 0},
		"unknown stream":     {unknown, "stream_unknown", 0, 0},
		"no sensor":          {nameless, "sensor_missing", 1, 0},
		"a tag given twice":  {published(PayloadJSON, `{"fields":{"a":1},"tags":{"site":"x"}}`), "tag_duplicate", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, journal := newTestServer(t, func(c *Config) { c.MaxReadings = 5 })
			good := published(PayloadJSON, `[{"fields":{"a":1}},{"fields":{"a":1}},{"fields":{"a":1}}]`)
			refused, err := srv.AppendMessages(t.Context(), "", "", []Message{good, test.message, good})
			require.NoError(t, err)
			require.Len(t, refused, 1)
			assert.Equal(t, test.code, refused[1].Code, refused[1].Message)
			assert.Equal(t, test.refused == 1, strings.HasSuffix(refused[1].Message, " (refused readings: 1)"), refused[1].Message)
			assert.Len(t, journal.readings(), 6+test.taken)
		})
	}
}

// A message after a refused one has its own fields, and the metrics count what is taken.
func TestMessagesAfterARefusedOne(t *testing.T) {
	t.Parallel()
	srv, journal := newTestServer(t, func(c *Config) { c.MaxReadings = 2 })
	many := published(PayloadJSON, `[{"fields":{}},{"fields":{"h":2}},{"fields":{"h":2}}]`)
	refused, err := srv.AppendMessages(t.Context(), "", "", []Message{published(PayloadNumber, "1"), many, published(PayloadJSON, `{"fields":{"h":3}}`)})
	require.NoError(t, err)
	require.Len(t, refused, 1)
	assert.Equal(t, codeTooMany, refused[1].Code)
	assert.Contains(t, refused[1].Message, "more than 2 readings")
	var fields [][]telemetry.Field
	for _, r := range journal.readings() {
		fields = append(fields, r.Fields)
	}
	assert.Equal(t, [][]telemetry.Field{{{Name: "t", Value: telemetry.IntValue(1)}}, {{Name: "h", Value: telemetry.IntValue(3)}}}, fields)
	assert.EqualValues(t, 2, testutil.ToFloat64(srv.metrics.meters[protoMQTT].readings))
}

func TestMessagesWhileNoneAreTaken(t *testing.T) {
	t.Parallel()
	srv, journal := newTestServer(t)
	journal.err = telemetry.Errorf(telemetry.Unavailable, "journal_full", "the journal is full")
	_, err := srv.AppendMessages(t.Context(), "", "", []Message{published(PayloadNumber, "1")})
	assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err))
	held, _ := srv.Memory()
	assert.Zero(t, held)
	journal.err = nil
	srv.Stop()
	_, err = srv.AppendMessages(context.Background(), "", "", []Message{published(PayloadNumber, "1")})
	assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err))
	assert.Empty(t, journal.readings())
}

// TestMessagesWhileMemoryIsShort has enough messages for a look at the memory on the way.
func TestMessagesWhileMemoryIsShort(t *testing.T) {
	t.Parallel()
	srv, journal := newTestServer(t)
	messages := make([]Message, 2*extendEvery)
	for i := range messages {
		messages[i] = published(PayloadNumber, "1")
	}
	var held []*lease
	for _, size := range []int64{srv.budget.most(), smallLease, 1 << 10, 1} {
		for l := (&lease{of: srv.budget}); l.reach(ended(t), size) == nil; l = (&lease{of: srv.budget}) {
			held = append(held, l)
		}
	}
	require.NotEmpty(t, held)
	refused, err := srv.AppendMessages(ended(t), "", "", messages)
	assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err), err)
	assert.Empty(t, refused, "a good message must not become a dead letter")
	assert.Empty(t, journal.readings())
	for _, l := range held {
		l.Release()
	}
	refused, err = srv.AppendMessages(t.Context(), "", "", messages)
	require.NoError(t, err)
	assert.Empty(t, refused)
	assert.Len(t, journal.readings(), len(messages))
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestMessagesDoNotChangeWhatDotsMean sends line protocol first, which maps dots in any case.
func TestMessagesDoNotChangeWhatDotsMean(t *testing.T) {
	t.Parallel()
	srv, journal := newTestServer(t)
	refused, err := srv.AppendMessages(t.Context(), "", "", []Message{published(PayloadLine, "m a.b=1"), published(PayloadJSON, `{"fields":{"a.b":1}}`)})
	require.NoError(t, err)
	require.Contains(t, refused, 1)
	assert.Equal(t, string(telemetry.FieldName), refused[1].Code)
	assert.Len(t, journal.readings(), 1)
}

// TestIsRefusal: what may work later, or in a smaller batch, is no fault of the message.
func TestIsRefusal(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{codeBusy: false, codeBudget: false, codeTooMany: true, codeMalformed: true} {
		kind := map[string]telemetry.ErrorKind{codeBusy: telemetry.Unavailable, codeBudget: telemetry.TooLarge, codeTooMany: telemetry.TooLarge, codeMalformed: telemetry.Invalid}[code]
		assert.Equal(t, want, isRefusal(telemetry.Errorf(kind, code, "x")), code)
	}
	assert.False(t, isRefusal(context.Canceled))
	assert.True(t, isRefusal(errMore))
}

// The rights and quotas of the identity that a subscription names hold for its messages.
func TestMessagesOfAnIdentity(t *testing.T) {
	t.Parallel()
	guard := theGuard(t)
	srv, journal := newTestServer(t, func(c *Config) { c.Guard = guard.Guard })
	foreign, own := published(PayloadNumber, "1"), published(PayloadNumber, "2")
	own.Sensor = "north-1"
	for range 2 { // the second time the series is known
		refused, err := srv.AppendMessages(t.Context(), "north", "", []Message{foreign, own})
		require.NoError(t, err)
		require.Len(t, refused, 1)
		assert.Equal(t, string(telemetry.SensorForbidden), refused[0].Code)
	}
	assert.Len(t, journal.readings(), 2)
	for identity, want := range map[string]telemetry.ErrorKind{"reader": telemetry.Forbidden, "nobody": telemetry.Unauthenticated} {
		_, err := srv.AppendMessages(t.Context(), identity, "", []Message{own})
		assert.Equal(t, want, telemetry.KindOf(err), identity)
	}
	_, err := srv.AppendMessages(t.Context(), "few", "", []Message{own, own, own})
	require.NoError(t, err)
	_, err = srv.AppendMessages(t.Context(), "few", "", []Message{own})
	assert.Equal(t, telemetry.Quota, telemetry.KindOf(err))
	_, err = srv.AppendMessages(t.Context(), "", "", []Message{own, foreign})
	require.NoError(t, err, "no identity has no quota")
	assert.Len(t, journal.readings(), 7)
}

// Messages that are not accepted come again, so their first time does not count.
func TestMessagesThatComeAgainCountOnce(t *testing.T) {
	t.Parallel()
	guard, err := access.Open(access.Config{Default: access.Quota{RequestsPerSecond: 1, ReadingsPerSecond: 1}})
	require.NoError(t, err)
	srv, journal := newTestServer(t, func(c *Config) { c.Guard = guard })
	journal.err = telemetry.Errorf(telemetry.Unavailable, "journal_full", "the journal is full")
	messages := []Message{published(PayloadNumber, "1"), published(PayloadNumber, "2")}
	for range 3 {
		_, err := srv.AppendMessages(t.Context(), "", "", messages)
		assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err))
	}
	journal.err = nil
	_, err = srv.AppendMessages(t.Context(), "", "", messages)
	require.NoError(t, err)
	_, err = srv.AppendMessages(t.Context(), "", "", messages)
	assert.Equal(t, telemetry.Quota, telemetry.KindOf(err))
}

// Without a journal on disk, a batch of unknown outcome is sent again under its key.
func TestMessagesOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	srv, journal := newTestServer(t, func(c *Config) { c.Acks = []telemetry.Ack{telemetry.Stored} })
	messages := []Message{published(PayloadJSON, `[{"fields":{}},{"fields":{"h":2}}]`), published(PayloadJSON, "["), published(PayloadNumber, "1")}
	var first map[int]*telemetry.Error
	for range 2 {
		refused, err := srv.AppendMessages(t.Context(), "", "one", messages)
		require.NoError(t, err)
		require.Len(t, refused, 2)
		if first == nil {
			first = refused
		}
		assert.Equal(t, first, refused)
	}
	assert.Len(t, journal.readings(), 2)
	_, err := srv.AppendMessages(t.Context(), "", "two", messages)
	require.NoError(t, err)
	assert.Len(t, journal.readings(), 4)
}

// Sensors of a message that is refused as a whole do not count towards a quota.
func TestSensorsOfARefusedMessageDoNotCount(t *testing.T) {
	t.Parallel()
	guard, err := access.Open(access.Config{Default: access.Quota{ActiveSensors: 1}})
	require.NoError(t, err)
	srv, journal := newTestServer(t, func(c *Config) { c.Guard, c.MaxReadings = guard, 2 })
	many := published(PayloadJSON, `[{"sensorId":"a","fields":{"t":1}},{"sensorId":"b","fields":{"t":1}},{"sensorId":"c","fields":{"t":1}}]`)
	refused, err := srv.AppendMessages(t.Context(), "", "", []Message{many, published(PayloadNumber, "1")})
	require.NoError(t, err)
	require.Contains(t, refused, 0)
	assert.Len(t, journal.readings(), 1)
}

func TestAutoFormat(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]PayloadFormat{
		`21.5`: PayloadNumber, ` -3 `: PayloadNumber, `true`: PayloadNumber, `1e3`: PayloadNumber,
		`{"fields":{"a":1}}`: PayloadJSON, ` [{}]`: PayloadJSON,
		`weather,site=n temp=1.5`: PayloadLine, `m a="x y" 1`: PayloadLine, `m\ n a=1i`: PayloadLine,
		"m a=1\nm a=2": PayloadLine, `m,t=a\ b f=t`: PayloadLine,
		`eco`: payloadText, `"21.5"`: payloadText, `mode is a=b`: payloadText, `0x10`: payloadText, ` =1`: payloadText,
		`nano`: payloadText,
	} {
		format, _, err := formatOf([]byte(payload))
		require.NoError(t, err, payload)
		assert.Equal(t, want, format, payload)
	}
	_, text, _ := formatOf([]byte(`"a\tb"`))
	assert.Equal(t, "a\tb", string(text))
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A badReading is a line of NDJSON that breaks one rule.
type badReading struct {
	code telemetry.Code
	line string
}

// badReadings returns at least one line per refusal code, for a stream that keeps readings for
// 30 days.
func badReadings(now time.Time) []badReading {
	with := func(sensor, fields, tags string) string {
		return `{"sensorId":"` + sensor + `","fields":{` + fields + `},"tags":{` + tags + `}}`
	}
	at := func(ts string) string { return `{"sensorId":"bad","ts":` + ts + `,"fields":{"t":1}}` }
	field := func(inner string) string { return with("bad", inner, "") }
	tag := func(inner string) string { return with("bad", `"t":1`, inner) }
	many := func(value string) string {
		var members []string
		for i := range 257 {
			members = append(members, fmt.Sprintf(`"m%d":%s`, i, value))
		}
		return strings.Join(members, ",")
	}
	long := strings.Repeat("x", 1025)
	return []badReading{
		{telemetry.Malformed, `{"sensorId":"bad","fields":{"t":1}`},
		{telemetry.Malformed, `not JSON`},
		{telemetry.Malformed, `[1,2]`},
		{telemetry.UnknownKey, `{"sensorId":"bad","value":1,"fields":{"t":1}}`},
		{telemetry.DuplicateKey, `{"sensorId":"bad","sensorId":"bad","fields":{"t":1}}`},
		{telemetry.SensorMissing, `{"fields":{"t":1}}`},
		{telemetry.SensorInvalid, with(long, `"t":1`, "")},
		{telemetry.SensorInvalid, with(`\u0007`, `"t":1`, "")},
		{telemetry.TimeInvalid, at(`"yesterday"`)},
		{telemetry.TimeInvalid, at(`1.5`)},
		{telemetry.TimeOutOfRange, at(`-1`)},
		{telemetry.TimeOutOfRange, at(fmt.Sprint(now.Add(time.Hour).UnixMilli()))},
		{telemetry.TimeExpired, at(fmt.Sprint(now.Add(-31 * config.Day).UnixMilli()))},
		{telemetry.FieldsMissing, field("")},
		{telemetry.FieldsTooMany, field(many("1"))},
		{telemetry.FieldName, field(`"a.b":1`)},
		{telemetry.FieldName, field(`"$a":1`)},
		{telemetry.FieldName, field(`"ts":1`)},
		{telemetry.FieldDuplicate, field(`"t":1,"t":2`)},
		{telemetry.ValueType, field(`"t":null`)},
		{telemetry.ValueType, field(`"t":{"a":1}`)},
		{telemetry.ValueNotFinite, field(`"t":1e400`)},
		{telemetry.ValueRange, field(`"t":9223372036854775808`)},
		{telemetry.ValueText, field(`"t":"` + long + `"`)},
		{telemetry.TagsTooMany, tag(many(`"v"`))},
		{telemetry.TagName, tag(`"a.b":"v"`)},
		{telemetry.TagDuplicate, tag(`"a":"1","a":"2"`)},
		{telemetry.TagValue, tag(`"a":1`)},
	}
}

func TestBadReadingsAreNamedAndOthersStored(t *testing.T) {
	t.Parallel()
	type refused struct {
		Index int
		Code  telemetry.Code
	}
	const total = 1000 // with as many bad ones as an answer lists
	now := time.Now().Truncate(time.Millisecond)
	kinds := badReadings(now)
	var body bytes.Buffer
	var want []refused
	var sent []plainReading
	for i := range total {
		line := fmt.Sprintf(`{"sensorId":"good-%d","ts":%q,"fields":{"n":%d,"v":%g,"on":true,"text":"é %d"},"tags":{"site":"north"}}`,
			i%7, now.Add(-time.Duration(i)*time.Second).UTC().Format(time.RFC3339Nano), i, float64(i)+0.5, i)
		if i%10 == 3 {
			bad := kinds[i/10%len(kinds)]
			line = bad.line
			want = append(want, refused{i, bad.code})
		} else {
			sent = append(sent, parseReading(t, []byte(line)))
		}
		body.WriteString(line + "\n")
	}
	for _, code := range telemetry.Codes() {
		// MongoDB alone causes store_refused, a token's prefix sensor_forbidden, a stream's
		// field list field_not_allowed, and remote write not_supported.
		elsewhere := slices.Contains([]telemetry.Code{telemetry.StoreRefused, telemetry.SensorForbidden, telemetry.FieldNotAllowed, telemetry.NotSupported}, code)
		assert.True(t, elsewhere || slices.ContainsFunc(want, func(r refused) bool { return r.Code == code }), "no reading is refused with %s", code)
	}

	db := mongodtest.Database(t)
	b := startBrim(t, append(onShared(t, db), "--retention", "30d")...).awaitStorage()
	code, text, err := b.send("/v1/readings", gzipped(t, body.Bytes()), "Content-Encoding", "gzip", "Content-Type", typeLines)
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, code, text)
	var answer struct {
		Accepted, Rejected int
		Ack                telemetry.Ack
		Errors             []refused
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	assert.Equal(t, len(sent), answer.Accepted)
	assert.Equal(t, len(want), answer.Rejected)
	assert.Equal(t, telemetry.Stored, answer.Ack)
	assert.Equal(t, want, answer.Errors)
	sameReadings(t, sent, checkBuckets(t, db.Collection("readings"), byDefault()))
}

// A badRequest is refused whole.
type badRequest struct {
	name          string
	encoding      string
	kind          string // Content-Type
	body          []byte
	status        int
	code, message string
}

func badRequests(t *testing.T) []badRequest {
	t.Helper()
	const good = `{"sensorId":"s","fields":{"t":1}}` + "\n"
	whole := gzipped(t, []byte(strings.Repeat(good, 9000)))
	padded := good[:len(good)-1] + strings.Repeat(" ", 1<<16) + "\n"
	// 70 MiB hold fewer than 10,000 readings, and the daemon must keep their texts until it
	// sees that they are too many.
	large := `{"sensorId":"s","fields":{"t":1`
	for i := range 8 {
		large += fmt.Sprintf(`,"f%d":%q`, i, strings.Repeat("x", 1000))
	}
	large += "}}\n"
	return []badRequest{
		{"gzip that is cut off", "gzip", typeLines, whole[:len(whole)/2], 400, "body_cut_off", "the gzip body is cut off; nothing was accepted"},
		{"gzip that is none", "gzip", typeLines, []byte(good), 400, "encoding_broken", "the body is not valid gzip; nothing was accepted"},
		{"two bytes that are no gzip", "gzip", typeJSON, []byte("{}"), 400, "encoding_broken", "the body is not valid gzip; nothing was accepted"},
		{"broken JSON", "", typeJSON, []byte(`[` + good + `,{"sensorId":"s",]`), 400, "malformed", "nothing was accepted"},
		{"another type", "", "text/csv", []byte(good), 415, "type_unknown", "text/csv"},
		{"nothing", "", typeLines, nil, 400, "no_readings", "the request contains no readings"},
		{"9 MiB", "", typeLines, bytes.Repeat([]byte(padded), 9<<20/len(padded)), 413, "body_too_large", "the body is larger than 8388608 bytes (--max-body-bytes)"},
		{"gzip of 70 MiB", "gzip", typeLines, gzipped(t, bytes.Repeat([]byte(large), 70<<20/len(large)+1)), 413, "inflated_too_large", "the body inflates to more than 67108864 bytes (--max-inflated-bytes)"},
		{"10,001 readings", "", typeLines, []byte(strings.Repeat(good, 10_001)), 413, "readings_too_many", "the request contains more than 10000 readings (--max-readings-per-request)"},
	}
}

// post sends the request and returns what is wrong with the answer. Under load it may be told
// to retry.
func (r *badRequest) post(b *brimProcess, amongMany bool) error {
	code, text, err := b.send("/v1/readings", r.body, "Content-Encoding", r.encoding, "Content-Type", r.kind)
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	var answer struct{ Code, Message string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("%s: answer %q: %w", r.name, text, err)
	}
	if amongMany && code == http.StatusServiceUnavailable && answer.Code == "busy" {
		return nil
	}
	if code != r.status || answer.Code != r.code || !strings.Contains(answer.Message, r.message) {
		return fmt.Errorf("%s: answer %d %s, not %d %s with %q", r.name, code, text, r.status, r.code, r.message)
	}
	return nil
}

func TestBadRequestsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, append(onShared(t, db), "--max-inflate-ratio", "1000000", "--ingest-max-bytes", "240MiB")...).awaitStorage()
	requests := badRequests(t)
	for i := range requests {
		assert.NoError(t, requests[i].post(b, false))
	}
	// All of them at once, several times.
	times := 4
	if raceEnabled {
		times = 1 // memory is not measured
	}
	var clients errgroup.Group
	for range times {
		for i := range requests {
			clients.Go(func() error { return requests[i].post(b, true) })
		}
	}
	require.NoError(t, clients.Wait())
	assert.Empty(t, checkBuckets(t, db.Collection("readings"), byDefault()))
	if peak, ok := peakMemory(b.Cmd.Process.Pid); ok && !raceEnabled {
		t.Logf("peak memory of brim: %d MiB", peak>>20)
		assert.Less(t, peak, int64(256<<20))
	}
	// The daemon continues as before.
	code, text, err := b.send("/v1/readings", []byte(`{"sensorId":"s","fields":{"t":1}}`))
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code, text)
}

package ingest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A refusalCase is a bad reading as each protocol writes it; what a protocol
// cannot express is empty.
type refusalCase struct {
	name   string
	code   telemetry.Code
	stream string // empty: readings
	json   string
	line   string
	proto  *telemetrypb.Reading
	change func(*Config)
}

const goodTime = 1795255200123 // 2026-11-21T10:00:00.123Z, when these requests arrive

// pb returns a good reading in protobuf, changed by change.
func pb(change func(*telemetrypb.Reading)) *telemetrypb.Reading {
	r := &telemetrypb.Reading{SensorId: "s", TsMs: proto.Int64(goodTime), Fields: []*telemetrypb.Field{pbDouble("t", 1)}}
	change(r)
	return r
}

func pbDouble(name string, v float64) *telemetrypb.Field {
	return &telemetrypb.Field{Name: name, Value: &telemetrypb.Field_DoubleValue{DoubleValue: v}}
}

func pbField(name string) *telemetrypb.Reading {
	return pb(func(r *telemetrypb.Reading) { r.Fields = []*telemetrypb.Field{pbDouble(name, 1)} })
}

func pbTag(tags ...*telemetrypb.Tag) *telemetrypb.Reading {
	return pb(func(r *telemetrypb.Reading) { r.Tags = tags })
}

func pbTime(ms int64) *telemetrypb.Reading {
	return pb(func(r *telemetrypb.Reading) { r.TsMs = &ms })
}

func refusalCases() []refusalCase {
	long := strings.Repeat("x", 1025)
	longName := strings.Repeat("n", 129)
	return append(refusalsOfReadings(long), refusalsOfMembers(long, longName)...)
}

func refusalsOfReadings(long string) []refusalCase {
	sensorTag := func(c *Config) { c.SensorTag = "host" }
	return []refusalCase{
		{name: "no object", code: telemetry.Malformed, json: `7`, line: `cpu`},
		{name: "fields that are a list", code: telemetry.Malformed, json: `{"sensorId":"s","fields":[1]}`, line: `cpu t=`},
		{name: "tags that are a string", code: telemetry.Malformed, json: `{"sensorId":"s","tags":"a","fields":{"t":1}}`, line: `cpu,a t=1`},
		{name: "an unknown key", code: telemetry.UnknownKey, json: `{"sensorId":"s","fields":{"t":1},"value":{"a":[1,{}]}}`},
		{name: "a key in other letters", code: telemetry.UnknownKey, json: `{"sensorid":"s","fields":{"t":1}}`},
		{name: "a sensor twice", code: telemetry.DuplicateKey, json: `{"sensorId":"s","sensorId":"s","fields":{"t":1}}`},
		{name: "fields twice", code: telemetry.DuplicateKey, json: `{"sensorId":"s","fields":{"t":1},"fields":{"u":1}}`},
		{name: "tags twice", code: telemetry.DuplicateKey, json: `{"sensorId":"s","fields":{"t":1},"tags":{},"tags":{}}`},
		{name: "a time twice", code: telemetry.DuplicateKey, json: `{"sensorId":"s","ts":1,"ts":1,"fields":{"t":1}}`},
		{name: "no sensor", code: telemetry.SensorMissing, json: `{"fields":{"t":1}}`, line: `cpu,rack=1 t=1`, change: sensorTag,
			proto: pb(func(r *telemetrypb.Reading) { r.SensorId = "" })},
		{name: "an empty sensor", code: telemetry.SensorMissing, json: `{"sensorId":"","fields":{"t":1}}`},
		{name: "a null sensor", code: telemetry.SensorMissing, json: `{"sensorId":null,"fields":{"t":1}}`},
		{name: "a sensor that is a number", code: telemetry.SensorInvalid, json: `{"sensorId":7,"fields":{"t":1}}`},
		{name: "a long sensor", code: telemetry.SensorInvalid, json: `{"sensorId":"` + long + `","fields":{"t":1}}`, line: long + ` t=1`,
			proto: pb(func(r *telemetrypb.Reading) { r.SensorId = long })},
		{name: "an unprintable sensor", code: telemetry.SensorInvalid, json: `{"sensorId":"a\u0007","fields":{"t":1}}`, line: "a\u200bb t=1",
			proto: pb(func(r *telemetrypb.Reading) { r.SensorId = "a\x07" })},
		{name: "half a surrogate pair in the sensor", code: telemetry.SensorInvalid, json: `{"sensorId":"a\ud800","fields":{"t":1}}`},
		{name: "a time in words", code: telemetry.TimeInvalid, json: `{"sensorId":"s","ts":"yesterday","fields":{"t":1}}`, line: `cpu t=1 5-5`},
		{name: "a time of null", code: telemetry.TimeInvalid, json: `{"sensorId":"s","ts":null,"fields":{"t":1}}`},
		{name: "a time with a fraction", code: telemetry.TimeInvalid, json: `{"sensorId":"s","ts":1.5,"fields":{"t":1}}`},
		{name: "a time with an exponent", code: telemetry.TimeInvalid, json: `{"sensorId":"s","ts":1e12,"fields":{"t":1}}`},
		{name: "before 1970", code: telemetry.TimeOutOfRange, json: `{"sensorId":"s","ts":"1969-12-31T23:59:59.999Z","fields":{"t":1}}`,
			line: `cpu t=1 -1`, proto: pbTime(-1)},
		{name: "seconds taken for milliseconds", code: telemetry.TimeOutOfRange, json: `{"sensorId":"s","ts":1795255200,"fields":{"t":1}}`,
			line: `cpu t=1 1795255200`, proto: pbTime(1795255200)},
		{name: "in the future", code: telemetry.TimeOutOfRange, json: `{"sensorId":"s","ts":1795255800124,"fields":{"t":1}}`,
			line: `cpu t=1 1795255800124000000`, proto: pbTime(goodTime + 600_001)},
		{name: "a time of 70 bits", code: telemetry.TimeOutOfRange, json: `{"sensorId":"s","ts":1000000000000000000000,"fields":{"t":1}}`,
			line: `cpu t=1 1000000000000000000000`},
		{name: "older than the retention", code: telemetry.TimeExpired, stream: "mem", json: `{"sensorId":"s","ts":"2026-11-20T10:00:00.122Z","fields":{"t":1}}`,
			line: `mem t=1 1795168800122000000`, proto: pbTime(goodTime - 86_400_001)},
		{name: "a field that the stream does not take", code: telemetry.FieldNotAllowed, change: takesOnlyT,
			json: `{"sensorId":"s","fields":{"t":1,"u":2}}`, line: `cpu u=1,t=1`, proto: pbField("u")},
		{name: "no field that the stream takes", code: telemetry.FieldsMissing, change: dropsAllButT,
			json: `{"sensorId":"s","fields":{"u":1,"v":"w"}}`, line: `cpu u=1`, proto: pbField("u")},
	}
}

func takesOnlyT(c *Config) { c.Streams[0].Fields = []string{"t"} }

func dropsAllButT(c *Config) {
	takesOnlyT(c)
	c.Streams[0].OtherFields = dropOthers
}

func refusalsOfMembers(long, longName string) []refusalCase {
	manyFields, manyTags, manyLine, manyTagsLine := `"f0":0`, `"t0":""`, `f0=0`, ``
	tooManyFields, tooManyTags := pbField("f0"), pbTag()
	for i := 1; i <= 256; i++ {
		manyFields += fmt.Sprintf(`,"f%d":0`, i)
		manyTags += fmt.Sprintf(`,"t%d":""`, i)
		manyLine += fmt.Sprintf(`,f%d=0`, i)
		manyTagsLine += fmt.Sprintf(`,t%d=a`, i)
		tooManyFields.Fields = append(tooManyFields.Fields, pbDouble(fmt.Sprint("f", i), 0))
		tooManyTags.Tags = append(tooManyTags.Tags, &telemetrypb.Tag{Name: fmt.Sprint("t", i)})
	}
	tooManyTags.Tags = append(tooManyTags.Tags, &telemetrypb.Tag{Name: "t0"})
	hosts := func(c *Config) { c.SensorTag = "host" }
	field := func(name, inner string) refusalCase {
		return refusalCase{name: "a field called " + name, code: telemetry.FieldName, json: `{"sensorId":"s","fields":{` + inner + `:1}}`}
	}
	named := func(name string) refusalCase {
		c := field(name, fmt.Sprintf("%q", name))
		c.line, c.proto = `cpu `+name+`=1`, pbField(name)
		if strings.Contains(name, ".") {
			c.line = "" // dots are mapped there
		}
		return c
	}
	text := &telemetrypb.Field{Name: "t", Value: &telemetrypb.Field_StringValue{StringValue: long}}
	return []refusalCase{
		{name: "no fields", code: telemetry.FieldsMissing, json: `{"sensorId":"s"}`, proto: pb(func(r *telemetrypb.Reading) { r.Fields = nil })},
		{name: "empty fields", code: telemetry.FieldsMissing, json: `{"sensorId":"s","fields":{}}`},
		{name: "null fields", code: telemetry.FieldsMissing, json: `{"sensorId":"s","fields":null}`},
		{name: "257 fields", code: telemetry.FieldsTooMany, json: `{"sensorId":"s","fields":{` + manyFields + `}}`, line: `cpu ` + manyLine, proto: tooManyFields},
		named("a.b"), named("$a"), named("ts"), named("sensor"), named("_id"), named(longName),
		field("the empty string", `""`), field("NUL", `"a\u0000"`), field("half a pair", `"a\udc00"`),
		{name: "a field twice", code: telemetry.FieldDuplicate, json: `{"sensorId":"s","fields":{"t":1,"u":1,"t":2}}`, line: `cpu t=1,u=1,t=2`,
			proto: pb(func(r *telemetrypb.Reading) { r.Fields = append(r.Fields, pbDouble("t", 2)) })},
		{name: "a field twice, once escaped", code: telemetry.FieldDuplicate, json: `{"sensorId":"s","fields":{"t":1,"\u0074":2}}`},
		{name: "null", code: telemetry.ValueType, json: `{"sensorId":"s","fields":{"t":null}}`,
			proto: pb(func(r *telemetrypb.Reading) { r.Fields[0].Value = nil })},
		{name: "an object", code: telemetry.ValueType, json: `{"sensorId":"s","fields":{"t":{"a":1}}}`},
		{name: "a list", code: telemetry.ValueType, json: `{"sensorId":"s","fields":{"t":[1]}}`},
		{name: "beyond a double", code: telemetry.ValueNotFinite, json: `{"sensorId":"s","fields":{"t":1e400}}`, line: `cpu t=1e400`,
			proto: pb(func(r *telemetrypb.Reading) { r.Fields[0] = pbDouble("t", math.Inf(-1)) })},
		{name: "far beyond a double", code: telemetry.ValueNotFinite, json: `{"sensorId":"s","fields":{"t":-1e4000}}`, line: `cpu t=-1e4000`,
			proto: pb(func(r *telemetrypb.Reading) { r.Fields[0] = pbDouble("t", math.NaN()) })},
		{name: "2^63", code: telemetry.ValueRange, json: `{"sensorId":"s","fields":{"t":9223372036854775808}}`, line: `cpu t=9223372036854775808i`},
		{name: "below -2^63", code: telemetry.ValueRange, json: `{"sensorId":"s","fields":{"t":-9223372036854775809}}`, line: `cpu t=-9223372036854775809i`},
		{name: "2^64-1", code: telemetry.ValueRange, json: `{"sensorId":"s","fields":{"t":18446744073709551615}}`, line: `cpu t=18446744073709551615u`},
		{name: "a long string", code: telemetry.ValueText, json: `{"sensorId":"s","fields":{"t":"` + long + `"}}`, line: `cpu t="` + long + `"`,
			proto: pb(func(r *telemetrypb.Reading) { r.Fields[0] = text })},
		{name: "half a surrogate pair", code: telemetry.ValueText, json: `{"sensorId":"s","fields":{"t":"\ud83d"}}`},
		{name: "no UTF-8", code: telemetry.ValueText, json: "{\"sensorId\":\"s\",\"fields\":{\"t\":\"\xff\"}}"},
		{name: "257 tags", code: telemetry.TagsTooMany, json: `{"sensorId":"s","fields":{"t":1},"tags":{` + manyTags + `}}`,
			line: `cpu,host=a` + manyTagsLine + ` t=1`, change: hosts, proto: tooManyTags},
		{name: "a tag with a dot", code: telemetry.TagName, json: `{"sensorId":"s","fields":{"t":1},"tags":{"a.b":""}}`,
			proto: pbTag(&telemetrypb.Tag{Name: "a.b"})},
		{name: "a tag twice", code: telemetry.TagDuplicate, json: `{"sensorId":"s","fields":{"t":1},"tags":{"a":"1","a":"2"}}`, line: `cpu,a=1,a=2 t=1`,
			proto: pbTag(&telemetrypb.Tag{Name: "a"}, &telemetrypb.Tag{Name: "a"})},
		{name: "a tag that is a number", code: telemetry.TagValue, json: `{"sensorId":"s","fields":{"t":1},"tags":{"a":1}}`},
		{name: "a long tag", code: telemetry.TagValue, json: `{"sensorId":"s","fields":{"t":1},"tags":{"a":"` + long + `"}}`, line: `cpu,host=a,a=` + long + ` t=1`, change: hosts,
			proto: pbTag(&telemetrypb.Tag{Name: "a", Value: long})},
	}
}

func TestEveryRuleRefusesTheSameOverEveryProtocol(t *testing.T) {
	t.Parallel()
	covered := map[telemetry.Code]bool{
		telemetry.StoreRefused:    true, // see TestReadingsThatTheStoreRefused
		telemetry.SensorForbidden: true, // see TestSensorsOfOthersAreRefused
		telemetry.NotSupported:    true, // see TestRemoteWriteRefusesSeries
	}
	for _, c := range refusalCases() {
		covered[c.code] = true
		t.Run(string(c.code)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			if c.json != "" {
				t.Run("array", func(t *testing.T) { t.Parallel(); c.overJSON(t, "application/json", "[%s]", ",") })
				t.Run("ndjson", func(t *testing.T) { t.Parallel(); c.overJSON(t, "application/x-ndjson", "%s", "\n") })
			}
			if c.line != "" {
				t.Run("line", func(t *testing.T) { t.Parallel(); c.overLineProtocol(t) })
			}
			if c.proto != nil {
				t.Run("protobuf", func(t *testing.T) { t.Parallel(); c.overProtobuf(t) })
			}
		})
	}
	for _, code := range telemetry.Codes() {
		assert.True(t, covered[code], "no reading is refused with %s", code)
	}
}

func (c *refusalCase) serverOf(t *testing.T) (*Server, *fakeJournal, string) {
	t.Helper()
	var changes []func(*Config)
	if c.change != nil {
		changes = append(changes, c.change)
	}
	d, j := newTestServer(t, changes...)
	if c.stream == "" {
		return d, j, "readings"
	}
	return d, j, c.stream
}

func (c *refusalCase) overJSON(t *testing.T, contentType, format, separator string) {
	t.Helper()
	const good = `{"sensorId":"good","fields":{"t":1}}`
	d, j, stream := c.serverOf(t)
	w := post(t, d, "/v1/streams/"+stream+"/readings", contentType, fmt.Sprintf(format, strings.Join([]string{good, c.json, good}, separator)))
	var a answer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), w.Body)
	assert.Equal(t, 207, w.Code)
	c.check(t, j, &a)
	assert.Equal(t, telemetry.Stored, a.Ack)

	w = post(t, d, "/v1/streams/"+stream+"/readings", contentType, fmt.Sprintf(format, c.json))
	assert.Equal(t, 400, w.Code, "alone")
	assert.Contains(t, w.Body.String(), `{"accepted":0,"rejected":1,"errors":[{"index":0,"code":"`+string(c.code)+`"`)
}

// check holds that the second of three readings was refused.
func (c *refusalCase) check(t *testing.T, j *fakeJournal, a *answer) {
	t.Helper()
	assert.Equal(t, 2, a.Accepted)
	assert.Equal(t, 1, a.Rejected)
	require.Len(t, a.Errors, 1)
	assert.Equal(t, c.code, a.Errors[0].Code, a.Errors[0].Message)
	assert.Equal(t, 1, a.Errors[0].Index)
	assert.NotEmpty(t, a.Errors[0].Message)
	assert.Less(t, len(a.Errors[0].Message), 400)
	taken := j.readings()
	require.Len(t, taken, 2)
	for _, r := range taken {
		assert.Equal(t, []telemetry.Field{{Name: "t", Value: taken[0].Fields[0].Value}}, r.Fields)
	}
}

func (c *refusalCase) overLineProtocol(t *testing.T) {
	t.Helper()
	d, j, _ := c.serverOf(t)
	good := "cpu,host=good t=1"
	w := post(t, d, "/write", "", good+"\n\n# a comment\n"+c.line+"\n"+good+"\n")
	assert.Equal(t, 400, w.Code)
	var p problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body)
	assert.Equal(t, codePartialWrite, p.Code)
	assert.EqualValues(t, 4, p.Line)
	assert.Contains(t, p.Message, "partial write: 1 of 3 lines were refused, the others were taken; line 4: "+string(c.code)+": ")
	assert.Equal(t, p.Message, p.Error)
	require.Len(t, j.readings(), 2)
}

func (c *refusalCase) overProtobuf(t *testing.T) {
	t.Helper()
	d, j, stream := c.serverOf(t)
	good := pb(func(r *telemetrypb.Reading) { r.SensorId = "good" })
	response, r := writeMessage(t, d, &telemetrypb.WriteRequest{Stream: stream, Readings: []*telemetrypb.Reading{good, c.proto, good}})
	assert.Equal(t, partlyTaken, r)
	a := answer{Accepted: int(response.GetAccepted()), Rejected: int(response.GetRejected())}
	for _, e := range response.GetErrors() {
		a.Errors = append(a.Errors, refusedReading{Index: int(e.GetIndex()), Code: telemetry.Code(e.GetCode()), Message: e.GetMessage()})
	}
	c.check(t, j, &a)
	assert.Equal(t, telemetrypb.Ack_ACK_STORED, response.GetAck())
}

func TestReadingsThatTheStoreRefused(t *testing.T) {
	t.Parallel()
	refused := []batch.Refused{
		{Index: 3, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "too big"}},
		{Index: 0, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "too big"}},
	}
	d, j := newTestServer(t)
	j.refused = refused
	const good, bad = `{"sensorId":"s","fields":{"t":1}}`, `{"sensorId":"s"}`
	w := post(t, d, "/v1/readings", "application/json", "["+good+","+bad+","+good+","+good+"]")
	assert.Equal(t, 207, w.Code)
	var a answer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	assert.Equal(t, 1, a.Accepted)
	assert.Equal(t, 3, a.Rejected)
	require.Len(t, a.Errors, 3)
	assert.Equal(t, refusedReading{Index: 0, Code: telemetry.StoreRefused, Message: "too big"}, a.Errors[0])
	assert.Equal(t, telemetry.FieldsMissing, a.Errors[1].Code)
	assert.Equal(t, 3, a.Errors[2].Index)

	w = post(t, d, "/write", "", "cpu t=1\ncpu t\ncpu t=1\n#\ncpu t=1\n")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), `"line":1`)

	j.refused = refused[1:]
	w = post(t, d, "/v1/readings", "application/json", good)
	assert.Equal(t, 400, w.Code, "the only reading was refused")
	assert.JSONEq(t, `{"accepted":0,"rejected":1,"errors":[{"index":0,"code":"store_refused","message":"too big"}]}`, w.Body.String())
}

package ingest

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// oneIn is true rarely.
func oneIn(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

func drawName(t *rapid.T, usual ...string) string {
	if oneIn(t, 40, "odd name") {
		return rapid.SampledFrom([]string{"", "$x", "a.b", "ts", "ö", "\xff", string(make([]byte, 130))}).Draw(t, "name")
	}
	return rapid.SampledFrom(usual).Draw(t, "name")
}

func drawTags(t *rapid.T) []*telemetrypb.Tag {
	var tags []*telemetrypb.Tag
	for _, name := range []string{"k", "l"}[:rapid.IntRange(0, 2).Draw(t, "tags")] {
		tags = append(tags, &telemetrypb.Tag{Name: drawName(t, name), Value: drawName(t, "x", "y")})
	}
	return tags
}

func drawReading(t *rapid.T) *telemetrypb.Reading {
	r := &telemetrypb.Reading{SensorId: drawName(t, "s-1", "s-2"), Tags: drawTags(t)}
	if rapid.Bool().Draw(t, "timed") {
		r.TsMs = proto.Int64(rapid.SampledFrom([]int64{0, 1, 1_763_719_200_000, -1}).Draw(t, "ts"))
	}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "fields")] {
		f := &telemetrypb.Field{Name: drawName(t, name)}
		switch rapid.IntRange(0, 16).Draw(t, "kind") {
		case 0:
		case 1:
			f.Value = &telemetrypb.Field_StringValue{StringValue: "x"}
		case 2:
			f.Value = &telemetrypb.Field_BoolValue{BoolValue: true}
		case 3, 4:
			f.Value = &telemetrypb.Field_DoubleValue{DoubleValue: rapid.SampledFrom([]float64{0, 1.5, math.NaN()}).Draw(t, "double")}
		default:
			f.Value = &telemetrypb.Field_IntValue{IntValue: rapid.Int64().Draw(t, "int")}
		}
		r.Fields = append(r.Fields, f)
	}
	return r
}

func drawSeries(t *rapid.T) *telemetrypb.Series {
	s := &telemetrypb.Series{SensorId: drawName(t, "s-1", "s-2"), Tags: drawTags(t)}
	rows := rapid.IntRange(0, 3).Draw(t, "rows")
	for range rows {
		s.TsMs = append(s.TsMs, rapid.SampledFrom([]int64{0, 1, 200, 1_763_719_200_000, -1}).Draw(t, "ts"))
	}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "columns")] {
		c := &telemetrypb.Column{Name: drawName(t, name)}
		kind := rapid.IntRange(0, 16).Draw(t, "kind")
		for row := range rows {
			switch {
			case oneIn(t, 20, "absent"):
				c.Absent = append(c.Absent, uint32(row))
			case oneIn(t, 50, "missing"):
			case kind == 0:
				c.Strings = append(c.Strings, drawName(t, "", "x"))
			case kind == 1:
				c.Bools = append(c.Bools, row%2 == 0)
			case kind < 4:
				c.Doubles = append(c.Doubles, rapid.SampledFrom([]float64{0, 1.5, math.Inf(1)}).Draw(t, "double"))
			default:
				c.Ints = append(c.Ints, rapid.Int64().Draw(t, "int"))
			}
		}
		s.Columns = append(s.Columns, c)
	}
	return s
}

// drawMessage returns an encoded request, which may be broken.
func drawMessage(t *rapid.T) []byte {
	request := &telemetrypb.WriteRequest{}
	for range rapid.IntRange(0, 3).Draw(t, "readings") {
		request.Readings = append(request.Readings, drawReading(t))
	}
	for range rapid.IntRange(0, 4).Draw(t, "series") {
		request.Series = append(request.Series, drawSeries(t))
	}
	message, err := proto.MarshalOptions{AllowPartial: true}.Marshal(request)
	if err != nil { // a string that is not UTF-8
		return nil
	}
	for len(message) > 0 && oneIn(t, 8, "break") {
		message[rapid.IntRange(0, len(message)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
	}
	return message
}

// checkMessage holds that a message is the same when its sensors are new and when
// they are known, and that its readings are those of the generated code.
func checkMessage(t require.TestingT, d *Server, message []byte) {
	d.known = batch.NewInterner(0)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	want := outcomeOf(in, in.decodeProtobuf(message))
	in = d.newIntake(d.streams["readings"], telemetry.Stored)
	require.Equal(t, want, outcomeOf(in, in.decodeProtobuf(message)), "%x, with known sensors", message)
	var request telemetrypb.WriteRequest
	if want.err != nil || proto.Unmarshal(message, &request) != nil {
		return
	}
	oracle := oracleReadings(&request)
	require.Len(t, oracle, want.count, "%x", message)
	for i, got := range want.readings {
		wanted := oracle[want.indices[i]]
		for f := range wanted.Fields {
			if d.config.MapDots != 0 {
				wanted.Fields[f].Name = strings.ReplaceAll(wanted.Fields[f].Name, ".", string(d.config.MapDots))
			}
		}
		require.Equal(t, wanted.Sensor, got.Sensor)
		require.Equal(t, wanted.Fields, got.Fields)
		require.Len(t, got.Tags, len(wanted.Tags))
		if wanted.Time != (time.Time{}) {
			require.Equal(t, wanted.Time, got.Time)
		}
	}
}

// oracleReadings returns the readings of a request, rows of series behind the others.
func oracleReadings(request *telemetrypb.WriteRequest) (all []telemetry.Reading) {
	tagsOf := func(tags []*telemetrypb.Tag) (out []telemetry.Tag) {
		for _, tag := range tags {
			out = append(out, telemetry.Tag{Name: tag.GetName(), Value: tag.GetValue()})
		}
		return out
	}
	for _, r := range request.GetReadings() {
		reading := telemetry.Reading{Sensor: r.GetSensorId(), Tags: tagsOf(r.GetTags())}
		if r.TsMs != nil {
			reading.Time = time.UnixMilli(r.GetTsMs()).UTC()
		}
		for _, f := range r.GetFields() {
			field := telemetry.Field{Name: f.GetName()}
			switch v := f.GetValue().(type) {
			case *telemetrypb.Field_DoubleValue:
				field.Value = telemetry.FloatValue(v.DoubleValue)
			case *telemetrypb.Field_IntValue:
				field.Value = telemetry.IntValue(v.IntValue)
			case *telemetrypb.Field_BoolValue:
				field.Value = telemetry.BoolValue(v.BoolValue)
			case *telemetrypb.Field_StringValue:
				field.Value = telemetry.TextValue(v.StringValue)
			}
			reading.Fields = append(reading.Fields, field)
		}
		all = append(all, reading)
	}
	for _, s := range request.GetSeries() {
		used := make([]int, len(s.GetColumns()))
		for row, ms := range s.GetTsMs() {
			reading := telemetry.Reading{Sensor: s.GetSensorId(), Tags: tagsOf(s.GetTags()), Time: time.UnixMilli(ms).UTC()}
			for c, column := range s.GetColumns() {
				if slices.Contains(column.GetAbsent(), uint32(row)) {
					continue
				}
				field, n := telemetry.Field{Name: column.GetName()}, used[c]
				used[c]++
				switch {
				case len(column.GetDoubles()) > 0:
					field.Value = telemetry.FloatValue(column.GetDoubles()[n])
				case len(column.GetInts()) > 0:
					field.Value = telemetry.IntValue(column.GetInts()[n])
				case len(column.GetBools()) > 0:
					field.Value = telemetry.BoolValue(column.GetBools()[n])
				default:
					field.Value = telemetry.TextValue(column.GetStrings()[n])
				}
				reading.Fields = append(reading.Fields, field)
			}
			all = append(all, reading)
		}
	}
	return all
}

func TestMessagesAreThoseOfTheGeneratedCode(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	dots, _ := newTestServer(t, func(c *Config) { c.MapDots, c.MaxReadings = '_', 4 })
	rapid.Check(t, func(t *rapid.T) {
		message := drawMessage(t)
		checkMessage(t, d, message)
		checkMessage(t, dots, message)
	})
}

// TestSeriesTooLongToBeLookedUp holds that sensors with more tags than a key
// holds stay apart, also where only the first tags differ.
func TestSeriesTooLongToBeLookedUp(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	var rest []*telemetrypb.Tag
	for i := range 8 {
		rest = append(rest, &telemetrypb.Tag{Name: "t" + strconv.Itoa(i), Value: strings.Repeat("x", 1000)})
	}
	request := &telemetrypb.WriteRequest{}
	for i, first := range []string{"a", "b", "a", "b"} {
		tags := append([]*telemetrypb.Tag{{Name: "first", Value: first}}, rest...)
		request.Readings = append(request.Readings, &telemetrypb.Reading{SensorId: "s", TsMs: proto.Int64(int64(i)), Tags: tags,
			Fields: []*telemetrypb.Field{{Name: "f", Value: &telemetrypb.Field_IntValue{IntValue: 1}}}})
		request.Series = append(request.Series, &telemetrypb.Series{SensorId: "s", TsMs: []int64{int64(i)}, Tags: tags, Columns: []*telemetrypb.Column{{Name: "f", Ints: []int64{1}}}})
	}
	_, r := writeMessage(t, d, request)
	require.Equal(t, allTaken, r)
	body := ""
	for _, first := range []string{"a", "b", "a", "b"} {
		body += `{"sensorId":"s","fields":{"f":1},"tags":{"first":"` + first + `"`
		for _, tag := range rest {
			body += `,"` + tag.GetName() + `":"` + tag.GetValue() + `"`
		}
		body += "}}\n"
	}
	require.Equal(t, 200, post(t, d, "/v1/readings", typeLines, body).Code)
	readings := j.readings()
	require.Len(t, readings, 12)
	for i, reading := range readings {
		require.Len(t, reading.Tags, 9)
		require.Equal(t, string("abab"[i%4]), reading.Tags[0].Value)
	}
}

func FuzzKnownProtobuf(f *testing.F) {
	for _, request := range []*telemetrypb.WriteRequest{plainRequest(makeCPU(2, 1)), compactRequest(makeCPU(3, 2)), compactRequest(makeCPU(2, 2))} {
		message, err := proto.Marshal(request)
		require.NoError(f, err)
		f.Add(message)
	}
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), []byte("\n\x01s\x12\x06\n\x01k\x12\x01v\x1a\x01\x05\"\x06\n\x01a\x1a\x01\x02")))
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, message []byte) { checkMessage(t, d, message) })
}

// FuzzWire holds that fields and lists are those that protowire finds.
func FuzzWire(f *testing.F) {
	f.Add([]byte("\n\x01s\x10\x05\x1a\x80\x01"))
	f.Add([]byte("\x1b\x1c\x0d1234\x09123456789\x00\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"))
	f.Fuzz(func(t *testing.T, message []byte) {
		m := wireMessage{rest: message}
		for rest := message; len(rest) > 0; {
			num, kind, n := protowire.ConsumeField(rest)
			if !m.next() {
				require.Negative(t, n)
				require.Error(t, m.err)
				break
			}
			require.Positive(t, n)
			require.True(t, m.is(num, kind))
			_, _, head := protowire.ConsumeTag(rest)
			switch kind {
			case protowire.BytesType:
				want, _ := protowire.ConsumeBytes(rest[head:n])
				require.Equal(t, want, m.bytes)
			case protowire.VarintType:
				want, _ := protowire.ConsumeVarint(rest[head:n])
				require.Equal(t, want, m.word)
			}
			rest = rest[n:]
		}
		var want []uint64
		whole := true
		for rest := message; len(rest) > 0 && whole; {
			v, n := protowire.ConsumeVarint(rest)
			if whole = n >= 0; whole {
				want, rest = append(want, v), rest[n:]
			}
		}
		list := wireMessage{kind: protowire.BytesType, bytes: message}
		got, err := list.appendVarints(nil, len(message))
		require.Equal(t, whole, err == nil)
		require.Equal(t, want, got)
	})
}

// TestAColumnIsRefusedByTheNameThatWasSent holds that a replaced dot is not in
// what the sender is told.
func TestAColumnIsRefusedByTheNameThatWasSent(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, anyTime, func(c *Config) { c.MapDots = '_' })
	message, err := proto.Marshal(&telemetrypb.WriteRequest{Series: []*telemetrypb.Series{{
		SensorId: "s", TsMs: []int64{1, 2, 3}, Columns: []*telemetrypb.Column{{Name: "a.b", Doubles: []float64{1, math.NaN(), 2}}},
	}}})
	require.NoError(t, err)
	checkMessage(t, d, message)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	require.NoError(t, in.decodeProtobuf(message))
	require.Equal(t, 2, in.builder.Len())
	require.Contains(t, in.answer.Errors[0].Message, "a.b")
}

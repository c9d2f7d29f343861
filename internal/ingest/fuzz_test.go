package ingest

import (
	"bytes"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// checkIntake holds what must be true however unauthenticated the input was, and
// returns what was built.
func checkIntake(t *testing.T, in *intake) *batch.Batch {
	t.Helper()
	b := in.builder.Batch()
	if b.Len()+in.answer.Rejected != in.count {
		t.Fatalf("%d accepted and %d rejected of %d", b.Len(), in.answer.Rejected, in.count)
	}
	last := -1
	for i := range b.Len() {
		row := b.Row(uint32(i))
		if int(row.Index) <= last || int(row.Index) >= in.count {
			t.Fatalf("row %d has index %d behind %d, of %d", i, row.Index, last, in.count)
		}
		last = int(row.Index)
		checkReading(t, b.Reading(uint32(i)), telemetry.TimeRange{Newest: in.times.Newest})
	}
	for _, e := range in.answer.Errors {
		if e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 1000 {
			t.Fatalf("message %q", e.Message)
		}
	}
	return b
}

// checkReading holds that a reading keeps the rules.
func checkReading(t *testing.T, r telemetry.Reading, times telemetry.TimeRange) {
	t.Helper()
	refuse := func(refusal *telemetry.Refusal) {
		if refusal != nil {
			t.Fatalf("%+v was taken: %s", r, refusal)
		}
	}
	refuse(telemetry.CheckSensor([]byte(r.Sensor)))
	refuse(times.CheckTime(r.Time.UnixMilli()))
	if len(r.Fields) == 0 || len(r.Fields) > telemetry.MaxFields || len(r.Tags) > telemetry.MaxTags {
		t.Fatalf("%d fields, %d tags", len(r.Fields), len(r.Tags))
	}
	seen := make(map[string]bool)
	for _, f := range r.Fields {
		refuse(telemetry.CheckFieldName([]byte(f.Name)))
		if seen[f.Name] {
			t.Fatalf("field %q twice", f.Name)
		}
		seen[f.Name] = true
		switch f.Value.Kind() {
		case telemetry.Float:
			refuse(telemetry.CheckFloat(nil, f.Value.Float()))
		case telemetry.Text:
			refuse(telemetry.CheckFieldText(nil, []byte(f.Value.Text())))
		case telemetry.Int, telemetry.Bool:
		default:
			t.Fatalf("kind %d", f.Value.Kind())
		}
	}
	for i, tag := range r.Tags {
		refuse(telemetry.CheckTagName([]byte(tag.Name)))
		refuse(telemetry.CheckTagText(nil, []byte(tag.Value)))
		if i > 0 && tag.Name <= r.Tags[i-1].Name {
			t.Fatalf("tags out of order: %v", r.Tags)
		}
	}
}

// decodeAny decodes a body into a fresh intake. On an error nothing of the
// intake may be used.
func decodeAny(d *Server, content []byte, decode func(*intake, []byte) error) (*intake, error) {
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	if err := withBody(d, content, func(body []byte) error { return decode(in, body) }); err != nil {
		return nil, err
	}
	return in, nil
}

// withBody receives the content and passes it to do.
func withBody(d *Server, content []byte, do func([]byte) error) error {
	x := d.newExchange(protoHTTP, nil, httptest.NewRequest("POST", "/", bytes.NewReader(content)))
	defer x.finish()
	defer x.payload.free()
	if err := x.receive(); err != nil {
		return err
	}
	return do(x.payload.data)
}

func seedJSON(f *testing.F) {
	for _, c := range refusalCases() {
		if len(c.json) < 1000 {
			f.Add([]byte(c.json))
			f.Add([]byte("[" + c.json + "]"))
		}
	}
	for _, seed := range []string{"", "[]", "[[]]", "{}\n{}", "\n\n", `[{"sensorId":"a","ts":0,"fields":{"x":-0.0,"y":"\ud83d\ude00"},"tags":{"a":""}}]`, "{\"sensorId\":\n\"a\"}"} {
		f.Add([]byte(seed))
	}
	f.Add([]byte(sample(f, "nyc-weather-2013.ndjson")[:1000]))
}

func FuzzNDJSON(f *testing.F) {
	seedJSON(f)
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		in, err := decodeAny(d, content, func(in *intake, body []byte) error { return in.decodeJSON(body, formLines) })
		if err != nil {
			t.Fatalf("lines are refused one by one, but: %v", err)
		}
		checkIntake(t, in)
		lines := 0
		for line := range bytes.SplitSeq(content, []byte("\n")) {
			if len(bytes.TrimSpace(line)) > 0 {
				lines++
			}
		}
		if in.count != lines {
			t.Fatalf("%d readings in %d lines", in.count, lines)
		}
	})
}

func FuzzLineProtocol(f *testing.F) {
	for _, c := range refusalCases() {
		if len(c.line) < 1000 {
			f.Add([]byte(c.line))
		}
	}
	f.Add([]byte(sample(f, "tsbs-cpu-100x1h.lp")[:1500]))
	for _, seed := range []string{"cpu,a=b t=1\ncpu,a=b t=2i\n", "m s=\"a\nb\" 1\nm s=\"\\\"\"", "m\\ \\,\\= a\\=b=1", "# c\n\r\nm f=t", "m,k=1#,l=# f=1\nm,k=1#,l=# f=1"} {
		f.Add([]byte(seed))
	}
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		in, err := decodeAny(d, content, func(in *intake, body []byte) error {
			return in.decodeLineProtocol(body, precision{name: "ms", ratio: 1})
		})
		if err != nil {
			t.Fatalf("lines are refused one by one, but: %v", err)
		}
		b := checkIntake(t, in)
		if len(in.lines) != in.count {
			t.Fatalf("%d numbers of lines for %d readings", len(in.lines), in.count)
		}
		if entries, whole := entriesOf(content); whole && in.count != entries {
			t.Fatalf("%d readings, but %d entries", in.count, entries)
		}
		// What was looked up must be what decoding gives: each taken line alone is
		// the same reading.
		lines := strings.SplitAfter(string(content), "\n")
		for i := range b.Len() {
			row := b.Row(uint32(i))
			rest := strings.Join(lines[in.lines[row.Index]-1:], "")
			alone, err := decodeAny(d, []byte(rest), func(in *intake, body []byte) error {
				return in.decodeLineProtocol(body, precision{name: "ms", ratio: 1})
			})
			if err != nil || alone.builder.Len() == 0 || !sameReading(alone.builder.Batch().Reading(0), b.Reading(uint32(i))) {
				t.Fatalf("line %d is another reading when it comes first", in.lines[row.Index])
			}
		}
	})
}

// entriesOf returns how many entries the library alone sees, and whether all of
// their syntax is right.
func entriesOf(content []byte) (n int, whole bool) {
	d := lineprotocol.NewDecoderWithBytes(content)
	for ; d.Next(); n++ {
		if _, err := d.TimeBytes(); err != nil { // skips what stands before
			return n, false
		}
	}
	return n, true
}

func sameReading(a, b telemetry.Reading) bool {
	if a.Sensor != b.Sensor || !a.Time.Equal(b.Time) || len(a.Fields) != len(b.Fields) || len(a.Tags) != len(b.Tags) {
		return false
	}
	for i := range a.Fields {
		if a.Fields[i] != b.Fields[i] {
			return false
		}
	}
	for i := range a.Tags {
		if a.Tags[i] != b.Tags[i] {
			return false
		}
	}
	return true
}

func FuzzProtobuf(f *testing.F) {
	add := func(request *telemetrypb.WriteRequest) {
		message, err := proto.Marshal(request)
		if err == nil && len(message) < 4000 {
			f.Add(message)
		}
	}
	for _, c := range refusalCases() {
		if c.proto != nil {
			add(&telemetrypb.WriteRequest{RequestId: "r", Readings: []*telemetrypb.Reading{c.proto}})
		}
	}
	add(plainRequest(makeCPU(2, 1)))
	add(compactRequest(makeCPU(3, 2)))
	add(&telemetrypb.WriteRequest{Stream: "mem", Ack: 1, Series: []*telemetrypb.Series{{SensorId: "s", TsMs: []int64{1, 2}, Columns: []*telemetrypb.Column{
		{Name: "a", Doubles: []float64{1}, Absent: []uint32{1}}, {Name: "b", Strings: []string{"", "x"}}, {Name: "c", Bools: []bool{true, false}}}}}})
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, message []byte) {
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		head, err := decodeHead(message)
		if err == nil {
			err = in.decodeProtobuf(message)
		}
		var b *batch.Batch
		if err == nil {
			b = checkIntake(t, in)
		}
		var request telemetrypb.WriteRequest
		if proto.Unmarshal(message, &request) != nil {
			return
		}
		// What the generated code can read, this must read alike.
		if head.stream != request.GetStream() || head.ack != request.GetAck() || err == nil && head.id != request.GetRequestId() {
			t.Fatalf("got %+v, want %v", head, &request)
		}
		if err == nil {
			compareRequest(t, in, b, &request)
		}
	})
}

// compareRequest compares the taken readings with those of the generated code.
func compareRequest(t *testing.T, in *intake, b *batch.Batch, request *telemetrypb.WriteRequest) {
	t.Helper()
	rows := 0
	for _, s := range request.GetSeries() {
		rows += len(s.GetTsMs())
	}
	if in.count != len(request.GetReadings())+rows {
		t.Fatalf("%d readings of %d and %d rows", in.count, len(request.GetReadings()), rows)
	}
	for i := range b.Len() {
		index := int(b.Row(uint32(i)).Index)
		if index >= len(request.GetReadings()) {
			return
		}
		got, want := b.Reading(uint32(i)), request.GetReadings()[index]
		if got.Sensor != want.GetSensorId() || want.TsMs != nil && got.Time.UnixMilli() != want.GetTsMs() || len(got.Fields) != len(want.GetFields()) || len(got.Tags) != len(want.GetTags()) {
			t.Fatalf("got %+v, want %v", got, want)
		}
		for f, field := range want.GetFields() {
			if got.Fields[f].Name != field.GetName() || !sameValue(got.Fields[f].Value, field) {
				t.Fatalf("got %+v, want %v", got.Fields[f], field)
			}
		}
	}
}

func sameValue(v telemetry.Value, field *telemetrypb.Field) bool {
	switch want := field.GetValue().(type) {
	case *telemetrypb.Field_DoubleValue:
		return v.Kind() == telemetry.Float && math.Float64bits(v.Float()) == math.Float64bits(want.DoubleValue)
	case *telemetrypb.Field_IntValue:
		return v == telemetry.IntValue(want.IntValue)
	case *telemetrypb.Field_BoolValue:
		return v == telemetry.BoolValue(want.BoolValue)
	case *telemetrypb.Field_StringValue:
		return v == telemetry.TextValue(want.StringValue)
	}
	return false
}

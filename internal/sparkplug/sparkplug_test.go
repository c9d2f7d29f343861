package sparkplug

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/brim-telemetry/brim/internal/sparkplug/sparkplugpb"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// newDecoder returns a decoder that counts in skipped, and never asks for births.
func newDecoder() (d *Decoder, skipped map[string]int) {
	skipped = make(map[string]int)
	return &Decoder{Skip: func(reason string) { skipped[reason]++ }, Publish: func(string, []byte) {}}, skipped
}

// take decodes a payload.
func (d *Decoder) take(topic string, p *pb.Payload) (Message, error) {
	payload, err := proto.Marshal(p)
	if err != nil {
		return Message{}, err
	}
	return d.Decode(topic, payload)
}

// codeOf returns the code of an error.
func codeOf(t *testing.T, err error) string {
	t.Helper()
	var known *telemetry.Error
	require.ErrorAs(t, err, &known)
	return known.Code
}

func metric(name string, alias, at uint64, kind uint32) *pb.Metric {
	m := new(pb.Metric)
	if name != "" {
		m.Name = &name
	}
	if alias > 0 {
		m.Alias = &alias
	}
	if at > 0 {
		m.Timestamp = &at
	}
	if kind > 0 {
		m.Datatype = &kind
	}
	return m
}

func TestSparkplug(t *testing.T) {
	t.Parallel()
	const at = 1795251600000
	d, skipped := newDecoder()
	temp, count, flag := metric("Motor/temp.c", 1, at, typeDouble), metric("count", 2, at, typeInt16), metric("on", 3, at+5, typeBoolean)
	temp.Value, count.Value, flag.Value = &pb.Metric_DoubleValue{DoubleValue: 21.5}, &pb.Metric_IntValue{IntValue: 65535}, &pb.Metric_BooleanValue{BooleanValue: true}
	seq, control := metric("bdSeq", 0, at, typeInt64), metric("Node Control/Rebirth", 0, at, typeBoolean)
	seq.Value, control.Value = &pb.Metric_LongValue{LongValue: 1}, &pb.Metric_BooleanValue{}
	m, err := d.take("spBv1.0/plant/DBIRTH/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{temp, count, flag, seq, control}})
	require.NoError(t, err)
	assert.Equal(t, "plant/gw/motor", m.Sensor)
	assert.Equal(t, []telemetry.Tag{{Name: "group", Value: "plant"}, {Name: "node", Value: "gw"}, {Name: "device", Value: "motor"}}, m.Tags)
	time1, time2 := time.UnixMilli(at).UTC(), time.UnixMilli(at+5).UTC()
	assert.Equal(t, []telemetry.Reading{
		{Time: time1, Fields: []telemetry.Field{{Name: "Motor/temp_c", Value: telemetry.FloatValue(21.5)}, {Name: "count", Value: telemetry.IntValue(-1)}}},
		{Time: time2, Fields: []telemetry.Field{{Name: "on", Value: telemetry.BoolValue(true)}}},
	}, m.Readings)

	// Data have only aliases; a value without a time has that of the payload. Historical
	// values are readings like others.
	data := metric("", 2, 0, 0)
	data.Value, data.IsHistorical = &pb.Metric_IntValue{IntValue: 7}, proto.Bool(true)
	null := metric("", 1, 0, 0)
	null.IsNull = proto.Bool(true)
	huge := metric("big", 0, 0, typeUint64)
	huge.Value = &pb.Metric_LongValue{LongValue: math.MaxUint64}
	nan := metric("nan", 0, 0, typeFloat)
	nan.Value = &pb.Metric_FloatValue{FloatValue: float32(math.NaN())}
	file := metric("file", 0, 0, 18)
	file.Value = &pb.Metric_BytesValue{BytesValue: []byte{1}}
	reserved := metric("$x", 0, 0, typeInt8)
	reserved.Value = &pb.Metric_IntValue{IntValue: 1}
	m, err = d.take("spBv1.0/plant/DDATA/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data, null, huge, nan, file, reserved}})
	require.NoError(t, err)
	assert.Equal(t, []telemetry.Reading{{Time: time1, Fields: []telemetry.Field{{Name: "count", Value: telemetry.IntValue(7)}}}}, m.Readings)
	for _, reason := range []string{"null", "range", "not_finite", "type", "name"} {
		assert.Equal(t, 1, skipped[reason], reason)
	}

	// Two values of one metric at one instant are two readings.
	again := metric("", 2, 0, 0)
	again.Value = &pb.Metric_IntValue{IntValue: 8}
	m, _ = d.take("spBv1.0/plant/DDATA/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data, again}})
	assert.Len(t, m.Readings, 2)

	// Unknown aliases: of another device, and of all when the node is born again.
	only := &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data}}
	_, err = d.take("spBv1.0/plant/DDATA/gw/pump", only)
	assert.Equal(t, CodeAlias, codeOf(t, err))
	_, err = d.take("spBv1.0/plant/NBIRTH/gw", &pb.Payload{})
	require.NoError(t, err)
	_, err = d.take("spBv1.0/plant/DDATA/gw/motor", only)
	require.Error(t, err)

	for topic, code := range map[string]string{
		"spBv1.0/plant/DDATA/gw": codeTopic, "spBv1.0/plant/NDATA/gw/motor": codeTopic, "spBv1.0/plant": codeTopic,
		"spBv1.0/plant/OTHER/gw": CodePayload,
	} {
		_, err = d.take(topic, only)
		assert.Equal(t, code, codeOf(t, err), topic)
	}
	for _, topic := range []string{"spBv1.0/plant/NDEATH/gw", "spBv1.0/STATE/host", "spBv1.0/plant/NCMD/gw"} {
		m, err = d.take(topic, only)
		require.NoError(t, err)
		assert.Empty(t, m.Readings)
	}
}

// A birth that comes again replaces the one before, and is counted once.
func TestBirthsThatComeAgain(t *testing.T) {
	t.Parallel()
	d, _ := newDecoder()
	others := make(map[uint64]metricName)
	for alias := range uint64(maxAliases - 1) {
		others[alias] = metricName{}
	}
	d.Births = Births{"plant/other": others}
	for range 2 {
		_, err := d.take("spBv1.0/plant/DBIRTH/gw/motor", &pb.Payload{Metrics: []*pb.Metric{metric("level", 9, 0, typeInt32)}})
		require.NoError(t, err)
	}
}

// A time in another unit than milliseconds is passed on, for ingest to refuse.
func TestSparkplugTimeInAnotherUnit(t *testing.T) {
	t.Parallel()
	const micros, nanos = 1795251600000_000, 1795251600000_000000
	for _, at := range []uint64{micros, nanos, math.MaxUint64} {
		level := metric("level", 0, at, typeInt32)
		level.Value = &pb.Metric_IntValue{IntValue: 1}
		d, _ := newDecoder()
		m, err := d.take("spBv1.0/plant/NDATA/gw", &pb.Payload{Metrics: []*pb.Metric{level}})
		require.NoError(t, err)
		require.Len(t, m.Readings, 1)
		assert.EqualValues(t, min(at, math.MaxInt64), m.Readings[0].Time.UnixMilli())
	}
}

// FuzzSparkplug checks that whatever is decoded, every reading has a field, and no field twice.
func FuzzSparkplug(f *testing.F) {
	m := metric("a.b", 1, 5, typeInt32)
	m.Value = &pb.Metric_IntValue{IntValue: 1}
	seed, err := proto.Marshal(&pb.Payload{Timestamp: proto.Uint64(3), Metrics: []*pb.Metric{m, m, metric("", 1, 0, 0)}})
	require.NoError(f, err)
	f.Add("spBv1.0/plant/NBIRTH/gw", seed)
	f.Add("spBv1.0/plant/DDATA/gw/motor", []byte{0x12, 0})
	f.Fuzz(func(t *testing.T, topic string, payload []byte) {
		d, _ := newDecoder()
		m, err := d.Decode(topic, payload)
		if err != nil {
			return
		}
		for _, reading := range m.Readings {
			seen := make(map[string]bool)
			for _, field := range reading.Fields {
				assert.False(t, seen[field.Name])
				seen[field.Name] = true
				assert.Nil(t, telemetry.CheckFieldName([]byte(field.Name)))
			}
			assert.NotEmpty(t, reading.Fields)
		}
	})
}

// A message of too many metrics is refused before they take memory.
func TestTooManyMetrics(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{maxMetrics: "", maxMetrics + 1: "the payload has more than 100000 metrics"} {
		d, _ := newDecoder()
		_, err := d.Decode("spBv1.0/plant/NDATA/gw", bytes.Repeat([]byte{0x12, 0}, n))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, "sparkplug: "+want)
	}
}

package mqtt

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/ingest"
	pb "github.com/brim-telemetry/brim/internal/mqtt/sparkplugpb"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// decoder returns a subscriber that only decodes.
func decoder() *Subscriber {
	// Every node was asked, so that nothing is published.
	asked := map[string]time.Time{"plant/gw": time.Now(), "plant/other": time.Now()}
	return &Subscriber{metrics: newMetrics("test", prometheus.NewRegistry()), asked: asked, births: make(births)}
}

// take decodes a message as decode does.
func (s *Subscriber) takeSparkplug(topic string, p *pb.Payload) (ingest.Message, *refusal) {
	payload, err := proto.Marshal(p)
	if err != nil {
		panic(err)
	}
	var m ingest.Message
	r := s.decodeSparkplug(topic, payload, &m)
	return m, r
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
	s := decoder()
	temp, count, flag := metric("Motor/temp.c", 1, at, typeDouble), metric("count", 2, at, typeInt16), metric("on", 3, at+5, typeBoolean)
	temp.Value, count.Value, flag.Value = &pb.Metric_DoubleValue{DoubleValue: 21.5}, &pb.Metric_IntValue{IntValue: 65535}, &pb.Metric_BooleanValue{BooleanValue: true}
	seq, control := metric("bdSeq", 0, at, typeInt64), metric("Node Control/Rebirth", 0, at, typeBoolean)
	seq.Value, control.Value = &pb.Metric_LongValue{LongValue: 1}, &pb.Metric_BooleanValue{}
	m, r := s.takeSparkplug("spBv1.0/plant/DBIRTH/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{temp, count, flag, seq, control}})
	require.Nil(t, r)
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
	m, r = s.takeSparkplug("spBv1.0/plant/DDATA/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data, null, huge, nan, file, reserved}})
	require.Nil(t, r)
	assert.Equal(t, []telemetry.Reading{{Time: time1, Fields: []telemetry.Field{{Name: "count", Value: telemetry.IntValue(7)}}}}, m.Readings)
	for _, reason := range []string{"null", "range", "not_finite", "type", "name"} {
		assert.EqualValues(t, 1, testutil.ToFloat64(s.metrics.skipped.WithLabelValues(reason)), reason)
	}

	// Two values of one metric at one instant are two readings.
	again := metric("", 2, 0, 0)
	again.Value = &pb.Metric_IntValue{IntValue: 8}
	m, _ = s.takeSparkplug("spBv1.0/plant/DDATA/gw/motor", &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data, again}})
	assert.Len(t, m.Readings, 2)

	// Unknown aliases: of another device, and of all when the node is born again.
	only := &pb.Payload{Timestamp: proto.Uint64(at), Metrics: []*pb.Metric{data}}
	_, r = s.takeSparkplug("spBv1.0/plant/DDATA/gw/pump", only)
	require.NotNil(t, r)
	assert.Equal(t, reasonAlias, r.reason)
	_, r = s.takeSparkplug("spBv1.0/plant/NBIRTH/gw", &pb.Payload{})
	require.Nil(t, r)
	_, r = s.takeSparkplug("spBv1.0/plant/DDATA/gw/motor", only)
	require.NotNil(t, r)

	for topic, reason := range map[string]string{
		"spBv1.0/plant/DDATA/gw": reasonTopic, "spBv1.0/plant/NDATA/gw/motor": reasonTopic, "spBv1.0/plant": reasonTopic,
		"spBv1.0/plant/OTHER/gw": reasonSparkplug,
	} {
		_, r = s.takeSparkplug(topic, only)
		require.NotNil(t, r, topic)
		assert.Equal(t, reason, r.reason, topic)
	}
	for _, topic := range []string{"spBv1.0/plant/NDEATH/gw", "spBv1.0/STATE/host", "spBv1.0/plant/NCMD/gw"} {
		m, r = s.takeSparkplug(topic, only)
		assert.Nil(t, r)
		assert.Empty(t, m.Readings)
	}
}

// A birth that comes again replaces the one before, and is counted once.
func TestBirthsThatComeAgain(t *testing.T) {
	t.Parallel()
	s := decoder()
	others := make(map[uint64]metricName)
	for alias := range uint64(maxAliases - 1) {
		others[alias] = metricName{}
	}
	s.births["plant/other"] = others
	for range 2 {
		_, r := s.takeSparkplug("spBv1.0/plant/DBIRTH/gw/motor", &pb.Payload{Metrics: []*pb.Metric{metric("level", 9, 0, typeInt32)}})
		assert.Nil(t, r)
	}
}

// A time in another unit than milliseconds is passed on, for ingest to refuse.
func TestSparkplugTimeInAnotherUnit(t *testing.T) {
	t.Parallel()
	const micros, nanos = 1795251600000_000, 1795251600000_000000
	for _, at := range []uint64{micros, nanos, math.MaxUint64} {
		level := metric("level", 0, at, typeInt32)
		level.Value = &pb.Metric_IntValue{IntValue: 1}
		m, r := decoder().takeSparkplug("spBv1.0/plant/NDATA/gw", &pb.Payload{Metrics: []*pb.Metric{level}})
		require.Nil(t, r)
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
		s := decoder()
		if parsed, ok := parseSparkplugTopic(topic); ok {
			s.asked[parsed.nodeID()] = time.Now()
		}
		var m ingest.Message
		if s.decodeSparkplug(topic, payload, &m) != nil {
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
		var m ingest.Message
		r := decoder().decodeSparkplug("spBv1.0/plant/NDATA/gw", bytes.Repeat([]byte{0x12, 0}, n), &m)
		if want == "" {
			assert.Nil(t, r)
			continue
		}
		require.NotNil(t, r)
		assert.Equal(t, refusal{reasonSparkplug, want}, *r)
	}
}

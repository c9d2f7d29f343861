package ingest

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func otlpSeeds() []proto.Message {
	t := otlpTime
	return []proto.Message{
		otlpExport(gauge("a.b", whole(-1, attr("k", "v")), double(0.5)), sum("a_b", deltaSums, double(2, attr("k", "v")))),
		otlpExport(histogram("h", cumulativeSums, &metricspb.HistogramDataPoint{
			TimeUnixNano: t, Count: 3, Sum: proto.Float64(1), Min: proto.Float64(0), Max: proto.Float64(2), BucketCounts: []uint64{1, 2}, ExplicitBounds: []float64{1},
		})),
		otlpExport(exponential("e", &metricspb.ExponentialHistogramDataPoint{
			TimeUnixNano: t, Count: 6, Scale: 3, ZeroCount: 1, ZeroThreshold: 0.1,
			Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: -2, BucketCounts: []uint64{1, 0, 2}},
			Negative: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: 9, BucketCounts: []uint64{2}},
		})),
		otlpExport(&metricspb.Metric{Name: "s", Data: &metricspb.Metric_Summary{Summary: &metricspb.Summary{DataPoints: []*metricspb.SummaryDataPoint{{
			TimeUnixNano: t, Count: 1, Sum: 1, QuantileValues: []*metricspb.SummaryDataPoint_ValueAtQuantile{{Quantile: 0.5, Value: 1}},
		}}}}}),
		otlpExport(gauge("deep", double(1, &commonpb.KeyValue{Key: "k", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{
			Values: []*commonpb.AnyValue{{}, {Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{1}}}},
		}}}}))),
	}
}

// FuzzOTLP holds that whatever is decoded keeps the rules, and that all points are told of.
// Google's decoder takes no more than this one, and what it makes of a message means the same.
func FuzzOTLP(f *testing.F) {
	for _, m := range otlpSeeds() {
		body, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(body)
	}
	d, _ := newTestServer(f)
	decode := func(t *testing.T, body []byte) (tally otlpTally, lines []string, err error) {
		in, err := decodeAny(d, body, func(in *intake, body []byte) (err error) {
			tally, err = in.decodeOTLP(body, false)
			return err
		})
		if err == nil {
			if in.count == 0 && tally.points != tally.skipped {
				t.Fatalf("%+v, but no readings", tally)
			}
			if (tally.rejected > 0) != (in.answer.Rejected > 0) || tally.rejected+tally.skipped > tally.points {
				t.Fatalf("%+v, %d readings rejected", tally, in.answer.Rejected)
			}
			b := checkIntake(t, in)
			for i := range b.Len() {
				r := b.Reading(uint32(i))
				if string(telemetry.AppendTagsKey(nil, r.Tags)) != r.Sensor {
					t.Fatalf("sensor %q", r.Sensor)
				}
				lines = append(lines, linesOf([]telemetry.Reading{r})[0]+" "+strconv.FormatInt(r.Time.UnixMilli(), 10))
			}
		}
		return tally, lines, err
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, err := decode(t, body)
		message := new(metricspb.MetricsData)
		if proto.Unmarshal(body, message) != nil || proto.Size(message) > 1<<20 {
			return
		}
		canonical, merr := proto.Marshal(message)
		require.NoError(t, merr)
		tally, lines, cerr := decode(t, canonical)
		if err == nil && cerr != nil {
			t.Fatalf("the canonical form is refused: %v", cerr)
		}
		if cerr != nil {
			return
		}
		// JSON says the same.
		text, jerr := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(message)
		require.NoError(t, jerr)
		var told otlpTally
		in, jerr := decodeAny(d, text, func(in *intake, body []byte) (err error) {
			told, err = in.decodeOTLP(body, true)
			return err
		})
		if telemetry.KindOf(jerr) == telemetry.TooLarge {
			return
		}
		require.NoError(t, jerr, "%s", text)
		told.first, tally.first = "", ""
		require.Equal(t, tally, told)
		b := in.builder.Batch()
		require.Len(t, lines, b.Len())
		for i := range b.Len() {
			r := b.Reading(uint32(i))
			require.Equal(t, lines[i], linesOf([]telemetry.Reading{r})[0]+" "+strconv.FormatInt(r.Time.UnixMilli(), 10))
		}
	})
}

func FuzzOTLPJSON(f *testing.F) {
	for _, m := range otlpSeeds() {
		body, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(m)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Add([]byte(`{"resourceMetrics":[{"x":1,"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[{"asDouble":"NaN"},{"asInt":"7","exemplars":[{"traceId":"zz"}],"timeUnixNano":null}]}}]}]}]}`))
	d, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := decodeAny(d, body, func(in *intake, body []byte) error {
			_, err := in.decodeOTLP(body, true)
			return err
		})
		if err != nil {
			if k := telemetry.KindOf(err); k != telemetry.Invalid && k != telemetry.TooLarge && k != telemetry.Unavailable {
				t.Fatalf("%v", err)
			}
			return
		}
		checkIntake(t, in)
		// What Google's decoder takes as well means the same.
		message := new(metricspb.MetricsData)
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, message) != nil {
			return
		}
		binary, err := proto.Marshal(message)
		require.NoError(t, err)
		again, err := decodeAny(d, binary, func(in *intake, body []byte) error {
			_, err := in.decodeOTLP(body, false)
			return err
		})
		require.NoError(t, err)
		require.Equal(t, in.answer.Rejected, again.answer.Rejected)
	})
}

// BenchmarkDecodeOTLP decodes exports of 10 metrics for each of 1,000 hosts.
func BenchmarkDecodeOTLP(b *testing.B) {
	var all []*metricspb.Metric
	readings := makeCPU(1000, 1000)
	for f, name := range cpuFields {
		m := gauge("system.cpu." + name)
		for _, r := range readings {
			p := whole(r.values[f])
			for _, tag := range r.tags {
				p.Attributes = append(p.Attributes, attr(tag[0], tag[1]))
			}
			m.GetGauge().DataPoints = append(m.GetGauge().DataPoints, p)
		}
		all = append(all, m)
	}
	message := otlpExport(all...)
	body, err := proto.Marshal(message)
	require.NoError(b, err)
	text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(message)
	require.NoError(b, err)
	b.Run("protobuf", func(b *testing.B) {
		benchDecode(b, len(readings), len(body), func(in *intake) error { _, err := in.decodeOTLP(body, false); return err })
	})
	b.Run("json", func(b *testing.B) {
		benchDecode(b, len(readings), len(text), func(in *intake) error { _, err := in.decodeOTLP(text, true); return err })
	})
}

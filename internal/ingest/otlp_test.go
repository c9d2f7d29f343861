package ingest

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// otlpTime is of all points of these tests, in nanoseconds.
var otlpTime = uint64(arrivalTime.Add(-time.Second).UnixNano())

func attr(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// otlpExport is an export of one resource with these metrics.
func otlpExport(all ...*metricspb.Metric) *collectorpb.ExportMetricsServiceRequest {
	return &collectorpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource:     &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attr("service.name", "shop")}},
		ScopeMetrics: []*metricspb.ScopeMetrics{{Metrics: all}},
	}}}
}

func gauge(name string, points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: points}}}
}

func sum(name string, t metricspb.AggregationTemporality, points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Sum{Sum: &metricspb.Sum{DataPoints: points, AggregationTemporality: t, IsMonotonic: true}}}
}

func double(v float64, attributes ...*commonpb.KeyValue) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{TimeUnixNano: otlpTime, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}, Attributes: attributes}
}

func whole(v int64, attributes ...*commonpb.KeyValue) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{TimeUnixNano: otlpTime, Value: &metricspb.NumberDataPoint_AsInt{AsInt: v}, Attributes: attributes}
}

func histogram(name string, t metricspb.AggregationTemporality, points ...*metricspb.HistogramDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{DataPoints: points, AggregationTemporality: t}}}
}

func exponential(name string, points ...*metricspb.ExponentialHistogramDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{DataPoints: points, AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}}}
}

const (
	deltaSums      = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	cumulativeSums = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
)

// exportHTTP sends an export, in protobuf unless the header says otherwise, and returns the
// status and the answer.
func exportHTTP(t *testing.T, d *Server, export proto.Message, header ...string) (int, *collectorpb.ExportMetricsServiceResponse) {
	t.Helper()
	body, err := proto.Marshal(export)
	require.NoError(t, err)
	w := postMetrics(d, body, append([]string{"Content-Type", mediaProtobuf}, header...)...)
	require.Equal(t, mediaProtobuf, w.Header().Get("Content-Type"))
	response := new(collectorpb.ExportMetricsServiceResponse)
	if w.Code == http.StatusOK {
		require.NoError(t, proto.Unmarshal(w.Body.Bytes(), response))
	}
	return w.Code, response
}

func postMetrics(d *Server, body []byte, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/metrics", bytes.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

// linesOf writes readings as text: sensor, and fields.
func linesOf(readings []telemetry.Reading) []string {
	var all []string
	for _, r := range readings {
		fields := make([]string, 0, len(r.Fields))
		for _, f := range r.Fields {
			v := strconv.FormatInt(f.Value.Int(), 10)
			if f.Value.Kind() == telemetry.Float {
				v = strconv.FormatFloat(f.Value.Float(), 'f', -1, 64)
			}
			fields = append(fields, f.Name+"="+v)
		}
		all = append(all, r.Sensor+" "+strings.Join(fields, ","))
	}
	return all
}

func TestOTLPMapping(t *testing.T) {
	t.Parallel()
	get, post := attr("http.method", "GET"), attr("http.method", "POST")
	for _, c := range []struct {
		name    string
		metrics []*metricspb.Metric
		want    []string
	}{
		{
			"metrics of one attribute set are a reading",
			[]*metricspb.Metric{
				gauge("queue.length", whole(math.MaxInt64, get), whole(2, post)), gauge("load", double(0.5, get), double(1.5, post)),
				sum("requests", cumulativeSums, double(7, get)),
			},
			[]string{
				"http_method=GET,service_name=shop queue_length=9223372036854775807,load=0.5,requests=7",
				"http_method=POST,service_name=shop queue_length=2,load=1.5",
			},
		},
		{
			"deltas are readings of their own",
			[]*metricspb.Metric{gauge("load", double(0.5)), sum("requests", deltaSums, whole(7))},
			[]string{"service_name=shop load=0.5", "_temporality=delta,service_name=shop requests=7"},
		},
		{
			"buckets are cumulative",
			[]*metricspb.Metric{histogram("latency.s", cumulativeSums, &metricspb.HistogramDataPoint{
				TimeUnixNano: otlpTime, Count: 6, Sum: proto.Float64(9.5), Min: proto.Float64(0.1), Max: proto.Float64(4),
				BucketCounts: []uint64{1, 0, 5}, ExplicitBounds: []float64{0.5, 2},
			})},
			[]string{
				"service_name=shop latency_s_count=6,latency_s_sum=9.5,latency_s_min=0.1,latency_s_max=4",
				"le=0.5,service_name=shop latency_s_bucket=1", "le=2,service_name=shop latency_s_bucket=1", "le=+Inf,service_name=shop latency_s_bucket=6",
			},
		},
		{
			"exponential buckets are merged", // of scale 2 to 1: two by two
			[]*metricspb.Metric{exponential("size", &metricspb.ExponentialHistogramDataPoint{
				TimeUnixNano: otlpTime, Count: 11, Scale: 2, ZeroCount: 2,
				Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: -1, BucketCounts: []uint64{0, 1, 2, 3, 0, 0}},
				Negative: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: 4, BucketCounts: []uint64{3}},
			})},
			[]string{
				"service_name=shop size_count=11",
				"le=-2.8284271247461903,service_name=shop size_bucket=0", "le=-2,service_name=shop size_bucket=3", "le=0,service_name=shop size_bucket=5",
				"le=1,service_name=shop size_bucket=5", "le=1.4142135623730951,service_name=shop size_bucket=8", "le=2,service_name=shop size_bucket=11",
				"le=+Inf,service_name=shop size_bucket=11",
			},
		},
		{
			"quantiles",
			[]*metricspb.Metric{{Name: "gc", Data: &metricspb.Metric_Summary{Summary: &metricspb.Summary{DataPoints: []*metricspb.SummaryDataPoint{{
				TimeUnixNano: otlpTime, Count: 3, Sum: 1.5, QuantileValues: []*metricspb.SummaryDataPoint_ValueAtQuantile{{Quantile: 0.5, Value: 0.25}, {Quantile: 1, Value: 1}},
			}}}}}},
			[]string{"service_name=shop gc_count=3,gc_sum=1.5", "quantile=0.5,service_name=shop gc=0.25", "quantile=1,service_name=shop gc=1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			for range 2 { // the series are known the second time
				j.batches = nil
				status, response := exportHTTP(t, d, otlpExport(c.metrics...))
				assert.Equal(t, http.StatusOK, status)
				assert.Nil(t, response.GetPartialSuccess(), response)
				assert.Equal(t, c.want, linesOf(j.readings()))
				assert.EqualValues(t, otlpTime/1e6, j.readings()[0].Time.UnixMilli())
			}
			text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(otlpExport(c.metrics...))
			require.NoError(t, err)
			j.batches = nil
			w := postMetrics(d, text, "Content-Type", "application/json; charset=utf-8")
			assert.Equal(t, "{}", w.Body.String())
			assert.Equal(t, c.want, linesOf(j.readings()), "in JSON")
		})
	}
}

package ingest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelmetric "go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestOpenTelemetrySDK sends what the SDK measures, with its own exporters.
func TestOpenTelemetrySDK(t *testing.T) {
	t.Parallel()
	delta := func(sdk.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }
	headers := map[string]string{"brim-stream": "mem"}
	for name, open := range map[string]func(*testing.T, *Server) (sdk.Exporter, error){
		"http": func(t *testing.T, d *Server) (sdk.Exporter, error) {
			t.Helper()
			s := httptest.NewServer(d.Handler())
			t.Cleanup(s.Close)
			return otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(s.URL+"/v1/metrics"), otlpmetrichttp.WithHeaders(headers),
				otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression), otlpmetrichttp.WithTemporalitySelector(delta))
		},
		"grpc": func(t *testing.T, d *Server) (sdk.Exporter, error) {
			t.Helper()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s, served := d.GRPCServer(nil), make(chan error, 1)
			go func() { served <- s.Serve(GRPCListener(l)) }()
			t.Cleanup(func() {
				assert.NoError(t, s.Close())
				assert.ErrorIs(t, <-served, http.ErrServerClosed)
				d.Wait()
			})
			return otlpmetricgrpc.New(t.Context(), otlpmetricgrpc.WithEndpoint(l.Addr().String()), otlpmetricgrpc.WithInsecure(),
				otlpmetricgrpc.WithHeaders(headers), otlpmetricgrpc.WithCompressor("gzip"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t, func(c *Config) { c.Now = nil })
			exporter, err := open(t, d)
			require.NoError(t, err)
			provider := sdk.NewMeterProvider(
				sdk.WithReader(sdk.NewPeriodicReader(exporter)), sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))),
				sdk.WithView(sdk.NewView(sdk.Instrument{Name: "size"}, sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}})),
			)
			meter := provider.Meter("test")
			requests, err := meter.Int64Counter("requests")
			require.NoError(t, err)
			length, err := meter.Float64Gauge("queue.length")
			require.NoError(t, err)
			latency, err := meter.Float64Histogram("latency", otelmetric.WithExplicitBucketBoundaries(1, 2))
			require.NoError(t, err)
			size, err := meter.Float64Histogram("size")
			require.NoError(t, err)
			path := otelmetric.WithAttributes(attribute.String("http.path", "/"))
			requests.Add(t.Context(), 7, path)
			length.Record(t.Context(), 0.5, path)
			latency.Record(t.Context(), 1.5, path)
			size.Record(t.Context(), 3, path)
			require.NoError(t, provider.Shutdown(t.Context()))

			one := "http_path=/,otel_scope_name=test,service_name=shop "
			want := []string{
				one + "requests=7,queue_length=0.5,latency_count=1,latency_sum=1.5,latency_min=1.5,latency_max=1.5,size_count=1,size_sum=3,size_min=3,size_max=3",
				strings.Replace(one, ",otel", ",le=1,otel", 1) + "latency_bucket=0",
				strings.Replace(one, ",otel", ",le=2,otel", 1) + "latency_bucket=1",
				strings.Replace(one, ",otel", ",le=+Inf,otel", 1) + "latency_bucket=1,size_bucket=1",
				strings.Replace(one, ",otel", ",le=2.8284271247461903,otel", 1) + "size_bucket=0",
				strings.Replace(one, ",otel", ",le=4,otel", 1) + "size_bucket=1",
			}
			if name == "http" { // deltas, but for the gauge
				for i := range want {
					want[i] = "_temporality=delta," + want[i]
				}
				want[0] = strings.Replace(want[0], "queue_length=0.5,", "", 1)
				want = append(want, one+"queue_length=0.5")
			}
			assert.ElementsMatch(t, want, linesOf(bySensor(j.readings())))
			assert.Equal(t, "mem", j.streams()[0])
			assert.Equal(t, telemetry.Stored, j.wants[0])
		})
	}
}

// bySensor makes one reading of those of a sensor: the SDK takes the time of each metric by
// itself, so that they may differ by a millisecond.
func bySensor(readings []telemetry.Reading) (out []telemetry.Reading) {
	for _, r := range readings {
		at := slices.IndexFunc(out, func(other telemetry.Reading) bool { return other.Sensor == r.Sensor })
		if at < 0 {
			out = append(out, r)
			continue
		}
		out[at].Fields = append(out[at].Fields, r.Fields...)
	}
	return out
}

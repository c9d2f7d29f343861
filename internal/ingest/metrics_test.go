package ingest

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestMetricsStartAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	newTestServer(t, func(c *Config) { c.Registerer = registry })
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
	// Statuses of one kind of request: HTTP and MQTT 200 202 207 400 401 403 404 405 406 408 409 413 415 429 500 503 504,
	// line protocol 204 instead of 200 and no 207, remote write no 408 either, OTLP 200 for the last two, gRPC the twelve codes of the table.
	count, err := testutil.GatherAndCount(registry, "brim_ingest_requests_total")
	require.NoError(t, err)
	assert.Equal(t, 2*17+16+15+15+12+12, count)
	count, err = testutil.GatherAndCount(registry, "brim_ingest_rejected_total")
	require.NoError(t, err)
	assert.Equal(t, len(telemetry.Codes()), count)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP brim_ingest_readings_total Readings acknowledged, by protocol.
# TYPE brim_ingest_readings_total counter
brim_ingest_readings_total{protocol="grpc"} 0
brim_ingest_readings_total{protocol="http"} 0
brim_ingest_readings_total{protocol="line"} 0
brim_ingest_readings_total{protocol="mqtt"} 0
brim_ingest_readings_total{protocol="otlp_grpc"} 0
brim_ingest_readings_total{protocol="otlp_http"} 0
brim_ingest_readings_total{protocol="remote_write"} 0
# HELP brim_ingest_repeated_total Requests answered as before, because their idempotency key was known, by protocol.
# TYPE brim_ingest_repeated_total counter
brim_ingest_repeated_total{protocol="grpc"} 0
brim_ingest_repeated_total{protocol="http"} 0
brim_ingest_repeated_total{protocol="line"} 0
brim_ingest_repeated_total{protocol="mqtt"} 0
brim_ingest_repeated_total{protocol="otlp_grpc"} 0
brim_ingest_repeated_total{protocol="otlp_http"} 0
brim_ingest_repeated_total{protocol="remote_write"} 0
`), "brim_ingest_readings_total", "brim_ingest_repeated_total"))
}

func TestMetricsCountWhatWasAnswered(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	post(t, d, "/v1/readings", typeLines, manyLines(3)+"oops\n"+`{"sensorId":"s"}`)
	post(t, d, "/v1/readings", typeLines, manyLines(2))
	post(t, d, "/v1/readings", "text/csv", "")
	serve(t, d, "GET", "/v1/readings")
	serve(t, d, "GET", "/v1/streams") // not a request to write
	post(t, d, "/write", "", "m t=1\nm t=1\nm\n")
	post(t, d, "/write", "", "m t=1\n")
	writeMessage(t, d, &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{pb(func(*telemetrypb.Reading) {}), pb(func(r *telemetrypb.Reading) { r.Fields = nil })}})
	j.refused = []batch.Refused{{Index: 0, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused}}}
	post(t, d, "/v1/readings", typeLines, manyLines(2))
	j.err = errors.New("defect")
	post(t, d, "/v1/readings", typeLines, manyLines(2)+"oops")

	requests := func(protocol, code string) float64 {
		return testutil.ToFloat64(d.metrics.requests.WithLabelValues(protocol, code))
	}
	assert.EqualValues(t, 1, requests("http", "200"))
	assert.EqualValues(t, 2, requests("http", "207"))
	assert.EqualValues(t, 1, requests("http", "415"))
	assert.EqualValues(t, 1, requests("http", "405"))
	assert.EqualValues(t, 1, requests("http", "500"))
	assert.EqualValues(t, 1, requests("line", "204"))
	assert.EqualValues(t, 1, requests("line", "400"))
	assert.EqualValues(t, 1, requests("grpc", "OK"))
	assert.EqualValues(t, 6, testutil.ToFloat64(d.metrics.readings.WithLabelValues("http")))
	assert.EqualValues(t, 3, testutil.ToFloat64(d.metrics.readings.WithLabelValues("line")))
	assert.EqualValues(t, 1, testutil.ToFloat64(d.metrics.readings.WithLabelValues("grpc")))
	rejected := func(code telemetry.Code) float64 {
		return testutil.ToFloat64(d.metrics.rejected.WithLabelValues(string(code)))
	}
	assert.EqualValues(t, 2, rejected(telemetry.Malformed), "one of them in line protocol; those of a failed request do not count")
	assert.EqualValues(t, 2, rejected(telemetry.FieldsMissing))
	assert.EqualValues(t, 1, rejected(telemetry.StoreRefused))
	assert.Equal(t, 7, testutil.CollectAndCount(d.metrics.seconds))
}

func TestOnlyFaultsOfOursAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d, j := newTestServer(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	post(t, d, "/v1/readings", typeLines, "oops\n"+manyLines(1))
	post(t, d, "/v1/readings", "text/csv", "")
	j.err = &telemetry.Error{Kind: telemetry.Unavailable, Code: "full"}
	post(t, d, "/v1/readings", typeLines, manyLines(1))
	assert.Empty(t, log.String())
	j.err = errors.New("defect")
	w := post(t, d, "/v1/readings", typeLines, manyLines(1))
	assert.Equal(t, 500, w.Code)
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	assert.Contains(t, log.String(), "level=ERROR")
	assert.Contains(t, log.String(), "defect")
}

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// memoryFlags configure a daemon without MongoDB.
func memoryFlags(t *testing.T) map[string]string {
	return map[string]string{
		"storage": "memory", "http-addr": "127.0.0.1:0", "grpc-addr": "127.0.0.1:0", "admin-addr": "127.0.0.1:0",
		"flush-interval": "10ms", "data-dir": t.TempDir(),
	}
}

// newTestDaemon returns a daemon in this process that listens but does not run
// yet. It is stopped after the test.
func newTestDaemon(t *testing.T, flags map[string]string) *daemon {
	t.Helper()
	d, err := newDaemon(loadSettings(t, Sources{Flags: flags}), slog.New(slog.DiscardHandler), Options{Stderr: io.Discard, Version: VersionOf("")})
	require.NoError(t, err)
	_, err = d.listen(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		if !d.draining.Load() {
			assert.NoError(t, d.stop(context.Background()))
		}
	})
	return d
}

// A request may wait for MongoDB for --stored-timeout, and still gets its answer.
func TestAnswersAfterTheStoredTimeout(t *testing.T) {
	t.Parallel()
	flags := memoryFlags(t)
	flags["stored-timeout"] = "1h"
	assert.Greater(t, newTestDaemon(t, flags).http.WriteTimeout, time.Hour)
}

// startRunning runs the daemon until the test ends, and returns once it accepts
// readings.
func startRunning(t *testing.T, d *daemon) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { code, _ := d.get(t, "/readyz"); return code == http.StatusOK }, patience, 5*time.Millisecond)
}

// get sends a request to the admin listener.
func (d *daemon) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, "http://"+d.listeners.admin.Addr().String()+path, "")
}

// post sends a body to the data listener.
func (d *daemon) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	return request(t, http.MethodPost, "http://"+d.listeners.http.Addr().String()+path, body)
}

// request uses a separate connection, so that none is left open.
func request(t testing.TB, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(answer)
}

func TestGRPCHealthFollowsTheStart(t *testing.T) {
	t.Parallel()
	d := newTestDaemon(t, memoryFlags(t))
	conn, err := grpc.NewClient(d.listeners.grpc.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	status := func() healthpb.HealthCheckResponse_ServingStatus {
		response, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		return response.GetStatus()
	}
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, status())
	startRunning(t, d)
	require.Eventually(t, func() bool { return status() == healthpb.HealthCheckResponse_SERVING }, patience, 5*time.Millisecond)
}

func TestRequestsAreRefusedUntilStorageIsOpen(t *testing.T) {
	t.Parallel()
	d := newTestDaemon(t, memoryFlags(t))
	code, body := d.post(t, "/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"starting"`)
	code, body = request(t, http.MethodGet, "http://"+d.listeners.http.Addr().String()+"/v1/sensors/s/readings", "")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"starting"`)
	code, body = d.get(t, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "the daemon is starting")
	code, _ = d.get(t, "/healthz")
	assert.Equal(t, http.StatusOK, code)
	assert.ErrorIs(t, d.flush(t.Context()), errNotReady)

	startRunning(t, d)
	code, _ = d.post(t, "/v1/readings?ack=stored", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusOK, code)
	code, body = request(t, http.MethodGet, "http://"+d.listeners.http.Addr().String()+"/v1/sensors/s/readings", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, `"fields":{"t":1}`)
}

func TestStoppingDaemonIsNotReady(t *testing.T) {
	t.Parallel()
	d := newTestDaemon(t, memoryFlags(t))
	startRunning(t, d)
	<-d.storageOpen // a stop comes after run, which would otherwise open the storage behind it
	d.draining.Store(true)
	d.ingest.Stop()
	code, body := d.get(t, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "the daemon is stopping")
	code, body = d.post(t, "/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"stopping"`)
	require.NoError(t, d.stop(context.Background()))
	_, err := net.DialTimeout("tcp", d.listeners.http.Addr().String(), time.Second)
	assert.Error(t, err)
}

func TestMetricsLint(t *testing.T) {
	t.Parallel()
	d := newTestDaemon(t, memoryFlags(t))
	startRunning(t, d)
	for range 3 {
		code, _ := d.post(t, "/v1/readings?ack=stored", `[{"sensorId":"s","fields":{"t":1}},{"sensorId":"","fields":{"t":1}}]`)
		require.Equal(t, http.StatusMultiStatus, code)
	}
	_, metrics := d.get(t, "/metrics")
	for _, line := range []string{
		`brim_ingest_requests_total{code="207",protocol="http"} 3`,
		`brim_ingest_readings_total{protocol="http"} 3`,
		`brim_ingest_rejected_total{reason="sensor_missing"} 3`,
		`brim_queue_readings 0`,
		`brim_store_update_readings_sum 3`,
		`brim_store_active_buckets 1`,
	} {
		assert.Contains(t, metrics, "\n"+line+"\n")
	}
	assert.Regexp(t, `\nbrim_build_info\{goversion="go1\..*\} 1\n`, metrics)
	assert.Contains(t, metrics, "\ngo_goroutines ")
	assert.Contains(t, metrics, "\nprocess_resident_memory_bytes ")

	problems, err := testutil.GatherAndLint(d.registry)
	require.NoError(t, err)
	var ours []promlint.Problem
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "brim_") {
			ours = append(ours, p)
		}
	}
	assert.Empty(t, ours)
}

func TestStatusWhileRunning(t *testing.T) {
	t.Parallel()
	flags := memoryFlags(t)
	flags["retention"], flags["stream"] = "30d", "plant"
	d := newTestDaemon(t, flags)
	_, body := d.get(t, "/status")
	var s Status
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	assert.False(t, s.Ready)
	assert.Nil(t, s.Queue)

	startRunning(t, d)
	require.Eventually(t, func() bool { return d.storage.Load() != nil }, patience, time.Millisecond,
		"the daemon is ready as soon as its journal is; its storage may come later")
	_, body = d.get(t, "/status")
	s = Status{}
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	assert.True(t, s.Ready)
	assert.Equal(t, d.session, s.Session)
	assert.Equal(t, d.listeners.grpc.Addr().String(), s.Addresses.GRPC)
	assert.Equal(t, []StreamStatus{{
		Name: "plant", Default: true, Storage: "memory", Granularity: "5m", GranularitySeconds: 300, RetentionSeconds: 30 * 86400, Ready: true,
		FlushIntervalSeconds: 0.01, FlushMaxSeconds: 300, FlushBudgetPercent: 2, MergeReadings: 60,
	}}, s.Streams)
	_, lanes := d.cfg.queueParts(d.memory)
	assert.Equal(t, lanes, s.Queue.MaxBytes)
	assert.Nil(t, s.MongoDB)
}

func TestProgressGoesToLogWithoutTerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	d := &daemon{log: newLogger(&b, logLevel("info"), "json"), stderr: &b}
	n, err := d.progress().Write([]byte("downloading\n\n  half of it\n"))
	require.NoError(t, err)
	assert.Equal(t, 26, n)
	assert.Regexp(t, `"step":"downloading"\}\n.*"step":"half of it"\}\n$`, b.String())
}

func TestLogLevelAndFormat(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	newLogger(&b, logLevel("warn"), "json").Info("not this")
	newLogger(&b, logLevel("warn"), "json").Warn("this", "n", 1)
	var line map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &line))
	assert.Equal(t, "this", line["msg"])
	b.Reset()
	newLogger(&b, logLevel("debug"), "text").Debug("words here")
	assert.Contains(t, b.String(), `level=DEBUG msg="words here"`)
}

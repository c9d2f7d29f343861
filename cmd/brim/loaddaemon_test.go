package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/report"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// TestStoreByFillCoversOneStream of the two that the daemon writes.
func TestStoreByFillCoversOneStream(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	took := prometheus.NewHistogramVec(scrape.WithNative(prometheus.HistogramOpts{Name: "brim_store_write_seconds", Help: "Took."}), []string{"stream", "fill"})
	require.NoError(t, reg.Register(took))
	serve := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /flush", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			took.WithLabelValues("readings", "30-40").Observe(0.0009)
		}
		for range 1000 {
			took.WithLabelValues("machines", "30-40").Observe(0.9)
		}
		serve.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, admin := &caller{}, strings.TrimPrefix(server.URL, "http://")
	before, err := c.metrics(t.Context(), admin)
	require.NoError(t, err)
	rows, err := c.storeByFill(t.Context(), admin, "readings", before)
	require.NoError(t, err)
	require.Len(t, rows, 10)
	for i, row := range rows {
		if i != 3 {
			assert.Zero(t, row.Count)
		}
	}
	assert.EqualValues(t, 10, rows[3].Count)
	assert.LessOrEqual(t, rows[3].P99, 0.001)
}

// TestSilentAdminListener accepts connections and never answers.
func TestSilentAdminListener(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := (&caller{}).askStatus(ctx, address)
	assert.EqualError(t, err, "ask http://"+address+"/status (--admin): no answer came in time")
}

// aDaemonsSides are a daemon's listeners: HTTP only answers what a run asks, and gRPC returns
// arbitrary bytes.
func aDaemonsSides(t *testing.T) (httpSide, admin, grpcSide string) {
	t.Helper()
	var f fakeTarget
	httpSide = strings.TrimPrefix(f.serve(t), "http://")
	daemon := serveGRPC(t)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	admin = strings.TrimPrefix(server.URL, "http://")
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"addresses":{"http":%q,"grpc":%q,"admin":%q}}`, httpSide, daemon, admin)
	})
	mux.HandleFunc("POST /flush", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	return httpSide, admin, daemon
}

// serveGRPC serves gRPC without any service.
func serveGRPC(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-served)
	})
	return listener.Addr().String()
}

// TestLoadReportsAWrongListener passes each listener where another one is expected.
func TestLoadReportsAWrongListener(t *testing.T) {
	t.Parallel()
	httpSide, admin, grpcSide := aDaemonsSides(t)
	other, _, otherGRPC := aDaemonsSides(t)
	for name, row := range map[string]struct {
		args []string
		want []string
		code int
	}{
		"admin of another daemon": {[]string{"--target", "http://" + other, "--admin", admin},
			[]string{"--admin: " + admin + " is the admin listener of another daemon", httpSide, "--target is http://" + other}, exitUsage},
		"admin of another, gRPC": {[]string{"--target", "grpc://" + otherGRPC, "--admin", admin}, []string{"another daemon", grpcSide, otherGRPC}, exitUsage},
		"http of another":        {[]string{"--target", "grpc://" + grpcSide, "--http", "http://" + other, "--admin", admin}, []string{"another daemon", "--http is http://" + other}, exitUsage},
		"target is admin":        {[]string{"--target", admin}, []string{"--target: ", "404", "admin listener", localDaemon}, exitFailed},
		"target is gRPC":         {[]string{"--target", "http://" + grpcSide}, []string{"--target: ", "does not speak HTTP", "grpc://HOST:PORT"}, exitFailed},
		"gRPC target is HTTP":    {[]string{"--target", "grpc://" + httpSide, "--http", "http://" + httpSide}, []string{"--target: ", "does not speak gRPC", "http://HOST:PORT"}, exitFailed},
		"admin is HTTP":          {[]string{"--target", "http://" + httpSide, "--admin", httpSide}, []string{"--admin: ", "404 Not Found without saying why", "127.0.0.1:8432"}, exitFailed},
		"admin is gRPC":          {[]string{"--target", "http://" + httpSide, "--admin", grpcSide}, []string{"--admin: ", "does not speak HTTP", "127.0.0.1:8432"}, exitFailed},
	} {
		got := runBrim(t, nil, append([]string{"load", "--duration", "100ms"}, row.args...)...)
		for _, want := range row.want {
			assert.ErrorContains(t, got.err, want, name)
		}
		assert.Equal(t, row.code, got.code, name)
	}
	for _, body := range []string{"<html>", "{}"} {
		foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(foreign.Close)
		got := runBrim(t, nil, "load", "--duration", "100ms", "--target", foreign.URL)
		assert.ErrorContains(t, got.err, "not a Brim daemon's")
	}
	got := runBrim(t, nil, "load", "--duration", "100ms", "--target", httpSide, "--admin", "http://"+admin+"/")
	assert.NoError(t, got.err, "without a scheme, and with one")
}

func TestOtherDaemonIsRecognized(t *testing.T) {
	t.Parallel()
	at := &daemon.Addresses{HTTP: "0.0.0.0:8430", GRPC: "[::]:8431", Admin: "127.0.0.1:8432"}
	for _, row := range []struct {
		target, admin string
		other         bool
	}{
		{"http://127.0.0.1:8430", "127.0.0.1:8432", false},
		{"http://localhost:8430", ":8432", false},
		{"grpc://localhost:8431", "localhost:8432", false},
		{"http://localhost:9430", "127.0.0.1:8432", true},
		{"http://0.0.0.0", "[::1]:8432", true},
		{"grpc://127.0.0.1:8430", "127.0.0.1:8432", true},
		{"http://brim.example:9430", "127.0.0.1:8432", false},
		{"http://127.0.0.1:9430", "192.0.2.1:8432", false},
		{"http://127.0.0.1:18430", "127.0.0.1:18432", false}, // forwarded
	} {
		o := &loadOptions{target: row.target, admin: row.admin}
		assert.Equal(t, row.other, o.checkSameDaemon(at) != nil, row)
	}
}

// TestLoadWarnsAboutLostReadings, since the exit status is 0.
func TestLoadWarnsAboutLostReadings(t *testing.T) {
	t.Parallel()
	o := &loadOptions{}
	var out strings.Builder
	o.warnLost(&out, &load.Result{Sent: 150, Acked: 100, Failed: 50, Dropped: 50})
	assert.Equal(t, "100 of 200 readings that were due failed or were dropped, but the exit status is 0: --fail-if 'failed>0' --fail-if 'dropped>0' would make it 1\n", out.String())
	out.Reset()
	o.warnLost(&out, &load.Result{Sent: 150, Acked: 150})
	o.failIf = make([]report.Condition, 1)
	o.warnLost(&out, &load.Result{Sent: 150, Failed: 50})
	assert.Empty(t, out.String(), "nothing was lost, or --fail-if says what may be")
}

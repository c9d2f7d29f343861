package faulttest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// TestSCALENginx runs the configuration in deploy/balancer with four daemons: a
// route keeps its daemon, over HTTP and gRPC. When that is gone, the others take
// its readings, except requests with a key, which wait until it is back.
func TestSCALENginx(t *testing.T) {
	t.Parallel()
	program := brimtest.Program(t, "nginx")
	daemons := make([]*daemon, 4)
	for i := range daemons {
		daemons[i] = newDaemon(t, "--storage", "memory").start()
	}
	for _, d := range daemons {
		d.ready()
	}
	n := startNginx(t, program, daemons)

	accepted := func() (readings []float64) {
		for _, d := range daemons {
			readings = append(readings, d.metric("brim_ingest_readings_total"))
		}
		return readings
	}
	const routes = 40
	for range 2 {
		for i := range routes {
			n.post(fmt.Sprintf("s-%d", i), "", http.StatusOK)
		}
	}
	for _, count := range accepted() {
		assert.Zero(t, int(count)%2, "a route keeps its daemon")
	}
	placeOf := func(route string) (place int) {
		before := accepted()
		n.post(route, "", http.StatusOK)
		for i, count := range accepted() {
			if count > before[i] {
				place = i
			}
		}
		return place
	}
	const lost = "s-0"
	gone, other := placeOf(lost), ""
	for i := 1; i < routes && other == ""; i++ {
		if route := fmt.Sprintf("s-%d", i); placeOf(route) != gone {
			other = route
		}
	}
	require.NotEmpty(t, other, "all routes lead to one daemon")
	const zero = "0" // a key like any other, but false for nginx
	assert.Empty(t, n.post(lost, zero, http.StatusOK).Get("Idempotent-Replayed"))
	assert.Equal(t, "true", n.post(lost, zero, http.StatusOK).Get("Idempotent-Replayed"))
	assert.Equal(t, codes.OK, n.write("brim-route", lost))
	n.stream(lost)

	daemons[gone].kill()
	n.post(lost, "", http.StatusOK)
	n.post(lost, zero, http.StatusBadGateway)
	n.post(other, "k", http.StatusOK)
	// HTTP and gRPC are distributed separately: some routes lose one of the two.
	outcomes := make(map[codes.Code]int)
	for i := range routes {
		route := fmt.Sprintf("s-%d", i)
		assert.Equal(t, codes.OK, n.write("brim-route", route))
		outcomes[n.write("brim-route", route, "idempotency-key", zero)]++
	}
	assert.Positive(t, outcomes[codes.OK])
	assert.Positive(t, outcomes[codes.Unavailable], "what has a key goes to its daemon or to none")
	assert.Len(t, outcomes, 2)
	daemons[gone].start().ready()
	assert.Equal(t, "true", n.post(lost, zero, http.StatusOK).Get("Idempotent-Replayed"), "the journal has the key")
}

// nginx is a running nginx.
type nginx struct {
	t    testing.TB
	http string // URL
	grpc *grpc.ClientConn
}

// startNginx starts nginx with the published configuration, but with its own
// ports and these daemons.
func startNginx(t testing.TB, program string, daemons []*daemon) *nginx {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "balancer", "nginx.conf"))
	require.NoError(t, err)
	address := func() string { return "127.0.0.1:" + strconv.Itoa(mongodtest.FreePort(t)) }
	httpAddr, grpcAddr := address(), address()
	replace := []string{"listen 8430;", "listen " + httpAddr + ";", "listen 8431 ", "listen " + grpcAddr + " "}
	for i, d := range daemons {
		replace = append(replace, fmt.Sprintf("brim-%d:8430", i+1), strings.TrimPrefix(d.HTTP, "http://"), fmt.Sprintf("brim-%d:8431", i+1), d.GRPC)
	}
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, string(text), replace[i])
	}
	dir := t.TempDir()
	site := filepath.Join(dir, "brim.conf")
	require.NoError(t, os.WriteFile(site, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600))
	var temps strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temps, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	whole := fmt.Sprintf("daemon off; master_process off; pid %s/pid; error_log %s/error.log;\nevents {}\nhttp { access_log off;\n%sinclude %s;\n}\n", dir, dir, temps.String(), site)
	main := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(main, []byte(whole), 0o600))
	cmd := exec.Command(program, "-c", main, "-e", filepath.Join(dir, "error.log"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = endsWithTest()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	n := &nginx{t: t, http: "http://" + httpAddr, grpc: conn}
	require.Eventually(t, func() bool {
		resp, err := http.Get(n.http + "/ping")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusNoContent
	}, patience, 20*time.Millisecond, "nginx does not answer")
	return n
}

// post sends a reading by a route, with a key unless that is empty, and checks the
// status.
func (n *nginx) post(route, key string, want int) http.Header {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := fmt.Sprintf(`{"sensorId":%q,"fields":{"t":1}}`, route)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.http+"/v1/readings", strings.NewReader(body))
	require.NoError(n.t, err)
	req.Close = true
	req.Header.Set("Brim-Route", route)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(n.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(n.t, err)
	require.Equal(n.t, want, resp.StatusCode, "%s %s", route, answer)
	return resp.Header
}

// write sends a reading over gRPC with this metadata, and returns the status.
func (n *nginx) write(with ...string) codes.Code {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), with...), patience)
	defer cancel()
	resp, err := telemetrypb.NewIngestServiceClient(n.grpc).Write(ctx, oneReading(""))
	if err == nil {
		assert.EqualValues(n.t, 1, resp.GetAccepted())
	}
	return status.Code(err)
}

// stream sends more in one call than nginx allows in a request by default.
func (n *nginx) stream(route string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "brim-route", route), patience)
	defer cancel()
	calls, err := telemetrypb.NewIngestServiceClient(n.grpc).WriteStream(ctx)
	require.NoError(n.t, err)
	large := oneReading(strings.Repeat("x", 1000))
	for range 999 {
		large.Readings = append(large.Readings, large.Readings[0])
	}
	for range 3 {
		require.NoError(n.t, calls.Send(large))
		resp, err := calls.Recv()
		require.NoError(n.t, err)
		require.EqualValues(n.t, 1000, resp.GetAccepted())
	}
	require.NoError(n.t, calls.CloseSend())
	_, err = calls.Recv()
	require.ErrorIs(n.t, err, io.EOF)
}

// oneReading has a text in addition to its number.
func oneReading(text string) *telemetrypb.WriteRequest {
	return &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{{SensorId: "over-grpc", Fields: []*telemetrypb.Field{
		{Name: "t", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 1}},
		{Name: "text", Value: &telemetrypb.Field_StringValue{StringValue: text}},
	}}}}
}

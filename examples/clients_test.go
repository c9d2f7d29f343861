package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	brimtest.Program(t, "curl")
	d := startDaemon(t)
	out := d.run(t, "sh", "curl/send.sh")
	assert.Equal(t, 3, strings.Count(out, `{"accepted":1,"rejected":0,"ack":"journaled","errors":[]}`), out)
	assert.Contains(t, out, `{"accepted":3,"rejected":0,"ack":"journaled","errors":[]}`)
	assert.Contains(t, out, "read back\n"+`{"sensorId":"curl-5",`)
	assert.Len(t, d.readings(t, "curl-5"), 1, "it was sent twice")
}

func TestPythonWithoutLibraries(t *testing.T) {
	t.Parallel()
	path, d := python(t), startDaemon(t)
	assert.Equal(t, "1000 accepted, journaled\n1000 accepted, journaled\n", d.run(t, path, "python/send.py", "http://"+d.http))
	assert.Len(t, d.readings(t, "python-3"), 100)
}

func TestInfluxDBLibraries(t *testing.T) {
	t.Parallel()
	path, d := python(t, "influxdb", "influxdb_client"), startDaemon(t)
	host, port, _ := strings.Cut(d.http, ":")
	assert.Equal(t, "1000 sent\n", d.run(t, path, "python/influxdb2.py", "http://"+d.http))
	assert.Equal(t, "1000 sent\n", d.run(t, path, "python/influxdb1.py", host, port))
	assert.Len(t, d.readings(t, "influx2,site=s3"), 100)
	assert.Len(t, d.readings(t, "influx1,site=s3"), 100)
}

func TestGRPCFromPython(t *testing.T) {
	t.Parallel()
	path, d := python(t, "grpc", "grpc_tools.protoc"), startDaemon(t)
	out := t.TempDir()
	d.run(t, path, "-m", "grpc_tools.protoc", "-I", "../pkg/telemetrypb", "--python_out="+out, "--grpc_python_out="+out, "brim/v1/ingest.proto")
	cmd := exec.CommandContext(t.Context(), path, "python/grpc_stream.py", d.grpc)
	cmd.Env = d.env("PYTHONPATH=" + out)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	assert.Equal(t, "1000 accepted\n1000 accepted\n", string(said))
	assert.Len(t, d.readings(t, "grpc-7"), 100)
}

// TestOpenTelemetryApplication runs the application of docs/opentelemetry.md.
func TestOpenTelemetryApplication(t *testing.T) {
	t.Parallel()
	path, d := python(t, "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), startDaemon(t)
	document, err := os.ReadFile("../docs/opentelemetry.md")
	require.NoError(t, err)
	_, program, _ := strings.Cut(string(document), "app.py <<'END'\n")
	program, _, found := strings.Cut(program, "END\n")
	require.True(t, found)
	require.Contains(t, program, "127.0.0.1:8430")
	cmd := exec.CommandContext(t.Context(), path, "-c", strings.Replace(program, "127.0.0.1:8430", d.http, 1)) //nolint:gosec // our document
	cmd.Dir, cmd.Env = t.TempDir(), d.env("OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20"+d.token)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	assert.Empty(t, string(said))
	all := d.readings(t, "otel_scope_name=shop,service_name=shop")
	require.NotEmpty(t, all)
	assert.Contains(t, all[len(all)-1].Fields, telemetry.Field{Name: "orders", Value: telemetry.IntValue(50)})
}

func TestGateway(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	gateway := filepath.Join(t.TempDir(), "gateway")
	d.run(t, "go", "build", "-o", gateway, "./go")
	for _, address := range []string{"http://" + d.http, "grpc://" + d.grpc} {
		cmd := exec.CommandContext(t.Context(), gateway, address)
		cmd.Env = d.env()
		cmd.Stdin = strings.NewReader(strings.Repeat("go-1 t 1.5\ngo-2 t 2\n", 500) + "nonsense\n" + "go-3 $t 1\n")
		var out bytes.Buffer
		cmd.Stdout = &out
		require.NoError(t, cmd.Run())
		assert.Equal(t, "1000 delivered, 1 refused, 0 lost\n", out.String())
	}
	assert.Len(t, d.readings(t, "go-2"), 1000)
}

// TestDeviceKeepsReadingsWhileThereIsNoDaemon runs the part of the example for an
// ESP32 that needs no such board.
func TestDeviceKeepsReadingsWhileThereIsNoDaemon(t *testing.T) {
	t.Parallel()
	for _, interpreter := range []string{"python3", "micropython"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			path, d := brimtest.Program(t, interpreter), startLasting(t)
			host, port, _ := strings.Cut(d.http, ":")
			d.Stop()
			code, err := filepath.Abs("esp32/desk.py")
			require.NoError(t, err)
			cmd := exec.Command(path, code, host, port, d.token, "300")
			cmd.Env = d.env("PYTHONUNBUFFERED=1")
			device := brimtest.Start(t, cmd, syscall.SIGKILL)
			device.Await("an attempt", func() bool { return strings.Contains(device.Logged(), "later: no answer") })
			d.start(t)
			assert.Equal(t, 0, device.Wait(), device.Logged())
			assert.Contains(t, device.Logged(), "300 delivered, 0 refused, 0 dropped")
			assert.Len(t, d.readings(t, "esp32-desk"), 300)
		})
	}
}

// TestTelegrafDeliversAfterAnOutage has an agent that counts on while the daemon is
// away.
func TestTelegrafDeliversAfterAnOutage(t *testing.T) {
	t.Parallel()
	path, d := brimtest.Program(t, "telegraf"), startLasting(t)
	dir := t.TempDir()
	counter, config := filepath.Join(dir, "count.sh"), filepath.Join(dir, "telegraf.conf")
	require.NoError(t, os.WriteFile(counter, []byte("cd "+dir+"\nn=$(cat n 2>/dev/null || echo 0)\necho $((n+1)) > n\necho count,site=north n=${n}i\n"), 0o600))
	text, err := os.ReadFile("telegraf/telegraf.conf")
	require.NoError(t, err)
	input := "[[inputs.exec]]\n  commands = [\"sh " + counter + "\"]\n  data_format = \"influx\""
	quick := strings.NewReplacer(`"10s"`, `"200ms"`, `"2s"`, `"0s"`, "omit_hostname = false", "omit_hostname = true", "[[inputs.cpu]]", input).Replace(string(text))
	require.NoError(t, os.WriteFile(config, []byte(quick), 0o600))
	cmd := exec.Command(path, "--config", config)
	cmd.Env = d.env()
	agent := brimtest.Start(t, cmd, syscall.SIGKILL)
	const sensor = "count,site=north"
	agent.Await("readings", func() bool { return len(d.readings(t, sensor)) > 2 })
	d.Stop()
	agent.Await("attempts", func() bool { return strings.Count(agent.Logged(), "connection refused") >= 5 })
	d.start(t)
	before := len(d.readings(t, sensor))
	agent.Await("what was kept", func() bool { return len(d.readings(t, sensor)) >= before+5 })
	assert.Equal(t, 0, agent.Stop())
	for i, r := range d.readings(t, sensor) {
		require.Equal(t, telemetry.IntValue(int64(i)), r.Fields[0].Value, "none is missing, and none is there twice")
	}
}

func TestWhatTheGoClientWroteIsReadBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	start := time.Now().Add(-time.Hour).Truncate(time.Hour).UTC()
	for name, c := range map[string]*client.Client{"http": d.client(t, "http://"+d.http), "grpc": d.client(t, "grpc://"+d.grpc)} {
		var sent []telemetry.Reading
		for i := range 12_000 {
			sent = append(sent, telemetry.Reading{
				Sensor: name, Time: start.Add(time.Duration(i) * 100 * time.Millisecond),
				Fields: []telemetry.Field{{Name: "i", Value: telemetry.IntValue(int64(i))}, {Name: "t", Value: telemetry.FloatValue(float64(i) / 4)}},
				Tags:   []telemetry.Tag{{Name: "site", Value: "north"}},
			})
		}
		for _, part := range [][]telemetry.Reading{sent[:6000], sent[6000:]} {
			request := client.Request{Readings: part, Ack: telemetry.Stored, Key: name + part[0].Time.String()}
			for again := range 2 {
				result, err := c.Send(t.Context(), request)
				require.NoError(t, err)
				assert.Equal(t, client.Result{Accepted: 6000, Ack: telemetry.Stored, Attempts: 1, Replayed: again > 0, Address: result.Address}, result)
			}
			request.Readings = part[1:]
			_, err := c.Send(t.Context(), request)
			assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err))
		}
		assert.Equal(t, sent, d.readings(t, name))
	}
	_, err := d.withToken("wrong").client(t, "grpc://"+d.grpc).Write(t.Context(), telemetry.Reading{Sensor: "s"})
	assert.Equal(t, telemetry.Unauthenticated, telemetry.KindOf(err))
}

// TestABatcherLosesNothingWhenTheDaemonIsKilled has one that is killed and comes back,
// again and again, while readings are added.
func TestABatcherLosesNothingWhenTheDaemonIsKilled(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			d := startLasting(t)
			address := "http://" + d.http
			if protocol == "grpc" {
				address = "grpc://" + d.grpc
			}
			b, err := d.client(t, address).NewBatcher(client.BatcherConfig{MaxAge: 20 * time.Millisecond, MaxReadings: 50})
			require.NoError(t, err)
			start := time.Now().Truncate(time.Minute).Add(-time.Minute)
			for round := range 3 {
				for i := range 500 {
					n := 500*round + i
					require.NoError(t, b.Add(t.Context(), telemetry.Reading{
						Sensor: "s", Time: start.Add(time.Duration(n) * time.Millisecond), Fields: []telemetry.Field{{Name: "n", Value: telemetry.IntValue(int64(n))}},
					}))
				}
				d.Kill()
				d.start(t)
			}
			require.NoError(t, b.Close(t.Context()))
			assert.Equal(t, int64(1500), b.Stats().Delivered)
			stored := d.readings(t, "s")
			require.Len(t, stored, 1500)
			for i, r := range stored {
				require.Equal(t, telemetry.IntValue(int64(i)), r.Fields[0].Value, "none is missing, and none is there twice")
			}
		})
	}
}

package promapi_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// BenchmarkRemoteWrite sends the same requests, an hour of scrapes of two machines, to a
// Brim, until MongoDB has them, and to a Prometheus. One run is enough: -benchtime 1x.
func BenchmarkRemoteWrite(b *testing.B) {
	all := histories(b, readPage(b))
	bodies := slices.Collect(writeRequests(all))
	samples := 0
	for _, h := range all {
		samples += len(h.points)
	}
	dir := b.TempDir()
	start := func(cmd *exec.Cmd) *brimtest.Process {
		cmd.Env = brimtest.Env()
		return brimtest.Start(b, cmd, syscall.SIGTERM)
	}
	measure := func(b *testing.B, p *brimtest.Process, url string, finish func()) {
		b.Helper()
		before, err := machine.CPU(p.Cmd.Process.Pid)
		require.NoError(b, err)
		began := time.Now()
		for range b.N {
			for _, body := range bodies {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
				require.NoError(b, err)
				req.Header = http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}}
				resp, err := http.DefaultClient.Do(req)
				require.NoError(b, err)
				require.Equal(b, http.StatusNoContent, resp.StatusCode)
				require.NoError(b, resp.Body.Close())
			}
		}
		n := float64(b.N * samples)
		b.ReportMetric(n/time.Since(began).Seconds(), "samples/s")
		finish()
		after, err := machine.CPU(p.Cmd.Process.Pid)
		require.NoError(b, err)
		b.ReportMetric(float64((after-before).Nanoseconds())/n, "CPU-ns/sample")
	}
	b.Run("prometheus", func(b *testing.B) {
		require.NoError(b, os.WriteFile(filepath.Join(dir, "empty.yml"), nil, 0o600))
		address := freeAddress(b)
		p := start(exec.CommandContext(b.Context(), brimtest.Program(b, "prometheus"), "--config.file="+filepath.Join(dir, "empty.yml"), "--storage.tsdb.path="+filepath.Join(dir, "prometheus"), //nolint:gosec // a program of the machine
			"--web.enable-remote-write-receiver", "--web.listen-address="+address, "--log.level=error"))
		p.Await("readiness", func() bool {
			code, _, err := brimtest.Ask(http.MethodGet, "http://"+address+"/-/ready", "")
			return err == nil && code == http.StatusOK
		})
		measure(b, p, "http://"+address+"/api/v1/write", func() {})
	})
	b.Run("brim", func(b *testing.B) {
		p := start(exec.CommandContext(b.Context(), binary.Path(b), "serve", "--data-dir", filepath.Join(dir, "data"), "--mongo-uri", mongodtest.URI(b), "--database", mongodtest.Database(b).Name(), //nolint:gosec // brim itself
			"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json", "--granularity", "1h"))
		addresses := p.AwaitLog("listening")
		p.AwaitLog("ready")
		measure(b, p, fmt.Sprintf("http://%v/api/v1/write", addresses["http"]), func() {
			code, answer, err := brimtest.Ask(http.MethodPost, fmt.Sprintf("http://%v/flush", addresses["admin"]), "")
			require.NoError(b, err)
			require.Equal(b, http.StatusOK, code, answer)
		})
	})
}

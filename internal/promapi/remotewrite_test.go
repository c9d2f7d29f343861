package promapi_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A fleet is a Prometheus that scrapes a node exporter and writes to a Brim; each can be
// restarted.
type fleet struct {
	t     *testing.T
	dir   string
	every time.Duration // between scrapes

	prometheusAddress, brimAddress string
	prometheus, brim               *brimtest.Process
	brimArgs                       []string
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(mongodtest.FreePort(t)))
}

// startFleet starts all three programs.
func startFleet(t *testing.T, every time.Duration) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), every: every, prometheusAddress: freeAddress(t), brimAddress: freeAddress(t)}
	exporter := freeAddress(t)
	brimtest.Start(t, exec.CommandContext(t.Context(), brimtest.Program(t, "prometheus-node-exporter"), "--web.listen-address="+exporter), syscall.SIGTERM) //nolint:gosec // a program of the machine
	// The configuration is the document's, with other addresses and a shorter interval. With
	// one shard, samples arrive in order, so everything before the last scrape is present.
	document, err := os.ReadFile("../../docs/prometheus.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(document), "```yaml\n")
	example, _, found := strings.Cut(example, "```")
	require.True(t, found)
	for old, replacement := range map[string]string{
		"127.0.0.1:8430": f.brimAddress, "127.0.0.1:9100": exporter, "15s": every.String() + "\n  scrape_timeout: 500ms",
		"    queue_config:\n": "    queue_config:\n      max_shards: 1\n      batch_send_deadline: 100ms\n",
	} {
		require.Contains(t, example, old)
		example = strings.ReplaceAll(example, old, replacement)
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "prometheus.yml"), []byte(example), 0o600))
	f.brimArgs = []string{
		"serve", "--data-dir", filepath.Join(f.dir, "data"), "--mongo-uri", mongodtest.URI(t), "--database", mongodtest.Database(t).Name(),
		"--http-addr", f.brimAddress, "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json",
	}
	f.startBrim()
	f.startPrometheus()
	return f
}

func (f *fleet) startBrim() {
	cmd := exec.CommandContext(f.t.Context(), binary.Path(f.t), f.brimArgs...) //nolint:gosec // brim itself
	cmd.Env = brimtest.Env()
	f.brim = brimtest.Start(f.t, cmd, syscall.SIGTERM)
	f.brim.AwaitLog("ready")
}

func (f *fleet) startPrometheus() {
	f.prometheus = brimtest.Start(f.t, exec.CommandContext(f.t.Context(), brimtest.Program(f.t, "prometheus"), "--config.file="+filepath.Join(f.dir, "prometheus.yml"), //nolint:gosec // a program of the machine
		"--storage.tsdb.path="+filepath.Join(f.dir, "prometheus"), "--enable-feature=promql-at-modifier,promql-negative-offset", "--web.listen-address="+f.prometheusAddress, "--log.level=warn"), syscall.SIGTERM)
	f.prometheus.Await("readiness", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, "http://"+f.prometheusAddress+"/-/ready", "")
		return err == nil && code == http.StatusOK
	})
}

func (f *fleet) apis() (prometheus, brim string) {
	return "http://" + f.prometheusAddress, "http://" + f.brimAddress + "/prometheus/readings"
}

// number returns the result of a query for one number; 0 if there is none.
func (f *fleet) number(api, query string) float64 {
	got, err := askFor(api, "/api/v1/query", url.Values{"query": {query}})
	if err != nil {
		return 0
	}
	samples, err := got.samplesOf()
	if err != nil {
		return 0
	}
	for _, text := range samples {
		v, _ := strconv.ParseFloat(text, 64)
		return v
	}
	return 0
}

// awaitScrapes waits until Brim has the samples of n scrapes.
func (f *fleet) awaitScrapes(n int) {
	_, brim := f.apis()
	for have := 0.0; have < float64(n); {
		f.prometheus.Await("another scrape", func() bool {
			now := f.number(brim, "count_over_time(up[1d])")
			more := now > have
			have = max(have, now)
			return more
		})
	}
}

// awaitNewest waits until Brim has the newest samples, and returns their time in milliseconds.
func (f *fleet) awaitNewest() (at int64) {
	prometheus, brim := f.apis()
	f.prometheus.Await("the newest samples in Brim", func() bool {
		newest := f.number(prometheus, "timestamp(up)")
		at = int64(newest * 1000)
		return newest > 0 && newest == f.number(brim, "timestamp(up)")
	})
	return at
}

// TestPrometheusWritesToBrim kills Brim and Prometheus in turn during writes, and compares
// their answers. BRIM_REMOTE_WRITE_FOR=1h extends it to an hour.
func TestPrometheusWritesToBrim(t *testing.T) {
	t.Parallel()
	length, every := 45*time.Second, time.Second
	if text := os.Getenv("BRIM_REMOTE_WRITE_FOR"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, "BRIM_REMOTE_WRITE_FOR")
		every = max(every, length/240).Truncate(time.Second)
	}
	f := startFleet(t, every)
	scrapes := int(length / every)
	f.awaitScrapes(scrapes / 3)
	f.brim.Kill()
	f.startBrim()
	f.awaitScrapes(2 * scrapes / 3)
	// Prometheus never sends samples that were pending when it was killed.
	f.awaitNewest()
	f.prometheus.Kill()
	f.startPrometheus()
	f.awaitScrapes(scrapes)
	to := f.awaitNewest()
	require.NotContains(t, f.prometheus.Logged(), "non-recoverable")

	// Between two scrapes, since Prometheus 2 includes the start of a range.
	end := to - every.Milliseconds()/2
	text := func(ms int64) []string { return []string{fmt.Sprintf("%d.%03d", ms/1000, ms%1000)} }
	prometheus, brim := f.apis()
	compareAnswers(t, prometheus, strings.TrimSuffix(brim, "/prometheus/readings"), map[string]int{"readings": sampled}, map[string]url.Values{
		"/api/v1/query_range": {"start": text(end - length.Milliseconds()), "end": text(end), "step": {strconv.Itoa(max(1, int(length.Seconds())/20))}},
		"/api/v1/query":       {"time": text(end)},
	})
}

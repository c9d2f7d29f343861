package deploy_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(mongodtest.FreePort(t)))
}

// A server is a test's own Prometheus.
type server struct {
	t   testing.TB
	url string
}

// startPrometheus starts a Prometheus with this folder's configuration, but
// other targets and shorter intervals.
func startPrometheus(t testing.TB, daemon, generator string) *server {
	t.Helper()
	text, err := os.ReadFile("prometheus/prometheus.yml")
	require.NoError(t, err)
	config := string(text)
	for old, replacement := range map[string]string{
		`"127.0.0.1:8432"`: `"` + daemon + `"`, `"127.0.0.1:8433"`: `"` + generator + `"`,
		"scrape_interval: 5s": "scrape_interval: 1s", "scrape_timeout: 4s": "scrape_timeout: 1s", "evaluation_interval: 5s": "evaluation_interval: 1s",
	} {
		require.Equal(t, 1, strings.Count(config, old), old)
		config = strings.Replace(config, old, replacement, 1)
	}
	dir := t.TempDir()
	rules, err := os.ReadFile("prometheus/alerts.yml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), rules, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))

	address := freeAddress(t)
	s := &server{t: t, url: "http://" + address}
	p := start(t, brimtest.Program(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p.Await("readiness", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, s.url+"/-/ready", "")
		return err == nil && code == http.StatusOK
	})
	return s
}

// A series is part of the answer to a query.
type series struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression now.
func (s *server) query(expr string) ([]series, error) {
	var answer struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"` // time, value as text
		} `json:"result"`
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	out := make([]series, 0, len(answer.Result))
	for _, r := range answer.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		out = append(out, series{labels: r.Metric, value: v})
	}
	return out, nil
}

// get decodes the API's answer into data.
func (s *server) get(path string, data any) error {
	_, body, err := brimtest.Ask(http.MethodGet, s.url+path, "")
	if err != nil {
		return err
	}
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: %s", answer.Error)
	}
	return nil
}

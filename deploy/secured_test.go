package deploy_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest"
)

// TestASecuredDaemonIsScraped by a Prometheus with the configuration for TLS
// and a token, both of which the daemon requires.
func TestASecuredDaemonIsScraped(t *testing.T) {
	t.Parallel()
	prometheus := brimtest.Program(t, "prometheus")
	dir := t.TempDir()
	authority := accesstest.NewAuthority(t, "test")
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	access := filepath.Join(dir, "access.yaml")
	create := exec.CommandContext(t.Context(), binary.Path(t), "token", "create", "prometheus", "--scope", "read", "--access-file", access)
	create.Env = brimtest.Env()
	token, err := create.Output()
	require.NoError(t, err)
	admin := freeAddress(t)
	brim := start(t, binary.Path(t), "serve", "--storage", "memory", "--data-dir", dir, "--log-format", "json",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", admin, "--tls-cert", cert, "--tls-key", key, "--access-file", access)
	brim.AwaitLog("ready")

	text, err := os.ReadFile("prometheus/prometheus-tls.yml")
	require.NoError(t, err)
	config := string(text)
	for old, replacement := range map[string]string{
		`"brim.example.org:8432"`: `"` + admin + `"`, "ca_file: /etc/brim/ca.pem": "ca_file: " + ca,
		"credentials_file: /etc/prometheus/brim.token": "credentials_file: " + accesstest.File(t, dir, "token", token),
		"scrape_interval: 5s":                          "scrape_interval: 1s", "scrape_timeout: 4s": "scrape_timeout: 1s", "evaluation_interval: 5s": "evaluation_interval: 1s",
	} {
		require.Equal(t, 1, strings.Count(config, old), old)
		config = strings.Replace(config, old, replacement, 1)
	}
	rules, err := os.ReadFile("prometheus/alerts.yml")
	require.NoError(t, err)
	accesstest.File(t, dir, "alerts.yml", rules)
	address := freeAddress(t)
	s := &server{t: t, url: "http://" + address}
	p := start(t, prometheus, "--config.file="+accesstest.File(t, dir, "prometheus.yml", []byte(config)), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p.Await("a scrape", func() bool {
		found, err := s.query(`up{job="brim"} == 1 and on (instance) brim_tls_certificate_expiry_seconds > time()`)
		return err == nil && len(found) == 1
	})
	var asked int
	for _, a := range readAlerts(t) {
		if !a.ofSecured() {
			continue
		}
		asked++
		p.Await(a.Alert, func() bool { return s.answered(question{expr: a.left()}) == nil })
	}
	assert.Equal(t, 3, asked)
	_, _, err = brimtest.Ask(http.MethodGet, "https://"+admin+"/healthz", "")
	assert.ErrorContains(t, err, "unknown authority", "the daemon speaks TLS, with a certificate of the test's own")
}

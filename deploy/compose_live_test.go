package deploy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

const composeFile = "compose/compose.yaml"

// A box is a running compose.yaml with locally built images, without Grafana,
// which cannot be built here.
type box struct {
	*project

	t                       *testing.T
	http, admin, prometheus string
}

// A service in the file that overrides compose.yaml.
type service struct {
	Image       string            `yaml:"image,omitempty"`
	Entrypoint  []string          `yaml:"entrypoint,omitempty"`
	Command     []string          `yaml:"command,omitempty"`
	Environment map[string]string `yaml:"environment,omitempty"`
	Volumes     []string          `yaml:"volumes,omitempty"`
	Healthcheck map[string]any    `yaml:"healthcheck,omitempty"`
}

func newBox(t *testing.T) *box {
	t.Helper()
	requireEngine(t)
	brimtest.Program(t, "prometheus")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // for the containers' users
		return path
	}
	pace := strings.NewReplacer("scrape_interval: 5s", "scrape_interval: 1s", "scrape_timeout: 4s", "scrape_timeout: 1s", "evaluation_interval: 5s", "evaluation_interval: 1s")
	scrape, err := os.ReadFile("compose/prometheus.yml")
	require.NoError(t, err)
	var compose struct {
		Services map[string]struct {
			Command yaml.Node // a string in some services, a list for load
		}
	}
	text, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &compose))
	var longer []string
	load := compose.Services["load"].Command
	require.NoError(t, load.Decode(&longer))
	for i, word := range longer {
		longer[i] = map[string]string{"60s": "10m", "1000": "200"}[word]
		if longer[i] == "" {
			longer[i] = word
		}
	}
	mongo, brim := images.Mongo(t), images.Brim(t)
	over := map[string]any{"services": map[string]service{
		"secrets":     {Image: mongo},
		"mongo":       {Image: mongo, Healthcheck: map[string]any{"test": []string{"CMD", "mongo-setup", "ping"}, "interval": "1s"}},
		"mongo-setup": {Image: mongo, Entrypoint: []string{"mongo-setup"}},
		"brim": {
			Image: brim, Environment: map[string]string{"BRIM_CONFIG": "/etc/brim.yaml", "BRIM_SERVER_STATUS_INTERVAL": "1s", "BRIM_STORED_TIMEOUT": brimtest.Patience.String()},
			Volumes: []string{write("brim.yaml", bothStores) + ":/etc/brim.yaml:ro"},
		},
		"load": {Image: brim, Command: longer},
		"prometheus": {
			Image: images.Prometheus(t), Healthcheck: map[string]any{"test": []string{"CMD", "prometheus", "--version"}},
			Volumes: []string{write("prometheus.yml", pace.Replace(string(scrape))) + ":/etc/prometheus/prometheus.yml:ro"},
		},
	}}
	text, err = yaml.Marshal(over)
	require.NoError(t, err)
	env := []string{}
	address := func(variable string) string {
		port := strconv.Itoa(mongodtest.FreePort(t))
		env = append(env, variable+"="+port)
		return "http://127.0.0.1:" + port
	}
	b := &box{t: t, http: address("HTTP_PORT"), admin: address("ADMIN_PORT"), prometheus: address("PROMETHEUS_PORT")}
	address("GRPC_PORT")
	address("GRAFANA_PORT")
	b.project = composeProject(t, env, composeFile, write("compose.yaml", string(text)))
	fmt.Fprintln(os.Stderr, "NOT RUN: Grafana and mongosh of compose.yaml, for their images cannot be made here")
	return b
}

// up starts it and returns how long Brim took to accept readings.
func (b *box) up() time.Duration {
	b.t.Helper()
	begin := time.Now()
	b.do("up", "--detach", "--no-build", "secrets", "mongo", "mongo-setup", "brim", "prometheus")
	require.Eventually(b.t, func() bool {
		code, _, err := brimtest.AskFor(5*time.Second, http.MethodGet, b.admin+"/readyz", "")
		return err == nil && code == http.StatusOK
	}, brimtest.Patience, 50*time.Millisecond)
	return time.Since(begin)
}

// TestComposeStarts posts to Brim in the compose file, restarts everything, and
// runs the queries of every panel and alert on its Prometheus.
func TestComposeStarts(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	t.Logf("ready %s after the order to start it all", b.up().Round(100*time.Millisecond))
	code, answer, err := brimtest.Ask(http.MethodPost, b.http+"/v1/readings?ack=stored", `{"sensorId":"s-1","fields":{"t":23.5}}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)

	b.do("down", "--timeout", "10")
	t.Logf("ready %s after the second start", b.up().Round(100*time.Millisecond))
	code, answer, err = brimtest.Ask(http.MethodGet, b.http+"/v1/sensors/s-1/latest", "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code, answer)
	assert.Contains(t, answer, "23.5")
	b.hasLeastRights()

	feed(t, b.http)
	b.do("run", "--detach", "--rm", "--use-aliases", "--no-deps", "load")
	b.answersQuestions()
}

// hasLeastRights checks that Brim connected to MongoDB as its user and lacks no privilege.
func (b *box) hasLeastRights() {
	b.t.Helper()
	_, answer, err := brimtest.Ask(http.MethodGet, b.admin+"/status", "")
	require.NoError(b.t, err)
	var status map[string]any
	require.NoError(b.t, json.Unmarshal([]byte(answer), &status))
	assert.Contains(b.t, status["mongo_uri"], "mongo:27017")
	logs := b.do("logs", "--no-color", "brim")
	assert.NotContains(b.t, logs, "not authorized")
	assert.Contains(b.t, logs, `"msg":"ready"`)
}

// answersQuestions repeats all questions until each is answered.
func (b *box) answersQuestions() {
	b.t.Helper()
	s := &server{t: b.t, url: b.prometheus}
	// There is no embedded mongod that might restart.
	open := slices.DeleteFunc(questions(b.t), func(q question) bool { return strings.Contains(q.expr, "brim_mongod_") })
	all := len(open)
	assert.Eventually(b.t, func() bool {
		open, _ = s.asked(open)
		return len(open) == 0
	}, brimtest.Patience, time.Second)
	for _, q := range open {
		assert.Fail(b.t, "a query is not answered", "%s\n%s\n%s", q.who, q.expr, q.err)
	}
	b.t.Logf("%d of %d queries are answered", all-len(open), all)
	s.rulesWork(b.t)
}

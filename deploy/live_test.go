package deploy_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A question is a query of a panel or an alert.
type question struct {
	who    string // asks it
	expr   string
	legend []string // labels that occur in the legend
	err    error    // why it was last not answered
}

var (
	legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	kindOfDisk  = regexp.MustCompile(`kind=~?"[^"]*"`)
)

// questions returns all questions, with variables filled in as by Grafana.
func questions(t testing.TB) []question {
	t.Helper()
	var out []question
	// Subqueries step by the scrape interval, which is shorter here.
	fill := strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", ":5s]", ":1s]",
		"[7d:1h]", "[1m:1s]", "[1d:5m]", "[1m:1s]", ":5m]", ":1s]").Replace
	for _, d := range ofBrim(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				var labels []string
				for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					labels = append(labels, m[1])
				}
				for _, stream := range []string{".*", "(readings|series)"} { // All, and two selected streams
					expr := strings.ReplaceAll(fill(target.Expr), "$stream", stream)
					out = append(out, question{who: fmt.Sprintf("%s, %s, %s", d.path, p.Title, target.RefID), expr: expr, legend: labels})
					if !strings.Contains(target.Expr, "$stream") {
						break
					}
				}
			}
		}
	}
	for _, a := range readRules(t) {
		if a.ofSecured() {
			continue // this daemon is not secured
		}
		if a.Record != "" {
			out = append(out, question{who: "record " + a.Record, expr: fill(a.Expr)})
			continue
		}
		// The left side has a value whatever disk this machine has.
		out = append(out, question{who: "alert " + a.Alert, expr: kindOfDisk.ReplaceAllString(fill(a.left()), `kind=~".*"`)})
	}
	return out
}

var (
	errNothing  = errors.New("nothing is found")
	errNoNumber = errors.New("all values are NaN") // although there are series
)

// answered asks the question; the error says what is wrong with the answer.
func (s *server) answered(q question) error {
	found, err := s.query(q.expr)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errNothing
	}
	err = errNoNumber
	for _, one := range found {
		for _, label := range q.legend {
			if one.labels[label] == "" {
				return fmt.Errorf("a series has no label %s, which the legend names", label)
			}
		}
		if !math.IsNaN(one.value) && !math.IsInf(one.value, 0) {
			err = nil
		}
	}
	return err
}

// diskUnseen reports whether the daemon cannot see the disk, as on an overlay
// file system, after two samples.
func (s *server) diskUnseen() bool {
	const nan, twice = "brim_disk_utilization_ratio != brim_disk_utilization_ratio", "brim_mongodb_server_status_seconds_count > 2"
	found, err := s.query(nan + " and on (instance) " + twice)
	return err == nil && len(found) > 0
}

// asked asks the questions again. It returns those without an answer, with the
// reason, and how many have no value because their source cannot be seen: NaN,
// or no series where NaN is filtered out.
func (s *server) asked(questions []question) (open []question, unseen int) {
	diskUnseen := s.diskUnseen()
	for _, q := range questions {
		q.err = s.answered(q)
		switch {
		case diskUnseen && strings.Contains(q.expr, "brim_disk_") && (errors.Is(q.err, errNoNumber) || errors.Is(q.err, errNothing)):
			unseen++
		case q.err != nil:
			open = append(open, q)
		}
	}
	return open, unseen
}

// bothStores configures a bucket stream with rollups, a time-series stream, and a subscription with
// an unreachable broker, so that every metric has a series.
const bothStores = `granularity: 1m
streams:
  readings: {storage: bucket, seal-after: 2h, rollup: 1h}
  series: {storage: timeseries}
mqtt:
  away: {url: 'mqtt://127.0.0.1:1', topic: '{sensorId}'}
`

// startBrim starts a daemon with this configuration and its own mongod, whose metrics are enabled.
func startBrim(t testing.TB, admin string) (brim *brimtest.Process, url string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte(bothStores), 0o600))
	brim = start(t, binary.Path(t), "serve", "--config", config, "--data-dir", dir, "--mongod-cache-size", "256MiB", "--log-format", "json",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", admin, "--server-status-interval", "1s", "--flush-interval", "200ms")
	listening := brim.AwaitLog("listening")
	brim.AwaitLog("ready")
	return brim, "http://" + listening["http"].(string)
}

// Every query of every panel and alert finds series of a daemon and a
// generator, so none is empty because of a wrong name.
func TestQueriesAnswer(t *testing.T) {
	t.Parallel()
	brimtest.Program(t, "prometheus") // skips if it is missing
	mongodtest.URI(t)                 // the same, or installs it
	binary.Path(t)
	admin, generator := freeAddress(t), freeAddress(t)
	s := startPrometheus(t, admin, generator) // first, since it waits some seconds before scraping
	brim, url := startBrim(t, admin)
	feed(t, url)
	load := start(t, binary.Path(t), "load", "--target", url, "--stream", "readings", "--rate", "500", "--speedup", "10",
		"--connections", "8", "--duration", "10m", "--metrics-addr", generator)

	open := questions(t)
	all, unseen := len(open), 0
	deadline := time.Now().Add(brimtest.Patience - 10*time.Second) // before await gives up, to report what is open
	brim.Await("metrics", func() bool {
		require.False(t, load.Ended(), "the load ended")
		still, dark := s.asked(open)
		open, unseen = still, unseen+dark
		return len(open) == 0 || time.Now().After(deadline)
	})
	for _, q := range open {
		assert.Fail(t, "a query is not answered", "%s\n%s\n%s", q.who, q.expr, q.err)
	}
	t.Logf("%d queries are answered, of them %d by NaN or nothing, because the disk cannot be seen here", all-len(open), unseen)
	s.rulesWork(t)
	s.quantilesAreComparedWithBounds(t)
}

// rulesWork checks that Prometheus evaluated each rule, including the
// comparison, without errors.
func (s *server) rulesWork(t testing.TB) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	require.NoError(t, s.get("/api/v1/rules", &rules))
	seen := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			seen++
			assert.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
		}
	}
	assert.Len(t, readRules(t), seen)
}

// comparedQuantile finds what a histogram's quantile is compared with.
var comparedQuantile = regexp.MustCompile(`histogram_quantile\([0-9.]+, sum by \([^)]*\) \(rate\((\w+_bucket)(?:\{[^}]*\})?\[\w+\]\)\)\) > (?:bool )?([0-9.]+)`)

// quantilesAreComparedWithBounds checks that each is compared with a bucket
// bound of its histogram, where interpolation does not matter.
func (s *server) quantilesAreComparedWithBounds(t testing.TB) {
	t.Helper()
	checked := 0
	for _, a := range readAlerts(t) {
		for _, m := range comparedQuantile.FindAllStringSubmatch(a.Expr, -1) {
			checked++
			// The newest scrape may have failed.
			bounds, err := s.query("count by (le) (last_over_time(" + m[1] + "[10m]))")
			require.NoError(t, err)
			want, err := strconv.ParseFloat(m[2], 64)
			require.NoError(t, err)
			assert.True(t, slices.ContainsFunc(bounds, func(one series) bool {
				bound, err := strconv.ParseFloat(one.labels["le"], 64)
				return err == nil && math.Abs(bound-want) < want*1e-9
			}), "%s compares with %s, which is no bound of %s: %v", a.Alert, m[2], m[1], bounds)
		}
	}
	assert.Equal(t, 2, checked, "comparisons of quantiles that were found")
}

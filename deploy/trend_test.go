package deploy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// serveHistory starts a Prometheus over data that promtool made, or over none.
func serveHistory(t testing.TB, data, config string) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	address := freeAddress(t)
	s := &server{t: t, url: "http://" + address}
	p := start(t, tool(t, "prometheus"), "--config.file="+path, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=1y",
		"--web.listen-address="+address, "--log.level=warn")
	p.Await("readiness", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, s.url+"/-/ready", "")
		return err == nil && code == http.StatusOK
	})
	return s
}

// A past is three weeks of what a daemon showed, a moment each five minutes.
type past struct {
	t      testing.TB
	end    time.Time
	file   *os.File
	w      *bufio.Writer
	labels string
}

const (
	pastStep = 5 * time.Minute
	pastDays = 21
)

func newPast(t testing.TB) *past {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "history.om"))
	require.NoError(t, err)
	return &past{t: t, end: time.Now().Truncate(pastStep), file: file, w: bufio.NewWriter(file), labels: `job="brim",instance="127.0.0.1:8432"`}
}

// gauge writes a series whose value at a day is told.
func (p *past) gauge(series string, value func(day float64) float64) {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if labels != "" {
		labels = "," + labels
	}
	begin := p.end.Add(-pastDays * 24 * time.Hour)
	for at := begin; !at.After(p.end); at = at.Add(pastStep) {
		if v := value(at.Sub(begin).Hours() / 24); !math.IsNaN(v) {
			fmt.Fprintf(p.w, "%s{%s%s} %g %d\n", name, p.labels, labels, v, at.Unix())
		}
	}
}

// counter writes a series whose rate per second at a day is told. Day 12 began
// with a restart of the daemon, after which it is 0.
func (p *past) counter(series string, rate func(day float64) float64) {
	sum, before := 0.0, 0.0
	p.gauge(series, func(day float64) float64 {
		if day >= 12 && before < 12 {
			sum = 0
		}
		before = day
		sum += rate(day) * pastStep.Seconds()
		return sum
	})
}

// blocks makes Prometheus' data of what was written.
func (p *past) blocks() string {
	p.t.Helper()
	_, err := p.w.WriteString("# EOF\n")
	require.NoError(p.t, err)
	require.NoError(p.t, p.w.Flush())
	require.NoError(p.t, p.file.Close())
	data := filepath.Join(p.t.TempDir(), "data")
	out, err := exec.Command(tool(p.t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=720h", p.file.Name(), data).CombinedOutput()
	require.NoError(p.t, err, "%s", out)
	return data
}

func level(v float64) func(float64) float64 { return func(float64) float64 { return v } }

func rising(from, to float64) func(float64) float64 {
	return func(day float64) float64 { return from + (to-from)*day/pastDays }
}

// slowly writes the three weeks in which writes got slow with no change in
// traffic: the cache filled, and evictions by clients' threads began on day 13.
func (p *past) slowly() {
	const updates = 160.0
	slow := rising(0, 1) // the share of updates that take 50 instead of 5 ms, as is
	p.gauge("brim_mongodb_up", level(1))
	p.counter("brim_mongodb_server_status_seconds_count", level(0.1))
	p.counter(`brim_ingest_readings_total{protocol="http"}`, level(2000))
	write := `brim_store_write_seconds_bucket{stream="readings",storage="bucket",fill="0-10",le="%s"}`
	p.counter(fmt.Sprintf(write, "0.0064"), func(day float64) float64 { return updates * (1 - 0.9*slow(day)) })
	p.counter(fmt.Sprintf(write, "0.0512"), level(updates))
	p.counter(fmt.Sprintf(write, "+Inf"), level(updates))
	p.counter("brim_store_update_readings_sum", level(2000))
	p.counter("brim_store_update_readings_count", level(updates))
	p.gauge("brim_mongodb_cache_max_bytes", level(1e9))
	p.gauge("brim_mongodb_cache_used_bytes", rising(0.8e9, 0.96e9))
	p.counter("brim_mongodb_cache_application_evictions_total", func(day float64) float64 { return 10 * max(0, day-13) })
	p.counter("brim_mongodb_history_store_inserts_total", level(50))
	p.gauge("brim_processor_utilization_ratio", level(0.4))
	p.gauge(`brim_mongodb_collection_bytes{stream="readings"}`, rising(40e9, 56e9))
	p.gauge("brim_disk_utilization_ratio", func(day float64) float64 {
		if day < 9 {
			return math.NaN()
		}
		return 0.2
	})
	for _, kind := range []string{"read", "write"} {
		// As on MongoDB 7 at rest: few tickets, and nobody who waits.
		p.gauge(`brim_mongodb_tickets_available{kind="`+kind+`"}`, level(0))
		p.gauge(`brim_mongodb_tickets_in_use{kind="`+kind+`"}`, level(1))
		p.gauge(`brim_storage_health{signal="`+kind+`_tickets"}`, level(0))
	}
}

// A trendAnswer is what `brim doctor --trend --output json` prints, as far as
// it is looked at here.
type trendAnswer struct {
	Class string
	Trend struct {
		Seen struct {
			Days     float64
			OfDays   float64 `json:"of_days"`
			Restarts int
		}
		Instances []struct{ Instance string }
		Words     []string
		Series    []struct {
			Name        string
			Begin, Now  *float64
			PerWeek     *float64 `json:"per_week"`
			Trend       string
			Class       string
			Correlation *float64
			Degrading   *struct {
				State string
				At    *time.Time
			}
		}
	}
}

func TestTrendOverThreeWeeksOfARealPrometheus(t *testing.T) {
	t.Parallel()
	tool(t, "prometheus")
	p := newPast(t)
	p.slowly()
	s := serveHistory(t, p.blocks(), "global: {scrape_interval: 1h}\n")

	cmd := exec.CommandContext(t.Context(), binary.Path(t), "doctor", "--trend", "3w", "--prometheus", s.url, "--output", "json")
	cmd.Env = brimtest.Env()
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.Error(t, err, "the class is its exit code")
	require.Equal(t, 20, cmd.ProcessState.ExitCode(), problems.String())
	var answer trendAnswer
	require.NoError(t, json.Unmarshal(out, &answer))
	assert.Equal(t, "bottleneck", answer.Class)
	assert.InDelta(t, pastDays, answer.Trend.Seen.Days, 0.5)
	assert.Equal(t, 1, answer.Trend.Seen.Restarts)
	require.Len(t, answer.Trend.Instances, 1)

	seen := 0
	for _, one := range answer.Trend.Series {
		value := func(v *float64) float64 {
			if v == nil {
				return math.NaN()
			}
			return *v
		}
		begin, now, week := value(one.Begin), value(one.Now), value(one.PerWeek)
		seen++
		switch one.Name {
		case "write_p99":
			assert.Equal(t, "rising", one.Trend)
			assert.Less(t, begin, now)
		case "readings_rate":
			assert.Equal(t, "none", one.Trend, "neither the restart nor anything else changes a rate")
			assert.InDelta(t, 2000, now, 20)
		case "readings_per_update":
			assert.InDelta(t, 12.5, now, 0.1)
		case "cache_used":
			assert.InDelta(t, 16.0/3, week, 0.1)
			assert.Equal(t, "bottleneck", one.Class)
			assert.InDelta(t, 1, value(one.Correlation), 0.15)
		case "application_evictions":
			assert.InDelta(t, 0, begin, 1e-9)
			assert.Greater(t, now, 60.0)
			require.NotNil(t, one.Degrading)
			require.NotNil(t, one.Degrading.At)
			assert.WithinDuration(t, p.end.Add(-8*24*time.Hour), *one.Degrading.At, 36*time.Hour)
		case "history_store":
			assert.InDelta(t, 50, now, 1)
			assert.Equal(t, "none", one.Trend)
		case "processor":
			assert.InDelta(t, 40, now, 1e-6)
		case "disk_busy":
			assert.InDelta(t, 20, now, 1e-6, "what could not be seen at first does not count")
		case "write_tickets", "read_tickets":
			assert.InDelta(t, 100, now, 1e-6, "few tickets mean nothing while nobody waits")
		case "collection_bytes":
			assert.Equal(t, "rising", one.Trend)
		default:
			seen--
		}
	}
	assert.Equal(t, 11, seen)
	words := strings.Join(answer.Trend.Words, "\n")
	assert.Contains(t, words, "Writes got slower over 21 days")
	assert.Contains(t, words, "Traffic does not explain it")
	assert.Contains(t, words, "Evictions by clients' threads: degrading since")
}

// The query beside each signal gives what the signal says: a Prometheus reads
// the metrics of a monitor that has looked at a real MongoDB, and looks no more
// until they are compared. Rates are compared over a past that is known, above.
func TestQueriesGiveWhatTheSignalsSay(t *testing.T) {
	t.Parallel()
	tool(t, "prometheus")
	database := mongodtest.Database(t)
	_, err := database.Collection("readings").InsertOne(t.Context(), map[string]any{"some": strings.Repeat("text", 1000)})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	monitor, err := doctor.New(doctor.Config{Database: database, Streams: []doctor.Stream{{Name: "readings", Storage: store.Bucket}}, Registerer: registry, DBPath: t.TempDir()})
	require.NoError(t, err)
	pause := time.NewTimer(time.Second)
	defer pause.Stop()
	monitor.Look(t.Context())
	<-pause.C // what is a rate needs some time
	monitor.Look(t.Context())
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer metrics.Close()
	s := serveHistory(t, t.TempDir(), "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: brim, metrics_path: /, static_configs: [{targets: ['"+
		strings.TrimPrefix(metrics.URL, "http://")+"']}]}]\n")

	overTime := map[string]bool{"application_evictions": true, "history_store": true}
	for _, signal := range monitor.Signals() {
		query := doctor.PromQL(signal.Name, `job="brim"`, 0, 10*time.Second)
		require.NotEmpty(t, query, signal.Name)
		var found []series
		require.Eventually(t, func() bool {
			found, err = s.query(query)
			up, upErr := s.query(`count_over_time(brim_mongodb_up{job="brim"}[1m]) > 2`)
			return err == nil && upErr == nil && len(up) == 1
		}, brimtest.Patience, 100*time.Millisecond, signal.Name)
		switch {
		case overTime[signal.Name]:
			require.Len(t, found, 1, query)
			assert.InDelta(t, 0, found[0].value, 1e-9, "nothing moved since: %s", query)
		case math.IsNaN(signal.Value):
			assert.Empty(t, found, "%s cannot be seen: %s", signal.Name, signal.Why)
		default:
			require.Len(t, found, 1, query)
			assert.InDelta(t, signal.Value, found[0].value, 1e-6*(1+math.Abs(signal.Value)), signal.Name)
		}
		assert.Contains(t, doctor.PromQL(signal.Name, "", time.Hour, time.Minute), "1h")
	}
}

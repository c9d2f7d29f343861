package promapi_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// binary is the brim that the tests run.
var binary brimtest.Binary

func TestMain(m *testing.M) {
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code) //nolint:forbidigo // how a test binary ends
}

// The samples are an hour of two machines, scraped every 15 s; queries ask for ten
// minutes of it. No sample coincides with a step of a query, since Prometheus 2 includes
// the start of a range and later versions do not.
const (
	firstScrape = 1_709_251_203_217 // 2024-03-01T00:00:03.217Z
	scrapes     = 240
	scrapeEvery = 15_000

	askFrom, askTo, askStep = 1_709_254_080, 1_709_254_680, 30
)

// A sample is one line of a page, with the labels of its target.
type sample struct {
	name   string
	labels []telemetry.Tag // sorted by name
	value  float64
	kind   string // the metric's
}

// readPage reads testdata/page.prom.
func readPage(t testing.TB) (page []sample) {
	t.Helper()
	text, err := os.ReadFile("testdata/page.prom")
	require.NoError(t, err)
	kinds := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			kinds[name] = kind
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		require.NoError(t, err, line)
		s := sample{value: value}
		name, rest, labeled := strings.Cut(line[:at], "{")
		for s.name = name; labeled && rest != "}"; {
			label, after, _ := strings.Cut(rest, `="`)
			text, after, found := strings.Cut(after, `"`)
			require.True(t, found, line)
			if text != "" { // an empty label is none
				s.labels = append(s.labels, telemetry.Tag{Name: label, Value: text})
			}
			rest = strings.TrimPrefix(after, ",")
		}
		for _, suffix := range []string{"", "_sum", "_count", "_bucket"} {
			if kind, ok := kinds[strings.TrimSuffix(name, suffix)]; ok && strings.HasSuffix(name, suffix) {
				s.kind = cmp.Or(s.kind, kind)
			}
		}
		page = append(page, s)
	}
	return page
}

// A point is a sample's time and value.
type point struct {
	at    int64 // milliseconds
	value float64
}

// A history has all samples of a series.
type history struct {
	name   string
	labels []telemetry.Tag
	points []point
}

// histories generates an hour of scrapes of a page: counters grow, and are reset when
// a machine restarts; gauges vary; texts and limits stay the same.
func histories(t testing.TB, page []sample) (out []history) {
	t.Helper()
	for n, target := range []string{"a:9100", "b:9100"} {
		random := rand.New(rand.NewPCG(uint64(n), 7))
		for _, s := range page {
			if s.name == "node_scrape_collector_duration_seconds" && n == 1 {
				continue // a metric of one machine
			}
			h := history{name: s.name, labels: append(slices.Clone(s.labels), telemetry.Tag{Name: "instance", Value: target}, telemetry.Tag{Name: "job", Value: "node"})}
			slices.SortFunc(h.labels, func(a, b telemetry.Tag) int { return strings.Compare(a.Name, b.Name) })
			value := s.value
			for i := range scrapes {
				at := int64(firstScrape + i*scrapeEvery + 97*n)
				if s.name == "node_time_seconds" {
					value = float64(at) / 1000
				} else {
					value = move(random, &s, value, i == 190 && n == 0)
				}
				h.points = append(h.points, point{at, value})
			}
			out = append(out, h)
		}
		out = append(out, sometimes(target, n))
	}
	return out
}

// move returns a series' next value.
func move(random *rand.Rand, s *sample, value float64, restart bool) float64 {
	fixed := strings.Contains(s.name, "_info") || strings.Contains(s.name, "Total") && s.kind == "gauge" || strings.HasSuffix(s.name, "_maximum") || strings.Contains(s.name, "_size_") || strings.HasSuffix(s.name, "_max_fds")
	switch {
	case fixed || strings.HasSuffix(s.name, "boot_time_seconds") && !restart:
		return value
	case strings.HasSuffix(s.name, "boot_time_seconds"):
		return value + 2000
	case s.kind == "counter" || s.kind == "histogram" || s.kind == "summary" && !slices.ContainsFunc(s.labels, func(l telemetry.Tag) bool { return l.Name == "quantile" }):
		if restart {
			return 0
		}
		if s.value == math.Trunc(s.value) {
			return value + float64(random.IntN(20))
		}
		return value + random.Float64()*3
	case value == math.Trunc(value):
		return value + float64(random.IntN(5)-2)
	default:
		return value * (0.95 + random.Float64()/10)
	}
}

// sometimes is a series that exists for seven out of ten minutes.
func sometimes(target string, n int) history {
	h := history{name: "node_sometimes", labels: []telemetry.Tag{{Name: "instance", Value: target}, {Name: "job", Value: "node"}}}
	for i := range scrapes {
		if i/4%10 < 7 {
			h.points = append(h.points, point{int64(firstScrape + i*scrapeEvery + 97*n), float64(i)})
		}
	}
	return h
}

// openMetrics writes histories in promtool's format.
func openMetrics(all []history) []byte {
	var out bytes.Buffer
	for _, h := range all {
		for _, p := range h.points {
			fmt.Fprintf(&out, "%s{", h.name)
			for i, l := range h.labels {
				if i > 0 {
					out.WriteByte(',')
				}
				fmt.Fprintf(&out, "%s=%q", l.Name, l.Value)
			}
			fmt.Fprintf(&out, "} %s %d.%03d\n", strconv.FormatFloat(p.value, 'g', -1, 64), p.at/1000, p.at%1000)
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// writeRequests yields remote-write bodies, one per scrape of all machines.
func writeRequests(all []history) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range scrapes {
			var req prompb.WriteRequest
			for _, h := range all {
				from, _ := slices.BinarySearchFunc(h.points, int64(firstScrape+i*scrapeEvery), func(p point, at int64) int { return cmp.Compare(p.at, at) })
				if from == len(h.points) || h.points[from].at >= int64(firstScrape+(i+1)*scrapeEvery) {
					continue
				}
				series := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: h.name}}, Samples: []prompb.Sample{{Value: h.points[from].value, Timestamp: h.points[from].at}}}
				for _, l := range h.labels {
					series.Labels = append(series.Labels, prompb.Label{Name: l.Name, Value: l.Value})
				}
				req.Timeseries = append(req.Timeseries, series)
			}
			body, _ := req.Marshal() // cannot fail
			if !yield(string(snappy.Encode(nil, body))) {
				return
			}
		}
	}
}

// startPrometheus starts a Prometheus with the samples, and returns its URL.
func startPrometheus(t *testing.T, all []history) string {
	t.Helper()
	dir := t.TempDir()
	text, data := filepath.Join(dir, "samples.txt"), filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(text, openMetrics(all), 0o600))
	made, err := exec.CommandContext(t.Context(), brimtest.Program(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data).CombinedOutput()
	require.NoError(t, err, "%s", made)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty.yml"), nil, 0o600))
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(mongodtest.FreePort(t)))
	p := brimtest.Start(t, exec.CommandContext(t.Context(), brimtest.Program(t, "prometheus"), "--config.file="+filepath.Join(dir, "empty.yml"), "--storage.tsdb.path="+data, //nolint:gosec // a program of the machine
		"--storage.tsdb.retention.time=200y", "--enable-feature=promql-at-modifier,promql-negative-offset", "--web.listen-address="+address, "--log.level=error"), syscall.SIGTERM)
	p.Await("readiness", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, "http://"+address+"/-/ready", "")
		return err == nil && code == http.StatusOK
	})
	return "http://" + address
}

// startBrim starts a daemon with the samples in streams of each storage, and
// returns its URL.
func startBrim(t *testing.T, all []history) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "brim.yaml"), []byte("stream: memory\nstreams:\n  memory: {storage: memory}\n  documents: {storage: bucket, granularity: 5m}\n  series: {storage: timeseries}\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), binary.Path(t), "serve", "--config", filepath.Join(dir, "brim.yaml"), "--data-dir", filepath.Join(dir, "data"), //nolint:gosec // brim itself
		"--mongo-uri", mongodtest.URI(t), "--database", mongodtest.Database(t).Name(),
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json")
	cmd.Env = brimtest.Env()
	p := brimtest.Start(t, cmd, syscall.SIGTERM)
	address := "http://" + fmt.Sprint(p.AwaitLog("listening")["http"])
	p.AwaitLog("ready")
	for body := range writeRequests(all) {
		for _, stream := range []string{"memory", "documents", "series"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/api/v1/write", strings.NewReader(body))
			require.NoError(t, err)
			req.Header = http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}, "Brim-Stream": {stream}}
			code, answer, err := brimtest.CarryOut(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusNoContent, code, answer)
		}
	}
	return address
}

// readQueries returns the queries of testdata/queries.txt.
func readQueries(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/queries.txt")
	require.NoError(t, err)
	variants := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "= "); ok {
			words := strings.Fields(rest)
			variants[words[0]] = words[1:]
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		list := []string{line}
		for word, values := range variants {
			if !strings.Contains(line, "{{"+word+"}}") {
				continue
			}
			var next []string
			for _, one := range list {
				for _, v := range values {
					next = append(next, strings.ReplaceAll(one, "{{"+word+"}}", v))
				}
			}
			list = next
		}
		out = append(out, list...)
	}
	return out
}

// A reply is a response of the query API.
type reply struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// askFor sends a form to a path of the API.
func askFor(api, path string, form url.Values) (reply, error) {
	var got reply
	resp, err := http.PostForm(api+path, form)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	return got, json.NewDecoder(bufio.NewReader(resp.Body)).Decode(&got)
}

// samplesOf returns a response's values by series and time.
func (r *reply) samplesOf() (map[string]string, error) {
	out := make(map[string]string)
	put := func(metric map[string]string, at any, value any) {
		labels, _ := json.Marshal(metric) // keys are sorted
		out[fmt.Sprintf("%s @ %v", labels, at)] = fmt.Sprint(value)
	}
	switch r.Data.Type {
	case "scalar", "string":
		var v [2]any
		if err := json.Unmarshal(r.Data.Result, &v); err != nil {
			return nil, err
		}
		put(nil, v[0], v[1])
	case "vector":
		var list []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		}
		if err := json.Unmarshal(r.Data.Result, &list); err != nil {
			return nil, err
		}
		for _, one := range list {
			put(one.Metric, one.Value[0], one.Value[1])
		}
	case "matrix":
		var list []struct {
			Metric map[string]string `json:"metric"`
			Values [][2]any          `json:"values"`
		}
		if err := json.Unmarshal(r.Data.Result, &list); err != nil {
			return nil, err
		}
		for _, one := range list {
			for _, v := range one.Values {
				put(one.Metric, v[0], v[1])
			}
		}
	default:
		return nil, fmt.Errorf("a result of type %q", r.Data.Type)
	}
	return out, nil
}

// compare returns nil if two responses are the same, up to the last digits of
// numbers.
func compare(want, got *reply) error {
	if want.Status != got.Status {
		return fmt.Errorf("Prometheus: %s %s, Brim: %s %s", want.Status, want.Error, got.Status, got.Error)
	}
	if want.Status != "success" {
		return nil
	}
	a, errA := want.samplesOf()
	b, errB := got.samplesOf()
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	for key, v := range a {
		if w, ok := b[key]; !ok || !sameNumber(v, w) {
			return fmt.Errorf("%s: Prometheus has %s, Brim %q; %d and %d values", key, v, w, len(a), len(b))
		}
	}
	for key, v := range b {
		if _, ok := a[key]; !ok {
			return fmt.Errorf("%s: Brim has %s, Prometheus nothing; %d and %d values", key, v, len(a), len(b))
		}
	}
	return nil
}

func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y))
}

// TestAnswersAreThoseOfPrometheus runs queries on a Prometheus and on Brim with the same
// samples: one in seven, or with BRIM_PROMQL_ALL=1 all of them on the stream in memory.
func TestAnswersAreThoseOfPrometheus(t *testing.T) {
	t.Parallel()
	brimtest.Program(t, "prometheus")
	all := histories(t, readPage(t))
	prometheus, brim := startPrometheus(t, all), startBrim(t, all)
	streams := map[string]int{"memory": sampled, "documents": sampled, "series": sampled}
	if os.Getenv("BRIM_PROMQL_ALL") == "1" {
		streams["memory"] = 1
	}
	compareAnswers(t, prometheus, brim, streams, map[string]url.Values{
		"/api/v1/query_range": {"start": {strconv.Itoa(askFrom)}, "end": {strconv.Itoa(askTo)}, "step": {strconv.Itoa(askStep)}},
		"/api/v1/query":       {"time": {strconv.Itoa(askTo)}},
	})
}

// compareAnswers runs the queries of testdata/queries.txt on Prometheus and on streams of
// Brim, on each stream every nth one.
func compareAnswers(t *testing.T, prometheus, brim string, streams map[string]int, kinds map[string]url.Values) {
	t.Helper()
	least := slices.Min(slices.Collect(maps.Values(streams)))
	var mu sync.Mutex
	asked, equal := make(map[string]int), make(map[string]int)
	unlike := make(map[string]error)
	var group errgroup.Group
	group.SetLimit(4)
	for i, q := range readQueries(t) {
		if i%least != 0 {
			continue
		}
		for path, params := range kinds {
			group.Go(func() error {
				form := url.Values{"query": {q}}
				for k, v := range params {
					form[k] = v
				}
				want, err := askFor(prometheus, path, form)
				if err != nil {
					return err
				}
				for stream, every := range streams {
					if i%every != 0 {
						continue
					}
					got, err := askFor(brim+"/prometheus/"+stream, path, form)
					if err != nil {
						return err
					}
					difference := compare(&want, &got)
					mu.Lock()
					if asked[stream]++; difference == nil {
						equal[stream]++
					} else {
						unlike[stream+" "+path+" "+q] = difference
					}
					mu.Unlock()
				}
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	for key, err := range unlike {
		t.Logf("%s: %v", key, err)
	}
	for stream, n := range asked {
		t.Logf("%s: %d of %d answers are equal, %.2f %%", stream, equal[stream], n, 100*float64(equal[stream])/float64(n))
		assert.GreaterOrEqual(t, float64(equal[stream]), 0.98*float64(n), stream)
	}
}

// By default, one in sampled queries is run.
const sampled = 7

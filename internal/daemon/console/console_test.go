package console

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/doctor"
)

func TestPageShowsWhatTheMetricsSay(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, func(cfg *Config) {
		cfg.Signals = func() []doctor.Signal {
			return []doctor.Signal{
				{Title: "Disk busy", Value: 12.5, Unit: "%", Class: doctor.Healthy, Threshold: doctor.Threshold{Degrading: 50, Bottleneck: 80}},
				{Title: "Cache dirty", Value: 17.25, Unit: "%", Class: doctor.Bottleneck, Why: "threads are made to evict"},
				{Title: "Hardly any", Value: 0.0000988, Unit: "%", Class: doctor.Healthy},
				{Title: "Odd one", Value: math.NaN(), Unit: "ms", Class: doctor.Unknown, Why: "unknown because"},
			}
		}
	})
	c.sample()
	d.run(c, 60)
	d.rejected.WithLabelValues("ts_out_of_range").Add(1234)
	d.requests.WithLabelValues("http", "503").Add(7)
	d.requests.WithLabelValues("http", "404").Add(6)
	d.requests.WithLabelValues("grpc", "Unavailable").Add(8)
	d.deadLetters.Add(9)
	d.streams["readings"].Unknown.Add(11)
	d.sleep(time.Second)
	c.sample()

	resp, body := get(t, c, "/")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	for _, text := range []string{
		"v0.3.0", "Readings are accepted and stored", `<time datetime="2026-11-21T12:01:01Z">12:01:01</time>`,
		"Write latency by bucket fill of all streams", `id="chart-journal"`, "2 healthy signals",
		"Cache dirty", "17.3 %", "degrading from 50 %", "&lt; 0.01 %", "threads are made to evict", "bottleneck", "unknown",
		"ts_out_of_range", "1,234", "http 404", "http 503", "grpc Unavailable", "Dead letters", "Unknown outcomes",
		"timeseries", `<option value="readings">`,
		`href="/status"`, `href="/readyz"`, `href="/healthz"`, `href="/metrics"`, `href="/debug/pprof/"`, `action="/flush"`,
	} {
		assert.Contains(t, body, text)
	}
	assert.Less(t, strings.Index(body, "Cache dirty"), strings.Index(body, "Odd one"), "what is worst comes first")
	assert.Less(t, strings.Index(body, "Odd one"), strings.Index(body, "Disk busy"), "what is unknown may be bad")
	for _, text := range []string{"field_name", "http 200", "NaN", "No readings yet", "http://", "https://"} {
		found := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "")
		assert.NotContains(t, found, text)
	}
	_, folded, _ := strings.Cut(body, `<details id="healthy">`)
	assert.Contains(t, folded, "Disk busy", "healthy signals are folded")
	assert.NotContains(t, folded, "Cache dirty")
}

func TestEmptyPageShowsHowToSend(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	_, body := get(t, c, "/")
	assert.Contains(t, body, `curl http://127.0.0.1:8430/v1/readings`)
	assert.NotContains(t, body, "NaN")
	c.sample()
	d.run(c, 2)
	_, body = get(t, c, "/console")
	assert.NotContains(t, body, "curl")
}

func TestPageOfOneStream(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	c.sample()
	for i := range 20 {
		d.write("readings", 100, 10, 0.001, 0.15)
		d.write("plant <b>2</b>", 1, 1, 1.0, 0.95)
		d.ingested.WithLabelValues("http").Add(float64(i))
		d.sleep(time.Second)
		c.sample()
	}
	_, all := get(t, c, "/console")
	assert.Contains(t, all, `<th scope="row">10-20 %</th><td class="n">2,000</td>`)
	assert.Contains(t, all, `<th scope="row">90-100 %</th><td class="n">20</td>`)
	_, one := get(t, c, "/console?stream=readings")
	assert.Contains(t, one, `<th scope="row">10-20 %</th><td class="n">2,000</td>`)
	assert.Contains(t, one, `<th scope="row">90-100 %</th><td class="n">0</td><td class="n">–</td>`)
	assert.Contains(t, one, "bucket fill of readings, in numbers")
	_, whole := get(t, c, "/?stream=readings")
	assert.Contains(t, whole, `<option value="readings" selected>`)
	_, gone := get(t, c, "/console?stream=gone")
	assert.Contains(t, gone, "of all streams, in numbers")
	assert.LessOrEqual(t, len(c.rendered), 2, "what is asked for makes no room for itself")
}

func TestDiagnosisIsAboveSignals(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	found := Diagnosis{}
	c := d.console(t, func(cfg *Config) {
		cfg.Signals = func() []doctor.Signal { return []doctor.Signal{{Title: "Disk busy", Class: doctor.Bottleneck}} }
		cfg.Diagnosis = func() Diagnosis { return found }
	})
	c.sample()
	_, body := get(t, c, "/console")
	assert.Contains(t, body, "Nothing known is slowing down writes")
	finding := doctor.Finding{Name: "disk_iops", Cause: "IOPS-bound: much", Class: doctor.Bottleneck, Evidence: "busy 92 %", Action: "merge more", Cost: "a restart"}
	other := finding
	other.Action, other.Cost = "buy", "money"
	found = Diagnosis{Note: "dirty is normal", Findings: []doctor.Finding{finding, other}}
	d.sleep(time.Second)
	_, body = get(t, c, "/console")
	assert.NotContains(t, body, "Nothing known is slowing down writes")
	words := regexp.MustCompile(`(?s)IOPS-bound: much.*busy 92 %.*id="do-disk_iops".*merge more.*a restart.*buy.*money.*dirty is normal.*Disk busy`)
	assert.Regexp(t, words, body)
	assert.Equal(t, 1, strings.Count(body, "busy 92 %"), "findings of one cause stand together")
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	const evil = `"><script>alert(1)</script>`
	d := newDaemon(t, noon)
	d.rejected.WithLabelValues(evil).Add(1)
	c := d.console(t, func(cfg *Config) {
		cfg.Version = evil
		cfg.HTTPAddr = func() string { return evil }
		cfg.Parts = func() []Part { return []Part{{Name: evil, Reason: evil}} }
		cfg.Streams = func() []Stream { return []Stream{{Name: evil, Storage: evil, Granularity: evil}} }
		cfg.Signals = func() []doctor.Signal {
			return []doctor.Signal{{Title: evil, Unit: evil, Why: evil}}
		}
		cfg.Diagnosis = func() Diagnosis {
			return Diagnosis{Note: evil, Findings: []doctor.Finding{{Name: evil, Cause: evil, Evidence: evil, Action: evil, Cost: evil}}}
		}
	})
	c.sample()
	for _, target := range []string{"/", "/console", "/?stream=" + `%22%3E%3Cscript%3Ealert(1)%3C/script%3E`} {
		_, body := get(t, c, target)
		assert.NotContains(t, body, "<script>alert")
		assert.Contains(t, body, "&lt;script&gt;alert(1)")
	}
}

// TestPageNeedsOnlyItsOwnFiles and no inline script or style, as its policy requires.
func TestPageNeedsOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	c := newDaemon(t, noon).console(t, nil)
	resp, body := get(t, c, "/")
	policy := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"} {
		assert.Contains(t, policy, want)
	}
	assert.NotContains(t, policy, "unsafe")
	assert.NotRegexp(t, `<style|<script>|\son\w+=|\sstyle=`, body)
	assert.Contains(t, body, `data-edition="`+resp.Header.Get("Brim-Page")+`"`)

	wanted := regexp.MustCompile(`(?:src|href)="(/page/[^"]+)"`).FindAllStringSubmatch(body, -1)
	require.NotEmpty(t, wanted)
	seen := map[string]bool{}
	for len(wanted) > 0 { // and what modules import
		target := wanted[0][1]
		wanted = wanted[1:]
		if seen[target] {
			continue
		}
		seen[target] = true
		resp, file := get(t, c, target)
		require.Equal(t, http.StatusOK, resp.StatusCode, target)
		assert.NotEmpty(t, resp.Header.Get("ETag"), target)
		if !strings.HasSuffix(target, ".js") {
			assert.Equal(t, "text/css; charset=utf-8", resp.Header.Get("Content-Type"), target)
			assert.NotRegexp(t, `url\(|@import`, file, target)
			continue
		}
		assert.Equal(t, "text/javascript; charset=utf-8", resp.Header.Get("Content-Type"), target)
		for _, imported := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(file, -1) {
			wanted = append(wanted, []string{"", "/page/" + imported[1]})
		}
	}
	for _, file := range []string{"uplot.js", "chart.js", "chart.css", "page.css", "main.js", "overview.js", "sensors.js", "sensor.js", "tags.js", "timeline.js"} {
		assert.True(t, seen["/page/"+file], file)
	}
	for _, none := range []string{"/page/page.html", "/page/", "/page/../console.go"} {
		resp, _ := get(t, c, none)
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, none)
	}
}

func TestFilesAreSentOnce(t *testing.T) {
	t.Parallel()
	c := newDaemon(t, noon).console(t, nil)
	resp, _ := get(t, c, "/page/main.js")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/page/main.js", http.NoBody)
	r.Header.Set("If-None-Match", resp.Header.Get("ETag"))
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	assert.Equal(t, http.StatusNotModified, w.Code)
	assert.Empty(t, w.Body.String())
}

// TestSecondsAreSentOnce: a page does not get them again.
func TestSecondsAreSentOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	c.sample()
	d.run(c, 3)
	read := func(target string) (s seconds) {
		resp, body := get(t, c, target)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, json.Unmarshal([]byte(body), &s), body)
		return s
	}
	all := read("/console/seconds")
	require.Len(t, all.At, 4)
	assert.Equal(t, noon.Add(3*time.Second).UnixMilli(), all.Now)
	assert.Equal(t, all.Now, all.At[3])
	assert.InDelta(t, 2004, all.In[3], 1e-3)
	require.Len(t, all.Streams, 2)
	assert.Equal(t, "readings", all.Streams[0].Name)
	for _, column := range []chart.Values{all.Stored, all.Lag, all.Queue, all.Journal, all.Streams[0].P50, all.Streams[1].Fill} {
		assert.Len(t, column, 4)
	}
	assert.Len(t, all.Streams[0].ByFill.P99, 10)
	assert.InEpsilon(t, 0.0009, all.Streams[1].ByFill.P50[0], 0.5)

	d.run(c, 2)
	next := read("/console/seconds?after=" + strconv.FormatInt(all.At[3], 10))
	assert.Equal(t, []int64{noon.Add(4 * time.Second).UnixMilli(), noon.Add(5 * time.Second).UnixMilli()}, next.At)
	assert.Empty(t, read("/console/seconds?after="+strconv.FormatInt(next.At[1], 10)).At)
	resp, body := get(t, c, "/console/seconds?after=noon")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, `after "noon" is not a time`)
}

func TestRenderingIsShared(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	var mu sync.Mutex
	asked := 0
	c := d.console(t, func(cfg *Config) {
		cfg.Parts = func() []Part {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return nil
		}
	})
	c.sample()
	d.run(c, 3)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			resp, _ := get(t, c, "/console")
			assert.Equal(t, http.StatusOK, resp.StatusCode)
		})
		group.Go(c.sample)
	}
	group.Wait()
	assert.Equal(t, 1, asked)
	d.sleep(time.Second)
	get(t, c, "/console")
	assert.Equal(t, 2, asked)
}

func TestRunSamplesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, func(cfg *Config) { cfg.Interval, cfg.Now = 10*time.Millisecond, nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.history.seconds) > 3
	}, time.Minute, 5*time.Millisecond)
	cancel()
	<-done
}

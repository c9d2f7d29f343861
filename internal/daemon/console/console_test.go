package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		"v0.3.0", "Readings are accepted and stored", "at 12:01:01",
		"<title>Write latency</title>", "<title>Write latency by bucket fill</title>", "<title>Journal</title>",
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
}

func TestEmptyPageShowsHowToSend(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	_, body := get(t, c, "/")
	assert.Contains(t, body, `curl http://127.0.0.1:8430/v1/readings`)
	assert.Contains(t, body, "no data yet")
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
	assert.Contains(t, one, "Writes to readings")
	_, whole := get(t, c, "/?stream=readings")
	assert.Contains(t, whole, `<option value="readings" selected>`)
	_, gone := get(t, c, "/console?stream=gone")
	assert.Contains(t, gone, "Writes to all streams")
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
	assert.Contains(t, body, "Nothing slows writes down")
	finding := doctor.Finding{Name: "disk_iops", Cause: "IOPS-bound: much", Class: doctor.Bottleneck, Evidence: "busy 92 %", Action: "merge more", Cost: "a restart"}
	other := finding
	other.Action, other.Cost = "buy", "money"
	found = Diagnosis{Note: "dirty is normal", Findings: []doctor.Finding{finding, other}}
	d.sleep(time.Second)
	_, body = get(t, c, "/console")
	assert.NotContains(t, body, "Nothing slows writes down")
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

func TestContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	resp, body := get(t, newDaemon(t, noon).console(t, nil), "/")
	policy := resp.Header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "connect-src 'self'")
	assert.NotContains(t, policy, "unsafe")
	for _, element := range []string{"style", "script"} {
		inline := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(body, -1)
		require.Len(t, inline, 1)
		sum := sha256.Sum256([]byte(inline[0][1]))
		assert.Contains(t, policy, element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	assert.NotRegexp(t, `\son\w+=`, body, "no inline handlers")
	assert.NotRegexp(t, `\sstyle=`, body, "no inline styles")
	edition := regexp.MustCompile(`data-edition="([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, edition)
	assert.Equal(t, resp.Header.Get("Brim-Page"), strings.ReplaceAll(edition[1], "&#43;", "+"))
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

package deploy_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/doctor"
)

var update = flag.Bool("update", false, "write the generated part of RUNBOOK.md")

// An alert is a rule from prometheus/alerts.yml. Some rules only record inputs
// of alerts.
type alert struct {
	Alert       string
	Record      string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t testing.TB) []alert {
	t.Helper()
	return slices.DeleteFunc(readRules(t), func(a alert) bool { return a.Record != "" })
}

func readRules(t testing.TB) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	decode(t, "prometheus/alerts.yml", &file)
	var out []alert
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	require.NotEmpty(t, out)
	return out
}

// comparison is the end of an alert's expression, as required by alerts.yml.
var comparison = regexp.MustCompile(`\s*[<>]\s+[0-9.]+$`)

// left is the expression without its comparison; empty if it has none.
func (a alert) left() string {
	at := comparison.FindStringIndex(a.Expr)
	if at == nil {
		return ""
	}
	return a.Expr[:at[0]]
}

// ofSecured reports whether the rule uses metrics that only a daemon with TLS
// and an access file has.
func (a alert) ofSecured() bool {
	return strings.Contains(a.Expr, "brim_tls_") || strings.Contains(a.Expr, "brim_access_file_")
}

func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, a := range readAlerts(t) {
		assert.False(t, seen[a.Alert], "two alerts %s", a.Alert)
		seen[a.Alert] = true
		assert.NotEmpty(t, a.left(), "%s has not the form LEFT OP NUMBER", a.Alert)
		assert.Contains(t, []string{"warning", "critical"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.Contains(t, a.Annotations["description"], "{{", "%s: what is described must be named", a.Alert)
		assert.Len(t, a.Annotations, 3, a.Alert)
	}
}

// sections returns the sections of some of the runbook's chapters, by title.
func sections(t testing.TB, chapters ...string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("RUNBOOK.md")
	require.NoError(t, err)
	out := make(map[string]string)
	for _, chapter := range strings.Split(string(text), "\n## ")[1:] {
		name, _, _ := strings.Cut(chapter, "\n")
		if !slices.Contains(chapters, name) {
			continue
		}
		for _, s := range strings.Split(chapter, "\n### ")[1:] {
			title, body, _ := strings.Cut(s, "\n")
			require.Empty(t, out[title], "two sections %s", title)
			out[title] = body
			for _, part := range []string{"**Symptom:**", "**Look:**", "**Do:**"} {
				assert.Contains(t, body, part, title)
			}
		}
	}
	require.NotEmpty(t, out, "sections of %v", chapters)
	return out
}

func TestEachAlertHasItsSectionInTheRunbook(t *testing.T) {
	t.Parallel()
	there := sections(t, "The daemon and its readings", "MongoDB's storage engine and its disk", "Trends")
	for _, a := range readAlerts(t) {
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		assert.True(t, strings.HasSuffix(page, "/deploy/RUNBOOK.md"), a.Alert)
		assert.Equal(t, strings.ToLower(a.Alert), anchor, "as GitHub makes it of a single word")
		assert.Contains(t, there, a.Alert)
		delete(there, a.Alert)
	}
	assert.Empty(t, there, "sections of no alert")
}

// TestRunbookHasTheDoctorsRemedies: the runbook has the texts of `brim doctor`.
// -update writes them.
func TestRunbookHasTheDoctorsRemedies(t *testing.T) {
	t.Parallel()
	const begins, ends = "of the table that `brim doctor` uses. -->\n", "\n## Settings that brim doctor names"
	text, err := os.ReadFile("RUNBOOK.md")
	require.NoError(t, err)
	before, rest, begun := strings.Cut(string(text), begins)
	got, after, ended := strings.Cut(rest, ends)
	require.True(t, begun && ended)
	if *update {
		require.NoError(t, os.WriteFile("RUNBOOK.md", []byte(before+begins+doctor.Runbook()+ends+after), 0o644)) //nolint:gosec // it is a document
		return
	}
	assert.Equal(t, doctor.Runbook(), got, "go test ./deploy -run TestRunbookHasTheDoctorsRemedies -update")
	there := sections(t, "What brim doctor finds")
	for _, heading := range regexp.MustCompile(`\n### (\w+)`).FindAllStringSubmatch(got, -1) {
		assert.Contains(t, there, heading[1])
		delete(there, heading[1])
	}
	assert.Empty(t, there, "sections of no diagnosis")
	sections(t, "Starts and maintenance")
}

// anchor is GitHub's anchor for a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestLinksInsideTheRunbookLeadSomewhere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("RUNBOOK.md")
	require.NoError(t, err)
	headings := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		headings[anchor(m[1])] = true
	}
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, links)
	for _, m := range links {
		assert.True(t, headings[m[1]], "no section %s", m[0])
	}
}

// A quoted name with an initial capital is a panel's.
var quoted = regexp.MustCompile(`"([A-Z][^"]*)"`)

func TestRunbookNamesPanelsThatExist(t *testing.T) {
	t.Parallel()
	titles := make(map[string]bool)
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			titles[p.Title] = true
		}
	}
	text, err := os.ReadFile("RUNBOOK.md")
	require.NoError(t, err)
	found := quoted.FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		assert.True(t, titles[m[1]], "no panel %s", m[0])
	}
}

func promtool(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.Command(brimtest.Program(t, "promtool"), args...).CombinedOutput()
	require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
}

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus/prometheus.yml")
	promtool(t, "check", "rules", "prometheus/alerts.yml")
}

func ruleTests(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("prometheus/*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

func TestAlertsFireAndAreSilent(t *testing.T) {
	t.Parallel()
	for _, path := range ruleTests(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", path)
		})
	}
}

// promtool cannot check that each alert has a case for both.
func TestEachAlertIsSeenFiringAndSilent(t *testing.T) {
	t.Parallel()
	firing, silent := make(map[string]bool), make(map[string]bool)
	for _, path := range ruleTests(t) {
		var file struct {
			Tests []struct {
				Cases []struct {
					Alertname string
					Alerts    []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &file), path)
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				firing[c.Alertname] = firing[c.Alertname] || len(c.Alerts) > 0
				silent[c.Alertname] = silent[c.Alertname] || len(c.Alerts) == 0
			}
		}
	}
	for _, a := range readAlerts(t) {
		assert.True(t, firing[a.Alert], "%s never fires in a test", a.Alert)
		assert.True(t, silent[a.Alert], "%s is never silent in a test", a.Alert)
	}
}

// Bounds that an alert shares with the doctor must be equal.
func TestAlertsUseTheDoctorsBounds(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect() // does not connect
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	monitor, err := doctor.New(doctor.Config{Database: client.Database("brim")})
	require.NoError(t, err)
	want := make(map[string]float64)
	for _, signal := range monitor.Signals() {
		switch signal.Name {
		case "disk_free":
			want["BrimDiskFillsUp"] = signal.Threshold.Bottleneck / 100
		case "cache_dirty":
			want["BrimCacheDirty"] = signal.Threshold.Bottleneck / 100
		case "checkpoint_duration":
			want["BrimCheckpointSlow"] = signal.Threshold.Bottleneck
		case "application_evictions":
			want["BrimApplicationEvictions"] = signal.Threshold.Degrading
		case "processor":
			want["BrimProcessorBusy"] = signal.Threshold.Bottleneck / 100
		}
	}
	require.Len(t, want, 5)
	for _, a := range readAlerts(t) {
		if bound, ok := want[a.Alert]; ok {
			got, err := strconv.ParseFloat(a.Expr[strings.LastIndexByte(a.Expr, ' ')+1:], 64)
			require.NoError(t, err, a.Alert)
			assert.InDelta(t, bound, got, 1e-9, a.Alert)
		}
	}
}

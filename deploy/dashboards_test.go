package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dashboard is the part of Grafana's JSON that these tests use.
type dashboard struct {
	path          string
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name     string `json:"name"`
			Type     string `json:"type"`
			AllValue string `json:"allValue"`
			Current  struct {
				Value any `json:"value"`
			} `json:"current"`
			Definition string `json:"definition"`
			Regex      string `json:"regex"`
			IncludeAll bool   `json:"includeAll"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID         int    `json:"id"`
		Type       string `json:"type"`
		Title      string `json:"title"`
		Datasource struct {
			Type string `json:"type"`
			UID  string `json:"uid"`
		} `json:"datasource"`
		Targets []struct {
			RefID        string `json:"refId"`
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
			Instant      bool   `json:"instant"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboards(t testing.TB) []dashboard {
	t.Helper()
	paths, err := filepath.Glob("grafana/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, paths, 4)
	out := make([]dashboard, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &out[i]), path)
		out[i].path = filepath.Base(path)
	}
	return out
}

// ofBrim returns the dashboards about Brim itself, whose data source is a Prometheus.
func ofBrim(t testing.TB) []dashboard {
	t.Helper()
	return slices.DeleteFunc(readDashboards(t), func(d dashboard) bool { return d.path == "sensors.json" })
}

// source is a dashboard's first variable, which selects the data source.
func (d dashboard) source(t testing.TB) string {
	t.Helper()
	first := d.Templating.List[0]
	require.Equal(t, "datasource", first.Type, d.path)
	return first.Name
}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

func TestDashboardsHoldTogether(t *testing.T) {
	t.Parallel()
	uids := make(map[string]bool)
	for _, d := range readDashboards(t) {
		assert.False(t, uids[d.UID], "%s: two dashboards of one uid", d.path)
		uids[d.UID] = true
		assert.Equal(t, 39, d.SchemaVersion, d.path)

		known := map[string]bool{"__rate_interval": true, "__range": true, "__interval": true, "__interval_ms": true} // Grafana's own
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		ids := make(map[int]bool)
		for _, p := range d.Panels {
			name := d.path + ": " + p.Title
			assert.False(t, ids[p.ID], "%s: two panels of one id", name)
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			assert.Equal(t, "prometheus", p.Datasource.Type, name)
			assert.Equal(t, "${"+d.source(t)+"}", p.Datasource.UID, name)
			refs := make(map[string]bool)
			for _, q := range p.Targets {
				assert.False(t, refs[q.RefID], "%s: two queries %s", name, q.RefID)
				refs[q.RefID] = true
				for _, m := range variable.FindAllStringSubmatch(q.Expr+" "+q.LegendFormat+" "+p.Title, -1) {
					assert.True(t, known[m[1]], "%s: unknown variable %s", name, m[0])
				}
			}
		}
	}
}

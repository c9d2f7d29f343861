package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// decode reads a YAML file and rejects unknown keys.
func decode(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(into), path)
}

func TestGrafanaFindsItsDataAndTheDashboards(t *testing.T) {
	t.Parallel()
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			JSONData                     struct {
				TimeInterval string `yaml:"timeInterval"`
				HTTPMethod   string `yaml:"httpMethod"`
				Type         string `yaml:"prometheusType"`
				Version      string `yaml:"prometheusVersion"`
			} `yaml:"jsonData"`
		}
	}
	decode(t, "grafana/provisioning/datasources/prometheus.yml", &sources)
	require.Len(t, sources.Datasources, 2)
	source, readings := sources.Datasources[0], sources.Datasources[1]
	assert.True(t, source.IsDefault)
	assert.False(t, readings.IsDefault)
	uids := make(map[string]bool)
	for _, s := range sources.Datasources {
		assert.Equal(t, "prometheus", s.Type)
		uids[s.UID] = true
	}
	assert.True(t, strings.HasPrefix(readings.Name, "Brim"), "what the variable of Sensors looks for")

	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type, Folder string
			AllowUIUpdates     bool `yaml:"allowUiUpdates"`
			Options            struct{ Path string }
		}
	}
	decode(t, "grafana/provisioning/dashboards/brim.yml", &providers)
	require.Len(t, providers.Providers, 1)
	assert.Equal(t, "file", providers.Providers[0].Type)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Equal(t, "$DASHBOARDS", providers.Providers[0].Options.Path)
	assert.Contains(t, string(readme), "export DASHBOARDS=", "the variable that names the folder")

	// The default selection exists.
	for _, d := range readDashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				assert.True(t, uids[fmt.Sprint(v.Current.Value)], d.path)
				assert.Equal(t, d.path == "sensors.json", v.Current.Value == readings.UID, d.path)
			}
		}
	}
	// $__rate_interval is four times this and must cover more than two scrapes.
	var prometheus struct {
		Global struct {
			ScrapeInterval string `yaml:"scrape_interval"`
		}
	}
	text, err := os.ReadFile("prometheus/prometheus.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &prometheus))
	assert.Equal(t, prometheus.Global.ScrapeInterval, source.JSONData.TimeInterval)
}

package deploy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
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

// startSensors returns the query API of a daemon with an hour of readings of three sensors,
// one per minute, except that the last 30 minutes of s-3 are missing.
func startSensors(t *testing.T) *server {
	t.Helper()
	brim := start(t, binary.Path(t), "serve", "--mongo-uri", mongodtest.URI(t), "--database", mongodtest.Database(t).Name(), "--data-dir", t.TempDir(), "--log-format", "json",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	target := "http://" + brim.AwaitLog("listening")["http"].(string)
	brim.AwaitLog("ready")
	var body strings.Builder
	now := time.Now()
	for minute := range 60 {
		for i, tags := range []string{`"site":"north","type":"pt 100"`, `"site":"south","type":"pt 100"`, `"site":"south"`} {
			if i == 2 && minute < 30 {
				continue
			}
			fmt.Fprintf(&body, `{"sensorId":"s-%d","ts":%d,"tags":{%s},"fields":{"t":%d,"hum %%":50,"ok":true}}`+"\n",
				i+1, now.Add(-time.Duration(minute)*time.Minute).UnixMilli(), tags, 10*(i+1)-minute)
		}
	}
	code, answer, err := brimtest.Ask(http.MethodPost, target+"/v1/readings", body.String())
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)
	s := &server{t: t, url: target + "/prometheus"}
	brim.Await("the catalog of sensors", func() bool {
		found, err := s.options("label_names()")
		return err == nil && len(found) > 0
	})
	return s
}

var labelValues = regexp.MustCompile(`^label_values\((?:(.+), ?)?([^,]+)\)$`)

// options are the values that Grafana offers for a variable.
func (s *server) options(definition string) (found []string, err error) {
	path := "/api/v1/labels"
	if definition != "label_names()" {
		m := labelValues.FindStringSubmatch(definition)
		require.NotNil(s.t, m, definition)
		path = "/api/v1/label/" + url.PathEscape(m[2]) + "/values"
		if m[1] != "" {
			path += "?match[]=" + url.QueryEscape(m[1])
		}
	}
	return found, s.get(path, &found)
}

// rangeOf evaluates an expression over the last hour, and returns the newest value of each
// series.
func (s *server) rangeOf(expr string) (out []series, err error) {
	now := time.Now().Unix() + 1 // later than what was just sent
	var answer struct {
		Result []struct {
			Metric map[string]string    `json:"metric"`
			Values [][2]json.RawMessage `json:"values"`
		} `json:"result"`
	}
	q := url.Values{"query": {expr}, "start": {fmt.Sprint(now - 3600)}, "end": {fmt.Sprint(now)}, "step": {"60"}}
	if err := s.get("/api/v1/query_range?"+q.Encode(), &answer); err != nil {
		return nil, err
	}
	for _, r := range answer.Result {
		text, err := strconv.Unquote(string(r.Values[len(r.Values)-1][1]))
		require.NoError(s.t, err)
		v, err := strconv.ParseFloat(text, 64)
		require.NoError(s.t, err)
		out = append(out, series{labels: r.Metric, value: v})
	}
	return out, nil
}

// TestSensorsDashboardAnswers selects each variable of the dashboard Sensors from what
// Brim offers, and runs the query of each panel.
func TestSensorsDashboardAnswers(t *testing.T) {
	t.Parallel()
	all := readDashboards(t)
	d := all[slices.IndexFunc(all, func(d dashboard) bool { return d.path == "sensors.json" })]
	s := startSensors(t)
	for _, want := range []map[string]string{
		{"tag": "sensor", "field": "hum %"}, // the first ones offered
		{"tag": "site", "value": "(south|north)", "field": "t", "sensor": "(s-1|s-2|s-3)"},
		{"tag": "type", "value": "pt 100", "field": "ok"},
	} {
		chosen := []string{"$__interval_ms", "60000", "$__interval", "1m", "$__range", "3600s"}
		fill := func(text string) string { return strings.NewReplacer(chosen...).Replace(text) }
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				value := fmt.Sprint(v.Current.Value)
				chosen = append(chosen, "$"+v.Name, value)
				continue
			}
			found, err := s.options(fill(v.Definition))
			require.NoError(t, err, v.Definition)
			if v.Name == "tag" {
				assert.Equal(t, `/^(?!__name__$).+$/`, v.Regex)
				found = slices.DeleteFunc(found, func(name string) bool { return name == "__name__" })
			}
			require.NotEmpty(t, found, v.Definition)
			value := want[v.Name]
			switch {
			case value == "" && v.IncludeAll:
				value = v.AllValue
			case value == "":
				value = found[0]
			case !v.IncludeAll:
				assert.Contains(t, found, value, v.Definition)
			}
			chosen = append(chosen, "$"+v.Name, value)
		}
		values := make(map[string][]series)
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				ask := s.rangeOf
				if q.Instant {
					ask = s.query
				}
				found, err := ask(fill(q.Expr))
				require.NoError(t, err, "%s, %s: %s", p.Title, q.RefID, fill(q.Expr))
				assert.NotEmpty(t, found, "%s, %s: %s", p.Title, q.RefID, fill(q.Expr))
				for _, one := range found {
					assert.False(t, math.IsNaN(one.value), p.Title)
					for _, m := range legendLabel.FindAllStringSubmatch(fill(q.LegendFormat), -1) {
						assert.NotEmpty(t, one.labels[m[1]], "%s: %s", p.Title, m[0])
					}
				}
				values[p.Title+" "+q.RefID] = found
			}
		}
		if want["field"] == "t" {
			holdsSouthAndNorth(t, values)
		}
	}
	silent := ""
	for _, p := range d.Panels {
		if p.Title == "Silent" {
			silent = p.Targets[0].Expr
		}
	}
	found, err := s.query(strings.NewReplacer("$__range", "600s", "$silent", "1d", "$field", "t", "$tag", "site", "$value", ".*", "$sensor", ".*").Replace(silent))
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Zero(t, found[0].value, "\"Silent after\" is longer than the page's time range")
}

// holdsSouthAndNorth compares what the panels show of all three sensors with what was sent.
func holdsSouthAndNorth(t *testing.T, values map[string][]series) {
	t.Helper()
	only := func(panel string) float64 {
		require.Len(t, values[panel], 1, panel)
		return values[panel][0].value
	}
	of := func(panel, label string) map[string]float64 {
		out := make(map[string]float64)
		for _, one := range values[panel] {
			out[one.labels[label]] = one.value
		}
		return out
	}
	assert.InDelta(t, 3, only("Sensors A"), 0)
	assert.InDelta(t, 1, only("Silent A"), 0, "s-3")
	assert.InDelta(t, 20, only("Highest A"), 0)
	assert.Less(t, only("Age of the newest reading A"), 60.)
	assert.InDelta(t, 2, only("Sensors that report A"), 0)
	assert.InDelta(t, 3, only("Sensors that report B"), 0)
	assert.Equal(t, map[string]float64{"s-1": 10, "s-2": 20, "s-3": 0}, of("Latest values A", "sensor"))
	assert.InDelta(t, 30, of("Latest values E", "sensor")["s-3"], 0, "readings")
	assert.InDelta(t, 30*60, of("Latest values F", "sensor")["s-3"], 120, "age")
	assert.InDelta(t, 30*60, of("Longest without a reading A", "sensor")["s-3"], 120)
	assert.Equal(t, map[string]float64{"north": 1, "south": 2}, of("Sensors by $tag A", "site"))
	assert.Equal(t, map[string]float64{"north": 10, "south": 20}, of("Mean by $tag A", "site"))
}

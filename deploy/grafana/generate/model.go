package main

import "cmp"

// What follows is Grafana's JSON (schema 39, Grafana 10 and 11), as much of it
// as is used.
type (
	object = map[string]any // options and such, whose keys differ by type of panel

	jsonDashboard struct {
		UID           string      `json:"uid"`
		Title         string      `json:"title"`
		Description   string      `json:"description"`
		Tags          []string    `json:"tags"`
		SchemaVersion int         `json:"schemaVersion"`
		Editable      bool        `json:"editable"`
		GraphTooltip  int         `json:"graphTooltip"` // 1: the same instant is marked in all panels
		Refresh       string      `json:"refresh"`
		Time          object      `json:"time"`
		Links         []object    `json:"links"`
		Templating    object      `json:"templating"`
		Panels        []jsonPanel `json:"panels"`
	}

	jsonPanel struct {
		ID              int          `json:"id"`
		Type            string       `json:"type"`
		Title           string       `json:"title"`
		Description     string       `json:"description,omitempty"`
		GridPos         gridPos      `json:"gridPos"`
		Datasource      *source      `json:"datasource,omitempty"`
		Targets         []target     `json:"targets,omitempty"`
		Transformations []object     `json:"transformations,omitempty"`
		Interval        string       `json:"interval,omitempty"`
		FieldConfig     *fieldConfig `json:"fieldConfig,omitempty"`
		Options         object       `json:"options,omitempty"`
		// Of rows: open, so that no panels are inside.
		Collapsed *bool        `json:"collapsed,omitempty"`
		Panels    *[]jsonPanel `json:"panels,omitempty"`
	}

	gridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	}

	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}

	target struct {
		RefID        string  `json:"refId"`
		Datasource   *source `json:"datasource"`
		Expr         string  `json:"expr"`
		LegendFormat string  `json:"legendFormat"`
		Format       string  `json:"format"`
		Instant      bool    `json:"instant"`
		Range        bool    `json:"range"`
	}

	fieldConfig struct {
		Defaults  object   `json:"defaults"`
		Overrides []object `json:"overrides"`
	}
)

const width = 24 // columns of Grafana's grid

// prometheus is the data source that a variable chooses.
func prometheus(variable string) *source {
	return &source{Type: "prometheus", UID: "${" + variable + "}"}
}

func (d dashboard) model() jsonDashboard {
	d.source, d.from, d.refresh = cmp.Or(d.source, "datasource"), cmp.Or(d.from, "now-15m"), cmp.Or(d.refresh, "5s")
	if d.variables == nil {
		d.variables = variables()
	}
	out := jsonDashboard{
		UID: "brim-" + d.name, Title: d.title, Description: d.about, Tags: []string{"brim"},
		SchemaVersion: 39, Editable: true, GraphTooltip: 1, Refresh: d.refresh,
		Time: object{"from": d.from, "to": "now"},
		Links: []object{{
			"type": "dashboards", "title": "Brim", "tags": []string{"brim"},
			"asDropdown": false, "includeVars": true, "keepTime": true,
			"icon": "external link", "targetBlank": false, "tooltip": "",
		}},
		Templating: object{"list": d.variables},
	}
	y := 0
	add := func(p jsonPanel) {
		p.ID = len(out.Panels) + 1
		out.Panels = append(out.Panels, p)
	}
	for _, r := range d.rows {
		add(jsonPanel{Type: "row", Title: r.title, GridPos: gridPos{Y: y, W: width, H: 1}, Collapsed: new(bool), Panels: &[]jsonPanel{}})
		y++
		x, tallest := 0, 0
		for _, p := range r.panels {
			at := p.size()
			if x+at.W > width {
				x, y, tallest = 0, y+tallest, 0
			}
			at.X, at.Y = x, y
			add(p.model(at, prometheus(d.source)))
			x, tallest = x+at.W, max(tallest, at.H)
		}
		y += tallest
	}
	return out
}

// variables are the choices on top of pages about Brim itself.
func variables() []object {
	const streams = "label_values(brim_store_write_seconds_count, stream)"
	return []object{
		{
			"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
			"current": object{"text": "Prometheus", "value": "prometheus"}, "refresh": 1,
		},
		{
			"type": "query", "name": "stream", "label": "Stream", "datasource": prometheus("datasource"),
			"definition": streams, "query": object{"qryType": 1, "query": streams, "refId": "stream"},
			"multi": true, "includeAll": true, "allValue": ".*", "sort": 1, "refresh": 2, // refresh 2: when the time range changes
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		},
	}
}

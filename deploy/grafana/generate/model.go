package main

import "cmp"

// An object is a Grafana JSON object (schema 39, Grafana 10 and 11), limited to the parts in use.
type object = map[string]any

const width = 24 // columns of Grafana's grid

// prometheus is the data source that a variable selects.
func prometheus(variable string) object {
	return object{"type": "prometheus", "uid": "${" + variable + "}"}
}

func (d dashboard) model() object {
	source, choices := prometheus(cmp.Or(d.source, "datasource")), d.variables
	if choices == nil {
		choices = variables()
	}
	var panels []object
	add := func(p object, x, y, w, h int) {
		p["id"], p["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	y := 0
	for _, r := range d.rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 0, y, width, 1)
		y++
		x, tallest := 0, 0
		for _, p := range r.panels {
			w, h := p.size()
			if x+w > width {
				x, y, tallest = 0, y+tallest, 0
			}
			add(p.model(source), x, y, w, h)
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
	}
	return object{
		"uid": "brim-" + d.name, "title": d.title, "description": d.about, "tags": []string{"brim"},
		"schemaVersion": 39, "editable": true,
		"graphTooltip": 1, // shared crosshair in all panels
		"refresh":      cmp.Or(d.refresh, "5s"), "time": object{"from": cmp.Or(d.from, "now-15m"), "to": "now"},
		"links": []object{{
			"type": "dashboards", "title": "Brim", "tags": []string{"brim"},
			"asDropdown": false, "includeVars": true, "keepTime": true,
			"icon": "external link", "targetBlank": false, "tooltip": "",
		}},
		"templating": object{"list": choices}, "panels": panels,
	}
}

// variables are the selectors at the top of pages about Brim itself.
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

package main

import "cmp"

// kind is a panel type.
type kind string

const (
	graph   kind = "timeseries" // the default
	number  kind = "stat"
	bars    kind = "barchart" // by the label that the queries are grouped by
	heatmap kind = "heatmap"
	states  kind = "state-timeline"
	table   kind = "table"    // a row per label set, a column per query
	gauge   kind = "bargauge" // a bar per label set
	band    kind = "band"     // a graph of minimum, mean and maximum
)

// Units, by Grafana's names.
const (
	seconds     = "s"
	inBytes     = "bytes"
	bytesPerSec = "Bps"
	perSec      = "cps"   // readings, updates, pages
	requestsSec = "reqps" // requests
	opsSec      = "ops"   // operations of the disk or the database
	share       = "percentunit"
	count       = "short"
)

// A panel is one plot or table, with its queries.
type panel struct {
	title   string
	about   string // what to look for
	kind    kind
	unit    string
	queries []query
	warn    float64 // where a line marks that it gets worse; 0: none
	alarm   float64 // where a line marks that it is bad
	low     bool    // bad is below the lines, not above
	stack   bool
	name    bool   // a number shows its name instead of its value
	signed  bool   // values may be below 0
	by      string // of bars: the label beneath them
	instant bool   // a number is the value at the end of the time range
	// interval is the shortest step; empty: the data source's.
	interval string
	width    int // of 24; 0: a third, for numbers a sixth
	height   int
}

// A query gives one line, or several with different labels. right is the unit
// of the right axis if it uses that one; empty: the left axis.
type query struct {
	legend, expr string
	right        string
}

func (p panel) size() (w, h int) {
	w, h = width/3, 8
	if p.kind == number {
		w, h = width/6, 4
	}
	return cmp.Or(p.width, w), cmp.Or(p.height, h)
}

func (p panel) model(from object) object {
	p.kind = cmp.Or(p.kind, graph)
	shown := p.kind
	if shown == band {
		shown = graph
	}
	out := object{
		"type": shown, "title": p.title, "description": p.about, "datasource": from, "targets": p.targets(from),
		"fieldConfig": object{"defaults": p.defaults(), "overrides": p.overrides()}, "options": p.options(),
	}
	if p.interval != "" {
		out["interval"] = p.interval
	}
	if steps := p.transformations(); steps != nil {
		out["transformations"] = steps
	}
	return out
}

func refID(i int) string { return string(rune('A' + i)) }

func (p panel) targets(from object) []object {
	format := map[kind]string{bars: "table", table: "table", heatmap: "heatmap"}
	out := make([]object, 0, len(p.queries))
	for i, q := range p.queries {
		instant := p.instant || p.kind == gauge || p.kind == bars || p.kind == table
		out = append(out, object{
			"refId": refID(i), "datasource": from, "expr": q.expr, "legendFormat": q.legend,
			"format": cmp.Or(format[p.kind], "time_series"), "instant": instant, "range": !instant,
		})
	}
	return out
}

// transformations join the values of several queries: for a table into columns after the
// labels, for bars by the label beneath them.
func (p panel) transformations() []object {
	if p.kind != bars && p.kind != table {
		return nil
	}
	names, hidden := object{}, object{"Time": true}
	for i, q := range p.queries {
		names["Value #"+refID(i)] = q.legend
	}
	organize := object{"id": "organize", "options": object{"excludeByName": hidden, "indexByName": object{}, "renameByName": names}}
	if p.kind == table {
		hidden["__name__"] = true
		return []object{{"id": "merge", "options": object{}}, organize}
	}
	names["Value"] = p.queries[0].legend // a single query
	for i := range p.queries {
		hidden["Time "+string(rune('1'+i))] = true
	}
	return []object{
		{"id": "joinByField", "options": object{"byField": p.by, "mode": "outer"}},
		organize,
		{"id": "sortBy", "options": object{"fields": object{}, "sort": []object{{"field": p.by}}}},
	}
}

// defaults returns the value options that differ from Grafana's defaults.
func (p panel) defaults() object {
	d := object{"unit": p.unit, "thresholds": p.thresholds(), "color": object{"mode": "palette-classic"}}
	if p.kind != states && p.kind != heatmap && !p.signed {
		d["min"] = 0
	}
	switch p.kind {
	case graph, band:
		lines := object{"showPoints": "never"}
		if p.stack {
			lines["stacking"], lines["fillOpacity"] = object{"mode": "normal", "group": "A"}, 30
		}
		if p.warn != 0 || p.alarm != 0 {
			lines["thresholdsStyle"] = object{"mode": "dashed"}
		}
		d["custom"] = lines
	case number, states, gauge:
		d["color"] = object{"mode": "thresholds"}
		if p.kind == states {
			d["mappings"] = []object{{"type": "value", "options": classes()}}
		}
	case bars:
		d["custom"] = object{"lineWidth": 0}
	}
	return d
}

func (p panel) thresholds() object {
	first, middle, last, end := "green", p.warn, "red", p.alarm
	if p.low {
		first, middle, last, end = "red", p.alarm, "green", p.warn
	}
	steps := []object{{"color": first, "value": nil}}
	if middle != 0 {
		steps = append(steps, object{"color": "orange", "value": middle})
	}
	if end != 0 {
		steps = append(steps, object{"color": last, "value": end})
	}
	return object{"mode": "absolute", "steps": steps}
}

// overrides assign queries to the right axis, and fill bands.
func (p panel) overrides() []object {
	out := []object{}
	if p.kind == band { // the maximum is filled down to the minimum
		for _, edge := range []int{0, len(p.queries) - 1} {
			properties := []object{{"id": "custom.lineWidth", "value": 0}, {"id": "color", "value": object{"mode": "fixed", "fixedColor": "blue"}}}
			if edge > 0 {
				properties = append(properties, object{"id": "custom.fillBelowTo", "value": p.queries[0].legend})
			}
			out = append(out, object{"matcher": object{"id": "byName", "options": p.queries[edge].legend}, "properties": properties})
		}
	}
	for i, q := range p.queries {
		if q.right == "" {
			continue
		}
		if p.kind == table { // a column is named after its query
			out = append(out, object{"matcher": object{"id": "byName", "options": q.legend}, "properties": []object{{"id": "unit", "value": q.right}}})
			continue
		}
		properties := []object{
			{"id": "unit", "value": q.right},
			{"id": "custom.axisPlacement", "value": "right"},
			{"id": "custom.lineStyle", "value": object{"fill": "dash", "dash": []int{6, 4}}},
		}
		if q.right == share {
			properties = append(properties, object{"id": "max", "value": 1})
		}
		out = append(out, object{"matcher": object{"id": "byFrameRefID", "options": refID(i)}, "properties": properties})
	}
	return out
}

// options returns the panel options that differ from Grafana's defaults.
func (p panel) options() object {
	all := object{"mode": "multi", "sort": "desc"}
	switch p.kind {
	case number:
		if p.name {
			return object{"textMode": "name"}
		}
		return object{"textMode": "value"}
	case bars:
		return object{"xField": p.by, "orientation": "vertical", "showValue": "never", "tooltip": all}
	case heatmap:
		return object{"showValue": "never", "yAxis": object{"unit": p.unit}, "tooltip": object{"mode": "single", "yHistogram": true}}
	case states:
		return object{"showValue": "never"}
	case table:
		return object{"showHeader": true, "cellHeight": "sm", "sortBy": []object{}}
	case gauge:
		return object{"displayMode": "basic", "orientation": "horizontal", "showUnfilled": true, "reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	}
	return object{"tooltip": all}
}

// classes are the values of brim_storage_health.
func classes() object {
	return object{
		"-1": object{"text": "unknown", "color": "text", "index": 0},
		"0":  object{"text": "healthy", "color": "green", "index": 1},
		"1":  object{"text": "degrading", "color": "orange", "index": 2},
		"2":  object{"text": "bottleneck", "color": "red", "index": 3},
	}
}

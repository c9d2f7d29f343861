package main

// Series selected at the top of Sensors: chosen has a single field. Names are quoted,
// since tags and fields can have any name.
const (
	ofTag  = `{__name__!="", "$tag"=~"$value"}` // a selector must not match all series
	chosen = `{__name__="$field", "$tag"=~"$value", sensor=~"$sensor"}`
	// lastSeen is the time of each sensor's newest reading: exact within the look-back,
	// otherwise rounded to a step of the panel.
	lastSeen = "(timestamp(" + chosen + ") or max_over_time(timestamp(" + chosen + ")[$__range:$__interval]))"
)

// sensors shows the readings themselves, from Brim's own query API.
func sensors() dashboard {
	return dashboard{
		name:  "sensors",
		title: "Brim: sensors",
		about: "The readings stored in Brim. Choose a stream, a tag with its values, a field, and sensors.",
		rows: []row{
			{"Now", sensorsNow()},
			{"Values", values()},
			{"Readings", arrivals()},
		},
		source: "source",
		// Sensors report rarely, and every refresh reads their data.
		from: "now-1h", refresh: "30s",
		variables: sensorVariables(),
	}
}

// sensorVariables are selectors; each narrows the following ones.
func sensorVariables() []object {
	const labelNames, labelValues = 0, 1 // Grafana's numbers for query types
	// Without readings or tags, there is still the label sensor to select.
	choice := func(name, label, query string, kind int, about string) object {
		return object{
			"type": "query", "name": name, "label": label, "description": about, "datasource": prometheus("source"),
			"definition": query, "query": object{"qryType": kind, "query": query, "refId": name},
			"sort": 1, "refresh": 2,
		}
	}
	several := func(v object) object {
		v["multi"], v["includeAll"], v["allValue"] = true, true, ".*"
		v["current"] = object{"text": []string{"All"}, "value": []string{"$__all"}}
		return v
	}
	tag := choice("tag", "Tag", "label_names()", labelNames, "A tag, or the sensor itself.")
	tag["regex"] = "/^(?!__name__$).+$/"
	silent := object{
		"type": "custom", "name": "silent", "label": "Silent after", "query": "1m,5m,15m,1h,6h,1d",
		"description": "A sensor without a reading for this long counts as silent.",
		"current":     object{"text": "15m", "value": "15m", "selected": true}, "options": []object{},
	}
	for _, d := range []string{"1m", "5m", "15m", "1h", "6h", "1d"} {
		silent["options"] = append(silent["options"].([]object), object{"text": d, "value": d, "selected": d == "15m"})
	}
	return []object{
		{
			"type": "datasource", "name": "source", "label": "Stream", "query": "prometheus", "regex": "/^Brim/",
			"description": "A data source whose name begins with Brim: each stream has its own.",
			"current":     object{"text": "Brim", "value": "brim"}, "refresh": 1,
		},
		tag,
		several(choice("value", "Value", "label_values($tag)", labelValues, "Values of the tag.")),
		choice("field", "Field", "label_values("+ofTag+", __name__)", labelValues, "A field of the readings."),
		several(choice("sensor", "Sensor", `label_values({__name__="$field", "$tag"=~"$value"}, sensor)`, labelValues, "The sensors that have this field.")),
		silent,
	}
}

// last is each sensor's newest value in the time range, however old; atEnd is the same
// for each point of a graph.
const (
	last  = "last_over_time(" + chosen + "[$__range])"
	atEnd = "last_over_time(" + chosen + "[$__range] @ end())"
)

func sensorsNow() []panel {
	return []panel{
		{title: "Sensors", kind: number, instant: true, unit: count, queries: each("sensors", "count("+last+")"),
			about: "Sensors with a reading in the page's time range. If a sensor's tags changed in that time, it counts once for each set."},
		{title: "Silent", kind: number, instant: true, unit: count, warn: 1, queries: each("silent", "count("+last+" unless last_over_time("+chosen+"[$silent])) or vector(0)"),
			about: "Those of them without a reading for longer than \"Silent after\"."},
		{title: "Age of the newest reading", kind: number, instant: true, unit: seconds, queries: each("age", "min(time() - "+lastSeen+")"),
			about: "Time since the newest reading of all chosen sensors."},
		{title: "Lowest", kind: number, instant: true, unit: count, signed: true, queries: each("lowest", "min(min_over_time("+chosen+"[$__range]))"), about: "Lowest value of the chosen sensors in the page's time range."},
		{title: "Mean now", kind: number, instant: true, unit: count, signed: true, queries: each("mean", "avg("+last+")"), about: "Mean of the newest values."},
		{title: "Highest", kind: number, instant: true, unit: count, signed: true, queries: each("highest", "max(max_over_time("+chosen+"[$__range]))"), about: "Highest value of the chosen sensors in the page's time range."},
	}
}

func values() []panel {
	const half, most = width / 2, "20"
	return []panel{
		{title: "Latest values", kind: table, unit: count, signed: true, width: width, height: 9, interval: "1m", queries: with(each(
			"Latest", last,
			"Lowest", "min_over_time("+chosen+"[$__range])",
			"Mean", "avg_over_time("+chosen+"[$__range])",
			"Highest", "max_over_time("+chosen+"[$__range])",
			"Readings", "count_over_time("+chosen+"[$__range])"), seconds,
			"Age", "time() - "+lastSeen),
			about: "A line for each sensor with its tags: the newest value and its age, and lowest, mean, highest and number of readings over the page's time range. Click a heading to sort."},
		{title: "$field by sensor", unit: count, signed: true, width: half, height: 9,
			queries: each("{{sensor}}", chosen+" and topk("+most+", "+atEnd+")"),
			about:   "Of more than " + most + " sensors, those with the highest newest values. A line ends when its sensor is silent for longer than the stream's look-back."},
		{title: "Lowest, mean, highest", kind: band, unit: count, signed: true, width: half, height: 9, interval: "1m", queries: each(
			"lowest", "min(min_over_time("+chosen+"[$__interval]))",
			"mean", "avg(avg_over_time("+chosen+"[$__interval]))",
			"highest", "max(max_over_time("+chosen+"[$__interval]))"),
			about: "Of all chosen sensors, for each step of the plot. No reading is left out, however long the page's time range is."},
		{title: "Mean by $tag", unit: count, signed: true, width: half, queries: each("{{$tag}}", `topk(`+most+`, avg by ("$tag") (`+chosen+`))`),
			about: "Mean of the sensors that have the same value of the tag; the " + most + " highest."},
		{title: "Sensors by $tag", kind: gauge, unit: count, width: half, queries: each("{{$tag}}", `topk(`+most+`, count by ("$tag") (`+last+`))`),
			about: "How many sensors have each value of the tag; the " + most + " most frequent."},
	}
}

func arrivals() []panel {
	return []panel{
		{title: "Rate of readings", unit: perSec, interval: "1m", queries: each("readings", "sum(count_over_time("+chosen+"[$__interval])) * 1000 / $__interval_ms"),
			about: "Readings a second of the chosen sensors, by their own time. It falls at the right edge if readings arrive late."},
		{title: "Sensors that report", unit: count, queries: each("within $silent", "count(last_over_time("+chosen+"[$silent]))", "in the whole range", "scalar(count("+atEnd+"))"),
			about: "Sensors with a reading within \"Silent after\". Below the other line, sensors are silent."},
		{title: "Longest without a reading", kind: gauge, unit: seconds, queries: each("{{sensor}}", "topk(20, time() - "+lastSeen+")"),
			about: "Time since the newest reading, of the 20 sensors that have been silent for longest."},
	}
}

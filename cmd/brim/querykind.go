package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// A kind is what the items of an answer are, and how one becomes a row.
type kind struct {
	name   string   // of the array in the answer
	item   string   // what one item is called, with an s for more
	single bool     // the answer is one item itself
	paged  bool     // the daemon gives it page by page
	lines  bool     // it is asked for as NDJSON
	head   []string // columns that every row has
	// row returns the cells under head, and the others by their column. Whole says
	// that nothing may be left out, as in CSV.
	row func(item json.RawMessage, whole bool) (cells []string, fields map[string]json.RawMessage, err error)
	// drawn returns what of a row is drawn: its time, and numbers by field.
	drawn func(item json.RawMessage) (time.Time, map[string]point, error)
	// legend says what is drawn, and last what its last value is called.
	legend, last string
}

// A point is what one row adds to the drawing of a field.
type point struct {
	drawn    float64
	min, max float64 // of the readings that the row stands for
}

// A sensor is one of an answer that lists them.
type sensor struct {
	ID     string    `json:"sensorId"`
	Newest time.Time `json:"newest"`
}

type reading struct {
	Time   string                     `json:"ts"`
	Fields map[string]json.RawMessage `json:"fields"`
	Tags   map[string]json.RawMessage `json:"tags"`
}

type step struct {
	Start  string                                `json:"start"`
	Count  int64                                 `json:"count"`
	Fields map[string]map[string]json.RawMessage `json:"fields"`
}

// decodeItem reads an item of the daemon's answer.
func decodeItem[T any](item json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(item, &v); err != nil {
		return v, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return v, nil
}

// readingsKind has a column for each field; tags are in CSV alone. Names of
// fields have no dot, so that those of tags cannot be taken for one.
func readingsKind() kind {
	return kind{name: "readings", item: "reading", paged: true, head: []string{"ts"}, row: readingRow, drawn: drawnReading, last: "last"}
}

func latestKind() kind {
	k := readingsKind()
	k.single, k.paged = true, false
	return k
}

func readingRow(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
	r, err := decodeItem[reading](item)
	if err != nil {
		return nil, nil, err
	}
	if whole && len(r.Tags) > 0 {
		if r.Fields == nil {
			r.Fields = make(map[string]json.RawMessage, len(r.Tags))
		}
		for name, value := range r.Tags {
			r.Fields["tags."+name] = value
		}
	}
	return []string{r.Time}, r.Fields, nil
}

func drawnReading(item json.RawMessage) (time.Time, map[string]point, error) {
	r, err := decodeItem[reading](item)
	if err != nil {
		return time.Time{}, nil, err
	}
	points := make(map[string]point, len(r.Fields))
	for name, raw := range r.Fields {
		if v, ok := number(raw); ok {
			points[name] = point{drawn: v, min: v, max: v}
		}
	}
	at, err := time.Parse(time.RFC3339Nano, r.Time)
	return at, points, err
}

// number returns a value that is a number.
func number(raw json.RawMessage) (v float64, ok bool) {
	return v, len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &v) == nil
}

// summaryKind has columns such as t.min for what is said of field t.
func summaryKind() kind {
	return kind{
		name: "summary", item: "step", lines: true, head: []string{"start", "count"}, row: stepRow, drawn: drawnStep,
		legend: "drawn: the mean of each step; min and max: of the readings", last: "last mean",
	}
}

func stepRow(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
	s, err := decodeItem[step](item)
	if err != nil {
		return nil, nil, err
	}
	cells := make(map[string]json.RawMessage, 4*len(s.Fields))
	for field, said := range s.Fields {
		for name, value := range said {
			switch {
			case whole:
			case name == "n": // mostly it is the step's count
				continue
			case name == "mean":
				value = rounded(value, max(decimals(said["min"]), decimals(said["max"])))
			}
			cells[field+"."+name] = value
		}
	}
	return []string{s.Start, strconv.FormatInt(s.Count, 10)}, cells, nil
}

// mostDecimals is how many are taken for digits that somebody meant.
const mostDecimals = 8

// decimals is how many digits a number has behind its point.
func decimals(raw json.RawMessage) int {
	if bytes.ContainsAny(raw, "eE") {
		return mostDecimals + 1
	}
	_, behind, _ := strings.Cut(string(raw), ".")
	return len(behind)
}

// rounded is a mean as people compare it: with two more digits behind the point
// than the values have, or ten in all where these have too many.
func rounded(raw json.RawMessage, places int) json.RawMessage {
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	if places > mostDecimals {
		return strconv.AppendFloat(nil, v, 'g', 10, 64)
	}
	out := strconv.AppendFloat(nil, v, 'f', places+2, 64)
	out = bytes.TrimSuffix(bytes.TrimRight(out, "0"), []byte("."))
	if string(out) == "-0" {
		return json.RawMessage("0")
	}
	return out
}

// inColumns compares names of columns: by field, and what a summary says of one in
// the order of the values. Least is left of most.
func inColumns(a, b string) int {
	split := func(name string) (field string, place int) {
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return name, 0
		}
		return name[:i], 1 + slices.Index([]string{"n", "min", "mean", "max"}, name[i+1:])
	}
	fieldA, placeA := split(a)
	fieldB, placeB := split(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(placeA, placeB), cmp.Compare(a, b))
}

func drawnStep(item json.RawMessage) (time.Time, map[string]point, error) {
	s, err := decodeItem[step](item)
	if err != nil {
		return time.Time{}, nil, err
	}
	points := make(map[string]point, len(s.Fields))
	for field, said := range s.Fields {
		if mean, ok := number(said["mean"]); ok {
			points[field] = boundsOf(said, mean)
		}
	}
	at, err := time.Parse(time.RFC3339Nano, s.Start)
	return at, points, err
}

// boundsOf returns a step's point; the mean stands in for a bound that is missing.
func boundsOf(said map[string]json.RawMessage, mean float64) point {
	p := point{drawn: mean, min: mean, max: mean}
	if v, ok := number(said["min"]); ok {
		p.min = v
	}
	if v, ok := number(said["max"]); ok {
		p.max = v
	}
	return p
}

// sensorsKind tells for people how long ago the newest reading was.
func sensorsKind(now time.Time) kind {
	return kind{name: "sensors", item: "sensor", paged: true, head: []string{"sensorId", "newest"}, row: func(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
		s, err := decodeItem[sensor](item)
		if err != nil {
			return nil, nil, err
		}
		newest := s.Newest.UTC().Format("2006-01-02T15:04:05.000Z")
		if whole {
			return []string{s.ID, newest}, nil, nil
		}
		return []string{printable(s.ID), newest}, map[string]json.RawMessage{"age": json.RawMessage(formatAge(now.Sub(s.Newest)))}, nil
	}}
}

// formatAge is a span as people say it; a reading may be ahead of the clock.
func formatAge(d time.Duration) string {
	unit := time.Second
	switch {
	case d < 0:
		return "ahead"
	case d >= 48*time.Hour:
		unit = time.Hour
	case d >= time.Hour:
		unit = time.Minute
	}
	return config.FormatDuration(d.Truncate(unit))
}

// kept are the items that are asked for.
func (q *question) kept(items []json.RawMessage) ([]json.RawMessage, error) {
	if q.keep == nil {
		return items, nil
	}
	out := items[:0]
	for _, item := range items {
		s, err := decodeItem[sensor](item)
		if err != nil {
			return nil, err
		}
		if q.keep(s) {
			out = append(out, item)
		}
	}
	return out, nil
}

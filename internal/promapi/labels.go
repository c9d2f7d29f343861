package promapi

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// sensorLabel is the label with the sensor's id.
const sensorLabel = "sensor"

// labelsOf returns the labels of a sensor's readings with these tags, without a name.
//
// A sensor whose id is the series key of its tags gets no label sensor, so series from Prometheus
// have exactly their original labels. One of those may be named sensor.
func labelsOf(b *labels.ScratchBuilder, sensor string, tags []telemetry.Tag) labels.Labels {
	b.Reset()
	own := !isKeyOf(sensor, tags)
	if own {
		b.Add(sensorLabel, sensor)
	}
	for _, t := range tags {
		name := telemetry.UnescapeName(t.Name)
		if t.Value == "" || name == model.MetricNameLabel || own && name == sensorLabel { // an empty label counts as absent
			continue
		}
		b.Add(name, t.Value)
	}
	b.Sort()
	return b.Labels()
}

// isKeyOf reports whether a sensor's id is the series key of these tags.
func isKeyOf(sensor string, tags []telemetry.Tag) bool {
	return strings.ContainsAny(sensor, "={") && string(telemetry.AppendTagsKey(nil, tags)) == sensor
}

// named returns labels with the metric name of a field.
func named(b *labels.ScratchBuilder, l labels.Labels, field string) labels.Labels {
	b.Reset()
	b.Add(model.MetricNameLabel, telemetry.UnescapeName(field))
	l.Range(func(one labels.Label) { b.Add(one.Name, one.Value) })
	b.Sort()
	return b.Labels()
}

// matchers has the matchers of a selector, by what they match.
type matchers struct {
	name   []*labels.Matcher
	sensor []*labels.Matcher
	tags   []*labels.Matcher
}

func sortMatchers(all []*labels.Matcher) (m matchers) {
	for _, one := range all {
		switch one.Name {
		case model.MetricNameLabel:
			m.name = append(m.name, one)
		case sensorLabel:
			m.sensor = append(m.sensor, one)
		default:
			m.tags = append(m.tags, one)
		}
	}
	return m
}

// matches reports whether a series with these labels, which exclude its name, is selected.
func (m *matchers) matches(l labels.Labels) bool {
	for _, one := range m.sensor {
		if !one.Matches(l.Get(sensorLabel)) {
			return false
		}
	}
	for _, one := range m.tags {
		if !one.Matches(l.Get(one.Name)) {
			return false
		}
	}
	return true
}

// wantsField reports whether the metric of a field is selected.
func (m *matchers) wantsField(field string) bool {
	name := telemetry.UnescapeName(field)
	return !slices.ContainsFunc(m.name, func(one *labels.Matcher) bool { return !one.Matches(name) })
}

// fields returns the fields that a selector names explicitly; nil if it does not.
func (m *matchers) fields() []string {
	names := listed(m.name)
	if names == nil {
		return nil
	}
	out := []string{}
	for _, name := range names {
		out = append(out, storedAs(name)...)
	}
	return out
}

// storedAs returns the names under which a metric or label may be stored: its own, and the escaped
// one. It omits invalid names.
func storedAs(name string) (out []string) {
	for _, one := range []string{name, telemetry.EscapeName(name)} {
		if telemetry.CheckFieldName([]byte(one)) == nil && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// listed returns the values that the matchers of one label list explicitly; nil if they do not.
func listed(ms []*labels.Matcher) []string {
	var out []string
	for _, one := range ms {
		set := one.SetMatches()
		if one.Type == labels.MatchEqual {
			set = []string{one.Value}
		}
		switch {
		case len(set) == 0 || one.Type == labels.MatchNotEqual || one.Type == labels.MatchNotRegexp || slices.Contains(set, ""):
		case out == nil:
			out = slices.Clone(set)
		default:
			out = slices.DeleteFunc(out, func(id string) bool { return !slices.Contains(set, id) })
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// queries returns the sensor queries to run, one after the other. They may find more sensors
// than are selected.
//
// The label sensor is the ID of a sensor, or a tag of a series from Prometheus.
func (m *matchers) queries() []telemetry.SensorQuery {
	q := telemetry.SensorQuery{Fields: m.fields()}
	for _, one := range m.tags {
		if names := storedAs(one.Name); len(names) == 1 {
			q.Tags = appendMatcher(q.Tags, names[0], one)
		}
	}
	tagged := q
	tagged.Tags = slices.Clone(q.Tags)
	for _, one := range m.sensor {
		if !one.Matches("") { // other matchers also match sensors without the label
			q.Sensor = appendMatcher(q.Sensor, "", one)
			tagged.Tags = appendMatcher(tagged.Tags, telemetry.EscapeName(sensorLabel), one)
		}
	}
	if len(q.Sensor) == 0 {
		return []telemetry.SensorQuery{q}
	}
	return []telemetry.SensorQuery{q, tagged}
}

// appendMatcher appends a matcher, unless it is too long for the catalog.
func appendMatcher(to []telemetry.Matcher, name string, m *labels.Matcher) []telemetry.Matcher {
	kinds := map[labels.MatchType]telemetry.MatchKind{
		labels.MatchEqual: telemetry.MatchEqual, labels.MatchNotEqual: telemetry.MatchNotEqual,
		labels.MatchRegexp: telemetry.MatchRegexp, labels.MatchNotRegexp: telemetry.MatchNotRegexp,
	}
	one, err := telemetry.NewMatcher(name, kinds[m.Type], m.Value)
	if err != nil {
		return to
	}
	return append(to, one)
}

// key returns the same for selectors that select the same sensors.
func (m *matchers) key() string {
	var words []string
	for _, one := range slices.Concat(m.sensor, m.tags) {
		words = append(words, one.String())
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

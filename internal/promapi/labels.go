package promapi

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// sensorLabel has the id of the sensor.
const sensorLabel = "sensor"

// labelsOf returns the labels of a sensor's readings with these tags, without a name.
//
// A sensor whose id is the series key of its tags has no label of its own: so series of
// Prometheus have the labels that they came with, and no other.
func labelsOf(b *labels.ScratchBuilder, sensor string, tags []telemetry.Tag) labels.Labels {
	b.Reset()
	for _, t := range tags {
		if t.Value != "" && t.Name != model.MetricNameLabel { // an empty label is none
			b.Add(t.Name, t.Value)
		}
	}
	if !isKeyOf(sensor, tags) {
		b.Add(sensorLabel, sensor)
	}
	b.Sort()
	return b.Labels()
}

// isKeyOf reports whether a sensor's id is the series key of these tags.
func isKeyOf(sensor string, tags []telemetry.Tag) bool {
	if len(tags) == 0 || len(sensor) < 3 { // a=b
		return false
	}
	return string(telemetry.AppendTagsKey(nil, tags)) == sensor
}

// named returns labels with the name of a metric.
func named(b *labels.ScratchBuilder, l labels.Labels, name string) labels.Labels {
	b.Reset()
	b.Add(model.MetricNameLabel, name)
	l.Range(func(one labels.Label) { b.Add(one.Name, one.Value) })
	b.Sort()
	return b.Labels()
}

// matchers are those of a selector, by what they look at.
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

// matches reports whether the labels of a series without its name are selected.
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

// wantsName reports whether a metric of the name is selected.
func (m *matchers) wantsName(name string) bool {
	return !slices.ContainsFunc(m.name, func(one *labels.Matcher) bool { return !one.Matches(name) })
}

// fields returns the fields that a selector names, nil if it does not.
func (m *matchers) fields() []string { return listed(m.name) }

// listed returns the values that matchers of one label name, nil if they do not.
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

// query returns what to look for among the sensors. It may find more than is selected.
func (m *matchers) query() (q telemetry.SensorQuery) {
	q.Fields = fieldNames(m.fields())
	for _, one := range m.sensor {
		if !one.Matches("") { // others also match sensors without a label of their own
			q.Sensor = appendMatcher(q.Sensor, "", one)
		}
	}
	for _, one := range m.tags {
		q.Tags = appendMatcher(q.Tags, one.Name, one)
	}
	return q
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

// key is the same for selectors of the same sensors.
func (m *matchers) key() string {
	var words []string
	for _, one := range slices.Concat(m.sensor, m.tags) {
		words = append(words, one.String())
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Sensor is what is known about a sensor without reading its readings.
type Sensor struct {
	ID     string
	Sets   []TagSet // the tag sets that it was sent with, the newest last; at least one
	Fields []string // names of fields with numbers or booleans, sorted
	Texts  []string // names of fields with strings, sorted; a name may be in both
}

// A TagSet is a set of tags that a sensor was sent with. Its readings are in the span
// [From, To), in milliseconds since the epoch, which may be a day longer than necessary
// at either end.
type TagSet struct {
	Tags     []Tag // sorted by name; may be empty
	From, To int64
}

// Tags returns the newest set of tags.
func (s *Sensor) Tags() []Tag {
	if len(s.Sets) == 0 {
		return nil
	}
	return s.Sets[len(s.Sets)-1].Tags
}

// Merge adds what is known about the sensor from elsewhere.
func (s *Sensor) Merge(more *Sensor) {
	for _, set := range more.Sets {
		at := slices.IndexFunc(s.Sets, func(have TagSet) bool { return slices.Equal(have.Tags, set.Tags) })
		if at >= 0 {
			set.From, set.To = min(set.From, s.Sets[at].From), max(set.To, s.Sets[at].To)
			s.Sets = slices.Delete(s.Sets, at, at+1)
		}
		s.Sets = append(s.Sets, set)
	}
	slices.SortStableFunc(s.Sets, func(a, b TagSet) int { return cmp.Compare(a.To, b.To) })
	s.Fields, s.Texts = union(s.Fields, more.Fields), union(s.Texts, more.Texts)
}

// union merges two sorted lists.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Matches reports whether a query selects the sensor: whether one of its sets matches
// all of the tags.
func (s *Sensor) Matches(q *SensorQuery) bool {
	return q.Wants(s.ID) && (len(q.Tags) == 0 || slices.ContainsFunc(s.Sets, func(set TagSet) bool { return MatchTags(set.Tags, q.Tags) }))
}

// Wants reports whether a query selects sensors with that id.
func (q *SensorQuery) Wants(id string) bool {
	if id <= q.After || !strings.HasPrefix(id, q.Prefix) {
		return false
	}
	for i := range q.Sensor {
		if !q.Sensor[i].Matches(id) {
			return false
		}
	}
	return true
}

// MatchTags reports whether the tags satisfy all matchers. A missing tag has the value
// "", as in Prometheus.
func MatchTags(tags []Tag, matchers []Matcher) bool {
	for i := range matchers {
		value := ""
		if at := slices.IndexFunc(tags, func(t Tag) bool { return t.Name == matchers[i].Name }); at >= 0 {
			value = tags[at].Value
		}
		if !matchers[i].Matches(value) {
			return false
		}
	}
	return true
}

// A MatchKind is the operator of a Matcher.
type MatchKind uint8

// The kinds of matchers.
const (
	MatchEqual     MatchKind = iota // =
	MatchNotEqual                   // !=
	MatchRegexp                     // =~
	MatchNotRegexp                  // !~
)

// String returns the operator.
func (k MatchKind) String() string { return [...]string{"=", "!=", "=~", "!~"}[k&3] }

// A Matcher tests the value of a tag, or the id of a sensor.
type Matcher struct {
	Name  string // of the tag; empty for the id
	Kind  MatchKind
	Value string // or a regular expression that must match the whole value

	compiled *regexp.Regexp // nil unless Kind uses a regular expression
}

// maxPattern bounds the length of a regular expression.
const maxPattern = 4 << 10

// NewMatcher returns a matcher. Regular expressions have the syntax of Go (RE2), which
// matches in linear time.
func NewMatcher(name string, kind MatchKind, value string) (Matcher, error) {
	m := Matcher{Name: name, Kind: kind, Value: value}
	if kind != MatchRegexp && kind != MatchNotRegexp {
		return m, nil
	}
	if len(value) > maxPattern {
		return m, fmt.Errorf("the regular expression has %d bytes; at most %d are allowed", len(value), maxPattern)
	}
	var err error
	if m.compiled, err = regexp.Compile("^(?s:" + value + ")$"); err != nil {
		return m, fmt.Errorf("%s is not a regular expression: %w", Quote([]byte(value)), err)
	}
	return m, nil
}

var errMatcher = errors.New("it must be NAME=VALUE, NAME!=VALUE, NAME=~PATTERN or NAME!~PATTERN")

// ParseMatcher parses a matcher for a tag like region=north, region!=north,
// region=~north|south or region!~n.*. The name ends at the first operator.
func ParseMatcher(s string) (Matcher, error) {
	at := strings.IndexAny(s, "=!")
	if at < 1 {
		return Matcher{}, errMatcher
	}
	name, rest := s[:at], s[at:]
	for _, kind := range []MatchKind{MatchNotEqual, MatchNotRegexp, MatchRegexp, MatchEqual} {
		if value, ok := strings.CutPrefix(rest, kind.String()); ok {
			return NewMatcher(name, kind, value)
		}
	}
	return Matcher{}, errMatcher
}

// String returns the form that ParseMatcher parses.
func (m Matcher) String() string { return m.Name + m.Kind.String() + m.Value }

// Matches reports whether the value matches.
func (m *Matcher) Matches(value string) bool {
	switch m.Kind {
	case MatchEqual:
		return value == m.Value
	case MatchNotEqual:
		return value != m.Value
	case MatchRegexp:
		return m.compiled.MatchString(value)
	default:
		return !m.compiled.MatchString(value)
	}
}

// Values returns all values that can match, if there are few and none is empty.
func (m *Matcher) Values() ([]string, bool) {
	switch m.Kind {
	case MatchEqual:
		return []string{m.Value}, m.Value != ""
	case MatchRegexp:
		if text := strings.ReplaceAll(m.Value, "|", ""); regexp.QuoteMeta(text) == text {
			values := strings.Split(m.Value, "|")
			return values, !slices.Contains(values, "")
		}
	}
	return nil, false
}

// Prefix returns the common prefix of all matching values; empty if unknown.
func (m *Matcher) Prefix() string {
	switch m.Kind {
	case MatchEqual:
		return m.Value
	case MatchRegexp:
		if r, err := regexp.Compile(m.Value); err == nil {
			prefix, _ := r.LiteralPrefix()
			return prefix
		}
	}
	return ""
}

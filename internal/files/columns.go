package files

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// MaxColumns is how many columns a file may have beside time and sensor: each takes some
// memory while it is written or read.
const MaxColumns = 4096

// The columns that every file has.
const (
	columnTime   = "ts"
	columnSensor = "sensorId"
)

// Columns are the columns that readings need. The zero value has none.
//
// A field and a tag each have a column of their name. If that is taken, it is
// fields.NAME or tags.NAME. A field whose values are not all of one kind has several
// columns: NAME has the numbers, as doubles if one of them is, or the booleans if there
// are no numbers; NAME.int repeats those that are integers, NAME.bool and NAME.text have
// the others. No two names can be equal, since names of fields and tags have no dot.
type Columns struct {
	kinds map[string]kinds // of fields
	tags  map[string]bool
}

// kinds is a set of telemetry.Kind.
type kinds uint8

func (k kinds) has(kind telemetry.Kind) bool { return k&(1<<kind) != 0 }

// Add adds the columns for a reading's fields and tags.
func (c *Columns) Add(r *telemetry.Reading) {
	for i := range r.Fields {
		f := &r.Fields[i]
		bit := kinds(1) << f.Value.Kind()
		if known := c.kinds[f.Name]; known&bit == 0 {
			c.addField(f.Name, known|bit)
		}
	}
	for i := range r.Tags {
		if name := r.Tags[i].Name; !c.tags[name] {
			c.addTag(name)
		}
	}
}

func (c *Columns) addField(name string, k kinds) {
	if c.kinds == nil {
		c.kinds = make(map[string]kinds)
	}
	c.kinds[strings.Clone(name)] |= k
}

func (c *Columns) addTag(name string) {
	if c.tags == nil {
		c.tags = make(map[string]bool)
	}
	c.tags[strings.Clone(name)] = true
}

// Tags returns the names of the columns that are tags, in order.
func (c *Columns) Tags() (names []string) {
	for _, one := range c.List() {
		if one.Tag {
			names = append(names, one.Name)
		}
	}
	return names
}

// A Column of a file.
type Column struct {
	Name string
	Of   string // the field or tag
	Tag  bool
	Kind telemetry.Kind // of its values
}

// kindNames are the suffixes of columns that have only some of a field's values.
var kindNames = map[telemetry.Kind]string{telemetry.Int: "int", telemetry.Bool: "bool", telemetry.Text: "text"}

// reserved names cannot be columns of fields or tags: day is the partition column of an export's
// folders, and the last two are prefixes of other names.
var reserved = []string{columnTime, columnSensor, "day", "fields", "tags"}

// List returns the columns beside time and sensor: tags, then fields, each in the order
// of their names.
func (c *Columns) List() []Column {
	var all []Column
	for _, name := range slices.Sorted(maps.Keys(c.tags)) {
		column := name
		if _, field := c.kinds[name]; field || slices.Contains(reserved, name) {
			column = "tags." + name
		}
		all = append(all, Column{column, name, true, telemetry.Text})
	}
	for _, name := range slices.Sorted(maps.Keys(c.kinds)) {
		column := name
		if slices.Contains(reserved, name) {
			column = "fields." + name
		}
		main := c.kinds[name].main()
		all = append(all, Column{column, name, false, main})
		for _, k := range []telemetry.Kind{telemetry.Int, telemetry.Bool, telemetry.Text} {
			if k != main && c.kinds[name].has(k) {
				all = append(all, Column{column + "." + kindNames[k], name, false, k})
			}
		}
	}
	return all
}

// main returns the kind of the column with the field's name.
func (k kinds) main() telemetry.Kind {
	for _, one := range []telemetry.Kind{telemetry.Float, telemetry.Int, telemetry.Bool} {
		if k.has(one) {
			return one
		}
	}
	return telemetry.Text
}

// columnsJSON is the stored form of Columns between runs of an export.
type columnsJSON struct {
	Fields map[string]kinds `json:"fields,omitempty"` // a bit for each telemetry.Kind
	Tags   []string         `json:"tags,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (c *Columns) MarshalJSON() ([]byte, error) {
	return json.Marshal(columnsJSON{c.kinds, slices.Sorted(maps.Keys(c.tags))})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Columns) UnmarshalJSON(text []byte) error {
	var given columnsJSON
	if err := json.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	*c = Columns{}
	for name, k := range given.Fields {
		c.addField(name, k)
	}
	for _, name := range given.Tags {
		c.addTag(name)
	}
	return nil
}

// A layout finds the column of a value.
type layout struct {
	fields map[string]*places
	tags   map[string]int
}

// places are the columns of a field's values by their kind, -1: none.
type places struct {
	of   [telemetry.Text + 1]int
	ints int // column that repeats integers; -1: none
}

func newLayout(columns []Column) *layout {
	l := &layout{fields: make(map[string]*places), tags: make(map[string]int)}
	for i, c := range columns {
		if c.Tag {
			l.tags[c.Of] = i
			continue
		}
		p := l.fields[c.Of]
		switch {
		case p == nil:
			p = &places{ints: -1}
			for k := range p.of {
				p.of[k] = -1
			}
			l.fields[c.Of] = p
			p.of[c.Kind] = i
			if c.Kind == telemetry.Float {
				p.of[telemetry.Int] = i
			}
		case c.Kind == telemetry.Int:
			p.ints = i
		default:
			p.of[c.Kind] = i
		}
	}
	return l
}

// A source is what a column of a file means in a reading.
type source struct {
	kind sourceKind
	name string // of the field or tag
	ints bool   // it repeats integers, exactly
}

type sourceKind uint8

const (
	fromTime sourceKind = iota + 1
	fromSensor
	fromField
	fromTag
)

// sourceOf returns what a column means; tags has the names of the columns that are tags.
func sourceOf(column string, tags []string) source {
	switch {
	case column == columnTime:
		return source{kind: fromTime}
	case column == columnSensor:
		return source{kind: fromSensor}
	case slices.Contains(tags, column) && !strings.HasPrefix(column, "tags."):
		return source{kind: fromTag, name: column}
	}
	if name, ok := strings.CutPrefix(column, "tags."); ok {
		// The field tags has the column fields.tags: this one cannot be a part of it.
		return source{kind: fromTag, name: name}
	}
	name := strings.TrimPrefix(column, "fields.")
	s := source{kind: fromField, name: name}
	for _, end := range kindNames {
		if base, ok := strings.CutSuffix(name, "."+end); ok && base != "" {
			s.name, s.ints = base, end == kindNames[telemetry.Int]
		}
	}
	return s
}

// sourcesOf returns what the columns of a file mean.
func sourcesOf(columns, tags []string) ([]source, error) {
	if n := len(columns) - headColumns; n > MaxColumns {
		return nil, fmt.Errorf("the file has %d columns beside %s and %s; at most %d are allowed", n, columnTime, columnSensor, MaxColumns)
	}
	out := make([]source, len(columns))
	for i, name := range columns {
		out[i] = sourceOf(name, tags)
	}
	for _, must := range []string{columnTime, columnSensor} {
		if !slices.Contains(columns, must) {
			return nil, fmt.Errorf("the file has no column %s; it has %s", must, quotedList(columns))
		}
	}
	for _, name := range tags {
		if !slices.Contains(columns, name) {
			return nil, fmt.Errorf("the file has no column %q, which is to be a tag; it has %s", name, quotedList(columns))
		}
	}
	return out, nil
}

func quotedList(names []string) string {
	const most = 30
	rest := ""
	if n := len(names) - most; n > 0 {
		names, rest = names[:most], fmt.Sprintf(" and %d more", n)
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = telemetry.Quote([]byte(n))
	}
	return strings.Join(quoted, ", ") + rest
}

// set adds the value of a field's column to a reading.
func (s *source) set(r *telemetry.Reading, v telemetry.Value) {
	if n := len(r.Fields); n > 0 && r.Fields[n-1].Name == s.name && s.ints {
		r.Fields[n-1].Value = v // it replaces the double, which is rounded
		return
	}
	r.Fields = append(r.Fields, telemetry.Field{Name: s.name, Value: v})
}

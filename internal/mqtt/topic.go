package mqtt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Names in a template that are not tags.
const (
	nameSensor = "sensorId"
	nameStream = "stream"
	nameField  = "field"
)

// A template says what the levels of a topic mean:
//
//	site/{site}/{sensorId}/{field}   a level in braces is the sensor, the stream, the field,
//	plant/+/{sensorId}/#             or a tag; + matches any level, # all remaining ones
type template struct {
	text   string
	levels []level
	rest   bool // it ends with #
}

// A level is a literal, has a name, or matches any text.
type level struct {
	literal, name string
	isLiteral     bool // which may be empty
}

// parseTemplate parses a template.
func parseTemplate(text string) (*template, error) {
	t := &template{text: text}
	if len(text) > 65535 || strings.ContainsRune(text, 0) {
		return nil, errors.New("a topic must have at most 65535 bytes and no NUL")
	}
	for _, prefix := range []string{"$share/", "$queue/"} {
		if strings.HasPrefix(text, prefix) {
			return nil, fmt.Errorf("it begins with %s; leave that out, and set mqtt-group to share a subscription", prefix)
		}
	}
	seen := make(map[string]bool)
	levels := strings.Split(text, "/")
	for i, l := range levels {
		name, braced := strings.CutPrefix(l, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case l == "#" && i == len(levels)-1:
			t.rest = true
		case l == "+":
			t.levels = append(t.levels, level{})
		case braced && closed && !strings.ContainsAny(name, "{}"):
			if err := checkName(name); err != nil {
				return nil, err
			}
			if seen[name] {
				return nil, fmt.Errorf("{%s} is given twice", name)
			}
			seen[name] = true
			t.levels = append(t.levels, level{name: name})
		case strings.ContainsAny(l, "{}+#"):
			return nil, fmt.Errorf("level %q is not allowed; a level is plain text, {NAME}, +, or # at the end", l)
		case text == "":
			return nil, errors.New("it is empty; set a topic such as site/{site}/{sensorId}/{field}")
		default:
			t.levels = append(t.levels, level{literal: l, isLiteral: true})
		}
	}
	return t, nil
}

func checkName(name string) error {
	for _, special := range []string{nameSensor, nameStream, nameField} {
		if name == special {
			return nil
		}
		// A typing error would become a tag.
		if strings.EqualFold(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name), special) {
			return fmt.Errorf("{%s} is not allowed; write {%s}. Other names are tags", name, special)
		}
	}
	if r := telemetry.CheckTagName([]byte(name)); r != nil {
		return fmt.Errorf("{%s} cannot name a tag: %s", name, r.Message)
	}
	return nil
}

// has reports whether a level has this name.
func (t *template) has(name string) bool {
	for _, l := range t.levels {
		if l.name == name {
			return true
		}
	}
	return false
}

// filter returns the topic filter to subscribe to.
func (t *template) filter() string {
	var levels []string
	for _, l := range t.levels {
		if l.isLiteral {
			levels = append(levels, l.literal)
		} else {
			levels = append(levels, "+")
		}
	}
	if t.rest {
		levels = append(levels, "#")
	}
	return strings.Join(levels, "/")
}

// match stores the parts of a topic in m. It returns false if the topic does not match.
func (t *template) match(topic string, m *ingest.Message) bool {
	rest, more := topic, true
	for _, l := range t.levels {
		if !more {
			return false
		}
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch {
		case l.isLiteral:
			if part != l.literal {
				return false
			}
		case l.name == "":
		case l.name == nameSensor:
			m.Sensor = part
		case l.name == nameStream:
			m.Stream = part
		case l.name == nameField:
			m.Field = part
		default:
			m.Tags = append(m.Tags, telemetry.Tag{Name: l.name, Value: part})
		}
	}
	return !more || t.rest
}

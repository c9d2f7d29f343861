package mqtt

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	tags := func(pairs ...string) (out []telemetry.Tag) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, telemetry.Tag{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, test := range []struct {
		template, filter, topic string
		want                    *ingest.Message // nil: the topic does not match
	}{
		{"site/{site}/{sensorId}/{field}", "site/+/+/+", "site/n/s-1/t", &ingest.Message{Sensor: "s-1", Field: "t", Tags: tags("site", "n")}},
		{"{stream}/{sensorId}", "+/+", "readings/s-1", &ingest.Message{Stream: "readings", Sensor: "s-1"}},
		{"a/+/{sensorId}/#", "a/+/+/#", "a/x/s-1/y/z", &ingest.Message{Sensor: "s-1"}},
		{"a/{sensorId}/#", "a/+/#", "a/s-1", &ingest.Message{Sensor: "s-1"}},
		{"/a/{sensorId}", "/a/+", "/a/s-1", &ingest.Message{Sensor: "s-1"}},
		{"#", "#", "any/thing", &ingest.Message{}},
		{"a/{sensorId}", "a/+", "a/s-1/more", nil},
		{"a/{sensorId}", "a/+", "a", nil},
		{"a/{sensorId}", "a/+", "b/s-1", nil},
		{"a/", "a/", "a", nil},
	} {
		parsed, err := parseTemplate(test.template)
		require.NoError(t, err, test.template)
		assert.Equal(t, test.filter, parsed.filter())
		var m ingest.Message
		if ok := parsed.match(test.topic, &m); test.want == nil {
			assert.False(t, ok, "%s fits %s", test.topic, test.template)
		} else if assert.True(t, ok, "%s does not match %s", test.topic, test.template) {
			assert.Equal(t, *test.want, m)
		}
	}
}

func TestWrongTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              "it is empty",
		"a/#/b":         `level "#" is not allowed`,
		"a/b#":          `level "b#" is not allowed`,
		"a/s-{id}":      `level "s-{id}" is not allowed`,
		"a/{}":          "{} cannot name a tag",
		"a/{x.y}":       "contains a dot",
		"{site}/{site}": "{site} is given twice",
		"a\x00b":        "no NUL",
		"a/{a}{b}":      "is not allowed",
	} {
		_, err := parseTemplate(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// FuzzTemplate checks that a topic with a part in place of each name fits, and has these
// parts; and that no topic crashes the matching.
func FuzzTemplate(f *testing.F) {
	f.Add("site/{site}/{sensorId}/{field}", "north")
	f.Add("a/+/{sensorId}/#", "")
	f.Add("//#", "x/y")
	f.Fuzz(func(t *testing.T, text, topic string) {
		parsed, err := parseTemplate(text)
		if err != nil {
			return
		}
		parsed.match(topic, new(ingest.Message))
		part := strings.Map(func(r rune) rune {
			if r == '/' {
				return -1
			}
			return r
		}, topic)
		levels := strings.Split(parsed.filter(), "/")
		for i, l := range levels {
			if l == "+" || l == "#" && i == len(levels)-1 {
				levels[i] = part
			}
		}
		var m ingest.Message
		require.True(t, parsed.match(strings.Join(levels, "/"), &m))
		for _, tag := range m.Tags {
			assert.Equal(t, part, tag.Value)
		}
	})
}

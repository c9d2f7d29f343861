package daemon

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFileProblemsNameLine(t *testing.T) {
	t.Parallel()
	for content, want := range map[string][]string{
		"lanes: 2\ngranularitty: 1m\n":        {":2: unknown key granularitty (did you mean granularity?); `brim config print` without a file lists all"},
		"mongo_uri: x":                        {":1: unknown key mongo_uri (did you mean mongo-uri?)"},
		"\n\nline_protocol:\n  sensor: x":     {":4: unknown key line_protocol.sensor; allowed: sensor_tag"},
		"config: x":                           {":1: unknown key config; `brim config print`"},
		"lanes: [1, 2]":                       {":1: lanes must have a single value"},
		"lanes:":                              {":1: lanes must have a single value"},
		"storage: {kind: bucket}":             {":1: storage must have a single value"},
		"lanes: 1\nlanes: 2":                  {`:2: mapping key "lanes" already defined at line 1`},
		"lanes: 1\n\tx: 2":                    {":2: "},
		"lanes: 1\n---\nlanes: 2":             {":2: a second YAML document begins here"},
		"- lanes":                             {":1: the file must hold keys with values; `brim config print`"},
		"streams: 5":                          {":1: streams must hold keys with values"},
		"streams:\n  x: 5":                    {":2: streams.x must hold keys with values; allowed: bucket-format, bucket-max-bytes"},
		"streams:\n  X y: {}":                 {`:2: streams: "X y" cannot name a stream`},
		"streams:\n  brim_fence: {}":          {`:2: streams: "brim_fence" cannot name a stream; it is a collection of Brim's own`},
		"streams:\n  x:\n    lanes: 2":        {":3: unknown key streams.x.lanes; allowed: bucket-format, bucket-max-bytes, bucket-max-readings"},
		"streams:\n  x:\n    granularity: 7m": {":3: streams.x.granularity: ", "divide an hour"},
		"bucket-format: columns\nstreams:\n  x: {granularity: 5h}\n":                              {":3: streams.x.granularity: ", "up to 24h"},
		"granularity: 24h\nbucket-format: columns\nstreams:\n  x: {bucket-format: documents}\n":   {"stream x: granularity 1d is invalid: it must divide an hour", "up to 24h"},
		"bucket-format: columns\nstreams:\n  x: {granularity: 2h, storage: timeseries}\n":         {"stream x: granularity 2h is invalid: it must divide an hour"},
		"streams:\n  x: &a {storage: b}\n  y: *a":                                                 {`:2: streams.x.storage: "b" is unknown`, `streams.y.storage: "b" is unknown`},
		"mqtt:\n  x:\n    mqtt-url: a":                                                            {":3: unknown key mqtt.x.mqtt-url; allowed: ca, cert, client-id"},
		"mqtt:\n  X: {}":                                                                          {`:2: mqtt: "X" cannot name a subscription`},
		"mqtt:\n  x:\n    url: mqtt://u:secret@h":                                                 {":3: mqtt.x.url: it contains a user"},
		"mqtt:\n  x: {url: mqtt://h}":                                                             {"mqtt.x: mqtt-url and mqtt-topic belong together"},
		"mqtt:\n  x: {url: mqtt://h, topic: 'a/b{c}'}":                                            {`:2: mqtt.x.topic: level "b{c}" is not allowed`},
		"mqtt-url: mqtt://h\nmqtt:\n  x: {topic: a, client-id: c}\n  y: {topic: b, client-id: c}": {"mqtt.y: mqtt-client-id c is also used by x"},
		"mqtt-url: mqtt://h\nmqtt-topic: a\nmqtt-stream: nope":                                    {"mqtt-stream: there is no stream nope"},
		"a: 1\nb: 2\nlog-level: loud":                                                             {":1: unknown key a", ":2: unknown key b", `:3: log-level: "loud" is unknown; allowed: debug`},
		"mongo-uri: http://h":                                                                     {":1: mongo-uri: it is not a MongoDB URI"},
		"mongo-uri: &u mongodb://h/\ndatabase: local":                                             {`:2: database: "local" is MongoDB's own database`},
	} {
		path := writeConfig(t, content)
		_, err := Sources{Path: path}.Load()
		for _, w := range want {
			assert.ErrorContains(t, err, w, content)
			if w[0] == ':' {
				assert.ErrorContains(t, err, path+w, content)
			}
		}
	}
}

func TestEmptyAndMissingFile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "# nothing yet\n", "---\n", "streams:\n", "streams: {}\n"} {
		loadSettings(t, Sources{Path: writeConfig(t, content)})
	}
	_, err := Sources{Path: filepath.Join(t.TempDir(), "none.yaml")}.Load()
	assert.ErrorContains(t, err, "none.yaml: no such file")
}

// FuzzFile finds files that crash the reader or are accepted with invalid streams.
func FuzzFile(f *testing.F) {
	f.Add("granularity: 1m\nstreams:\n  x: {storage: memory}\n")
	f.Add("streams:\n  x:\n  y: &a {lanes: 1}\n  z: *a\n")
	f.Add("a: &a {b: *a}")
	f.Add("<<: {lanes: 3}\n? [x]\n: y")
	f.Fuzz(func(t *testing.T, content string) {
		c, err := Sources{Path: writeConfig(t, content)}.Load()
		if err != nil {
			return
		}
		for _, s := range c.Streams {
			assert.NoError(t, checkStreamName(s.Name))
		}
		assert.NotEmpty(t, c.Streams)
	})
}

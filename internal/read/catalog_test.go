package read

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fakeCatalog has sensors in the order of their ids.
type fakeCatalog struct {
	sensors []telemetry.Sensor
	refuses error

	mu   sync.Mutex
	done []string
}

func (c *fakeCatalog) List(_ context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.Sensor, error] {
	return func(yield func(telemetry.Sensor, error) bool) {
		for _, s := range c.sensors {
			if s.Matches(&q) && !yield(s, nil) {
				return
			}
		}
	}
}

func (*fakeCatalog) Unwritten(*telemetry.SensorQuery) []telemetry.Sensor { return nil }
func (c *fakeCatalog) Complete() error                                   { return c.refuses }
func (*fakeCatalog) Overflowed() bool                                    { return false }

func (c *fakeCatalog) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, what)
}

func (c *fakeCatalog) Forget(sensors ...string) { c.note("forget " + strings.Join(sensors, " ")) }

func (c *fakeCatalog) Rebuild() { c.note("rebuild") }

func (c *fakeCatalog) Delete(_ context.Context, sensors ...string) error {
	c.note("remove " + strings.Join(sensors, " "))
	return nil
}

// tagged returns a sensor with tag sets site=…, the newest last.
func tagged(id string, sites ...string) telemetry.Sensor {
	s := telemetry.Sensor{ID: id, Fields: []string{"v"}}
	for _, site := range sites {
		s.Sets = append(s.Sets, telemetry.TagSet{Tags: []telemetry.Tag{{Name: "site", Value: site}}})
	}
	return s
}

func TestSensorsComeFromTheCatalog(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	journaled(t, j, readingsOf("readings", 10, "waits", "a"))
	c := &fakeCatalog{sensors: []telemetry.Sensor{tagged("a", "north"), tagged("b", "south", "north"), tagged("c", "south"), tagged("expired", "north")}}
	source := fakeSource{readings: []telemetry.Reading{reading("a", 0, 1), reading("b", time.Second, 1), reading("c", 2*time.Second, 1)}}
	r := newReader(t, source, func(_ *Config, s *Stored) {
		var rest atomic.Uint64
		rest.Store(j.Oldest())
		s.Backlog, s.Catalogs = backlogOf(j, &rest), map[string]Catalog{"readings": c}
	})
	for query, want := range map[string]string{
		"":                         "a b c waits",
		"?tag=site=south":          "b c",
		"?tag=site%3D~s.*":         "b c",
		"?tag=site!=south":         "a b waits",
		"?tag=site=":               "a waits", // a reading of a without tags waits
		"?prefix=a&tag=site=north": "a",
		"?tag=site=south&limit=1":  "b",
		"?unstored=off":            "a b c",
	} {
		var got []string
		for line := range strings.Lines(get(r, "/v1/sensors"+query, typeLines).body) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, `{"sensorId":"`), `"`)
			got = append(got, id)
		}
		assert.Equal(t, want, strings.Join(got, " "), query)
	}
	assert.JSONEq(t, `{"sensors":[{"sensorId":"b","newest":"2026-11-21T10:00:01.000Z","tags":{"site":"north"},"otherTags":[{"site":"south"}],"fields":["v"]}]}`,
		get(r, "/v1/sensors?prefix=b").body)
	for query, want := range map[string]string{"tag=site": "it must be NAME=VALUE", "tag=": "parameter tag has no value", "tag=a=~(": "is not a regular expression"} {
		assert.Contains(t, get(r, "/v1/sensors?"+query).body, want)
	}

	c.sensors[1] = tagged("b", "south", "north", "east")
	for i := range c.sensors[1].Sets {
		c.sensors[1].Sets[i].To = base.Add(time.Hour).UnixMilli() // written ahead
	}
	source.readings[1].Tags = []telemetry.Tag{{Name: "site", Value: "north"}}
	assert.Contains(t, get(r, "/v1/sensors?prefix=b").body, `"tags":{"site":"north"},"otherTags":[{"site":"south"},{"site":"east"}]`)

	c.refuses = telemetry.Errorf(telemetry.Unavailable, "catalog_incomplete", "being built")
	assert.Contains(t, get(r, "/v1/sensors?tag=site=south").body, "being built")
	got, _ := listed(t, r, "")
	assert.Equal(t, []string{"a 11s", "b 1s", "c 2s", "waits 10s"}, got, "without tags it is not needed")
}

func TestSeveralSensorsAreDeleted(t *testing.T) {
	t.Parallel()
	c := &fakeCatalog{sensors: []telemetry.Sensor{tagged("a", "north"), tagged("moved", "north", "south"), tagged("n1", "north"), tagged("n2", "north")}}
	source := fakeSource{readings: []telemetry.Reading{reading("a", 0, 1), reading("moved", 0, 1), reading("n1", 0, 1), reading("n2", 0, 1)}}
	for i, site := range []string{"north", "south", "north", "north"} {
		source.readings[i].Tags = []telemetry.Tag{{Name: "site", Value: site}}
	}
	refuses := false
	source.deleted = func(sensor string) (int64, error) {
		c.note("delete " + sensor)
		if refuses {
			return 0, errors.New("refused")
		}
		return 3, nil
	}
	flushed := 0
	r := newReader(t, source, func(_ *Config, s *Stored) {
		s.Catalogs = map[string]Catalog{"readings": c}
		s.Flush = func(context.Context) error { flushed++; return nil }
	})
	del := func(query string) string { return ask(r, http.MethodDelete, "/v1/sensors?"+query).body }
	for query, want := range map[string]string{
		"": "say which sensors to delete", "prefix=": "say which sensors to delete", "prefix=a&dry-run=yes": "allowed: true and false", "tag=x": "it must be NAME=VALUE", "tag=x%3D": "to delete all sensors without that tag, use x!~.+",
		"prefix=a&unstored=off": "allowed: on and only",
	} {
		assert.Contains(t, del(query), want, query)
	}
	tag := "tag=" + url.QueryEscape("site=north")
	assert.JSONEq(t, `{"dryRun":true,"sensors":3}`, del(tag+"&dry-run=true"), "moved has other tags now")
	assert.JSONEq(t, `{"dryRun":true,"sensors":2,"after":"n1"}`, del(tag+"&dry-run=true&limit=2"))
	assert.Empty(t, c.done)
	assert.JSONEq(t, `{"deleted":6,"sensors":2,"after":"n1"}`, del(tag+"&limit=2"))
	assert.Equal(t, 1, flushed)
	require.Len(t, c.done, 3)
	assert.Equal(t, "remove a n1", c.done[0], "before its readings")
	slices.Sort(c.done)
	assert.Equal(t, []string{"delete a", "delete n1", "remove a n1"}, c.done)
	c.done = nil
	assert.JSONEq(t, `{"deleted":3,"sensors":1}`, del(tag+"&after=n1"))
	c.done = nil
	assert.JSONEq(t, `{"deleted":0}`, del("prefix=n&unstored=only"))
	assert.Equal(t, []string{"forget "}, c.done, "another daemon asks")

	c.done, refuses = nil, true
	assert.Contains(t, del(tag+"&limit=1"), "refused")
	assert.Equal(t, []string{"remove a", "delete a", "rebuild"}, c.done, "the catalog may lack sensors that have readings")
}

package speed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

var moved = time.Date(2026, 3, 4, 5, 6, 10, 0, time.UTC)

// sent is a reading as the receiver decodes it.
type sent struct {
	sensor string
	at     time.Time
	fields map[string]int64
	tags   map[string]string
}

// expected returns the readings of a step.
func expected(hosts hosts, variant int) []sent {
	readings := make([]sent, len(hosts))
	for i := range hosts {
		s := sent{hosts[i].id, moved, map[string]int64{}, map[string]string{}}
		for _, f := range hosts[i].fields[variant] {
			s.fields[f.Name] = f.Value.Int()
		}
		for _, t := range hosts[i].tags {
			s.tags[t.Name] = t.Value
		}
		readings[i] = s
	}
	return readings
}

// bodyOf encodes a step of the hosts at the time moved.
func bodyOf(t *testing.T, format string, hosts hosts, variant uint64) []byte {
	t.Helper()
	b, err := formats[format].newBody(hosts, variant)
	require.NoError(t, err)
	b.moveTo(moved)
	return b.text
}

func TestLineBodyIsLineProtocol(t *testing.T) {
	t.Parallel()
	hosts := newHosts(37)
	d := lineprotocol.NewDecoderWithBytes(bodyOf(t, lineProtocol, hosts, 3))
	var readings []sent
	for d.Next() {
		s := sent{fields: map[string]int64{}, tags: map[string]string{}}
		measurement, err := d.Measurement()
		require.NoError(t, err)
		for {
			name, value, err := d.NextTag()
			require.NoError(t, err)
			if name == nil {
				break
			}
			s.tags[string(name)] = string(value)
		}
		for {
			name, value, err := d.NextField()
			require.NoError(t, err)
			if name == nil {
				break
			}
			s.fields[string(name)] = value.IntV()
		}
		s.at, err = d.Time(lineprotocol.Nanosecond, time.Time{})
		require.NoError(t, err)
		s.at = s.at.UTC()
		var tags []telemetry.Tag
		for name, value := range s.tags {
			tags = append(tags, telemetry.Tag{Name: name, Value: value})
		}
		require.Equal(t, "cpu", string(measurement))
		s.sensor = seriesKey(tags)
		readings = append(readings, s)
	}
	assert.Equal(t, expected(hosts, 3), readings)
}

func TestNDJSONBodyIsObjectsInLines(t *testing.T) {
	t.Parallel()
	hosts := newHosts(37)
	var readings []sent
	for line := range bytes.Lines(bodyOf(t, ndjson, hosts, 0)) {
		var r struct {
			SensorID string
			TS       int64
			Fields   map[string]int64
			Tags     map[string]string
		}
		require.NoError(t, json.Unmarshal(line, &r))
		readings = append(readings, sent{r.SensorID, time.UnixMilli(r.TS).UTC(), r.Fields, r.Tags})
	}
	assert.Equal(t, expected(hosts, 0), readings)
}

func TestCompactBodyIsAWriteRequest(t *testing.T) {
	t.Parallel()
	hosts := newHosts(37)
	var request telemetrypb.WriteRequest
	require.NoError(t, proto.Unmarshal(bodyOf(t, compactGRPC, hosts, 7), &request))
	assert.Equal(t, telemetrypb.Ack_ACK_JOURNALED, request.GetAck())
	var readings []sent
	for _, series := range request.GetSeries() {
		require.Len(t, series.GetTsMs(), 1)
		s := sent{series.GetSensorId(), time.UnixMilli(series.GetTsMs()[0]).UTC(), map[string]int64{}, map[string]string{}}
		for _, column := range series.GetColumns() {
			require.Len(t, column.GetInts(), 1)
			s.fields[column.GetName()] = column.GetInts()[0]
		}
		for _, tag := range series.GetTags() {
			s.tags[tag.GetName()] = tag.GetValue()
		}
		readings = append(readings, s)
	}
	assert.Equal(t, expected(hosts, 7), readings)
}

func TestSeriesKeyHasTheTagsInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	var tags []telemetry.Tag
	for i, value := range [...]string{"host_0", "r", "d", "1", "o", "a", "t", "2", "3", "e"} {
		tags = append(tags, telemetry.Tag{Name: tagNames[i], Value: value})
	}
	assert.Equal(t, "cpu,arch=a,datacenter=d,hostname=host_0,os=o,rack=1,region=r,service=2,service_environment=e,service_version=3,team=t", seriesKey(tags))
}

// TestConnectionsGoThroughPartsStepsAndVariants checks that connections together send each
// request once.
func TestConnectionsGoThroughPartsStepsAndVariants(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 7 {
			w.WriteHeader(http.StatusServiceUnavailable) // the sender retries
		}
		seen[string(text)]++
	}))
	defer server.Close()
	name := func(readings []telemetry.Reading) ([]byte, error) {
		text := readings[0].Tags[0].Value + fmt.Sprintf(" %v", readings[0].Fields[0].Value.Any())
		for range readings {
			text += " 17:00"
		}
		return []byte(text), nil
	}
	minutes := func(dst []byte, at time.Time) []byte {
		if at.Year() == 2023 {
			return append(dst, "17:00"...)
		}
		return at.AppendFormat(dst, "15:04")
	}
	hosts := newHosts(2500)
	s, err := newSender(format{path: "/", encode: name, stamp: minutes}, hosts)
	require.NoError(t, err)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &bench.Daemon{Daemon: &launch.Daemon{HTTP: strings.TrimPrefix(server.URL, "http://")}}
	n := s.send(t.Context(), d, begin, 200*time.Millisecond)
	assert.Positive(t, n)
	assert.Zero(t, n%linesOf)
	parts := map[string]bool{}
	for text := range seen {
		words := strings.Fields(text)
		parts[words[0]] = true
		assert.Len(t, slices.Compact(words[2:]), 1, "all readings of a request have the same time")
	}
	if n >= 3*linesOf {
		assert.Equal(t, map[string]bool{"host_0": true, "host_1000": true, "host_2000": true}, parts)
	}
}

func TestStreamWithoutDaemonFails(t *testing.T) {
	t.Parallel()
	require.Error(t, stream(t.Context(), "127.0.0.1:1", func() ([]byte, bool) { return nil, true }))
}

func TestHostsAreTheSameEachTimeAndWithinBounds(t *testing.T) {
	t.Parallel()
	hosts := newHosts(100)
	assert.Equal(t, hosts, newHosts(100))
	for i := range hosts {
		for _, fields := range hosts[i].fields {
			require.Len(t, fields, fieldsOf)
			for _, f := range fields {
				assert.GreaterOrEqual(t, f.Value.Int(), int64(0))
				assert.LessOrEqual(t, f.Value.Int(), int64(mostUsage))
			}
		}
	}
}

// TestCallsOfInsertsHaveWholeGroups also checks that calls are equal and writers share no sensor.
func TestCallsOfInsertsHaveWholeGroups(t *testing.T) {
	t.Parallel()
	all := newHosts(hostsOf)
	sides := rawSides(all)
	for side, in := range sides {
		assert.Zero(t, in.perCall%in.perSensor, side)
		assert.InDelta(t, 1000, in.perCall, 50, side)
		assert.Equal(t, all[7].fields[3], in.source.AppendFields(nil, hostsOf+7, variants+3, moved), side)
	}
	for _, in := range []inserts{sides[rawDocuments], besideLoad(all, interval)} {
		assert.Zero(t, in.sensors%(rawWriters*in.perCall), "all calls have the same size")
	}
	assert.Equal(t, "host_7", sides[rawDocuments].source.ID(7))
	assert.Empty(t, sides[rawDocuments].source.Tags(7), "a program that inserts documents has nothing but the name")
	assert.Equal(t, all[7].id, sides[rawSeries].source.ID(7))
	assert.Equal(t, "arch", sides[rawSeries].source.Tags(7)[0].Name, "in the order that Brim stores")
}

package speed

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

var moved = time.Date(2026, 3, 4, 5, 6, 10, 0, time.UTC)

// sent is a reading as one who takes a request reads it.
type sent struct {
	sensor string
	at     time.Time
	fields map[string]int64
	tags   map[string]string
}

// expected is the readings of a step.
func expected(hosts []host, variant int) []sent {
	readings := make([]sent, len(hosts))
	for i := range hosts {
		h := &hosts[i]
		s := sent{h.key, moved, map[string]int64{}, map[string]string{}}
		for f, value := range h.values[variant] {
			s.fields[fieldNames[f]] = value
		}
		for t, value := range h.tags {
			s.tags[tagNames[t]] = value
		}
		readings[i] = s
	}
	return readings
}

func TestLineBodyIsLineProtocol(t *testing.T) {
	t.Parallel()
	hosts := newHosts(37)
	b, err := lineBody(hosts, 3)
	require.NoError(t, err)
	b.moveTo(moved)
	d := lineprotocol.NewDecoderWithBytes(b.text)
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
		var tags [len(tagNames)]string
		for i, name := range tagNames {
			tags[i] = s.tags[name]
		}
		require.Equal(t, "cpu", string(measurement))
		s.sensor = seriesKey(&tags)
		readings = append(readings, s)
	}
	assert.Equal(t, expected(hosts, 3), readings)
}

func TestNDJSONBodyIsObjectsInLines(t *testing.T) {
	t.Parallel()
	hosts := newHosts(37)
	b, err := ndjsonBody(hosts, 0)
	require.NoError(t, err)
	b.moveTo(moved)
	var readings []sent
	for line := range bytes.Lines(b.text) {
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
	b, err := compactBody(hosts, 7)
	require.NoError(t, err)
	b.moveTo(moved)
	var request telemetrypb.WriteRequest
	require.NoError(t, proto.Unmarshal(b.text, &request))
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
	tags := [...]string{"host_0", "r", "d", "1", "o", "a", "t", "2", "3", "e"}
	assert.Equal(t, "cpu,arch=a,datacenter=d,hostname=host_0,os=o,rack=1,region=r,service=2,service_environment=e,service_version=3,team=t", seriesKey(&tags))
}

func TestDeckGoesThroughPartsStepsAndVariants(t *testing.T) {
	t.Parallel()
	hosts := newHosts(2500)
	var seen []string
	d, err := newDeck(hosts, func(hosts []host, variant int) (*body, error) {
		return &body{
			text: []byte(hosts[0].name), stamps: nil,
			stamp: func(dst []byte, at time.Time) []byte {
				seen = append(seen, hosts[0].name+" "+at.Format(time.TimeOnly)+" "+string(rune('0'+variant)))
				return dst
			},
		}, nil
	})
	require.NoError(t, err)
	s := newStretch(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour)
	for range variants {
		_, ok := d.next(t.Context(), s)
		require.True(t, ok)
	}
	s.take(t.Context()) // by another connection
	d.next(t.Context(), s)
	assert.Equal(t, []string{"host_0 00:00:00 0", "host_1000 00:00:00 1", "host_2000 00:00:00 2", "host_0 00:00:10 3"}, seen[:4])
	assert.Equal(t, []string{"host_0 00:00:30 0"}, seen[variants:], "a variant comes again after all others")
	s.end = time.Now()
	_, ok := d.next(t.Context(), s)
	assert.False(t, ok, "the stretch is over")
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
		for _, v := range hosts[i].values {
			for _, value := range v {
				assert.GreaterOrEqual(t, value, int64(0))
				assert.LessOrEqual(t, value, int64(mostUsage))
			}
		}
	}
}

package speed

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// The load has the shape of the Time Series Benchmark Suite's use case
// cpu-only: every host reports ten integers every ten seconds, with ten tags.
const (
	measurementOf = "cpu"
	interval      = 10 * time.Second // of event time, between two readings of a host
	fieldsOf      = 10
	variants      = 8 // of values; readings take one after the other
	heatUp        = 5 // most that a value of the random walk changes between two variants
	mostUsage     = 100
)

var fieldNames = [fieldsOf]string{
	"usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
	"usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
}

var tagNames = [...]string{
	"hostname", "region", "datacenter", "rack", "os", "arch", "team", "service", "service_version", "service_environment",
}

type hosts []host

type host struct {
	id     string                      // the key of its series in line protocol
	tags   []telemetry.Tag             // in the order of tagNames
	fields [variants][]telemetry.Field // in the order of fieldNames
}

// newHosts returns the same hosts for the same number.
func newHosts(n int) hosts {
	all := make(hosts, n)
	for i := range all {
		random := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // synthetic load
		h := &all[i]
		h.tags = hostTags(i, random)
		h.id = seriesKey(h.tags)
		for _, name := range fieldNames {
			value := random.Int64N(mostUsage + 1)
			for v := range variants {
				h.fields[v] = append(h.fields[v], telemetry.Field{Name: name, Value: telemetry.IntValue(value)})
				value = min(max(value+random.Int64N(2*heatUp+1)-heatUp, 0), mostUsage)
			}
		}
	}
	return all
}

func hostTags(number int, random *rand.Rand) (tags []telemetry.Tag) {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	region := one("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "ap-northeast-1", "sa-east-1")
	for t, value := range [len(tagNames)]string{
		"host_" + strconv.Itoa(number), region, region + one("a", "b", "c"), strconv.Itoa(random.IntN(100)),
		one("Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"), one("x64", "x86"), one("SF", "NYC", "LON", "CHI"),
		strconv.Itoa(random.IntN(20)), strconv.Itoa(random.IntN(2)), one("production", "staging", "test"),
	} {
		tags = append(tags, telemetry.Tag{Name: tagNames[t], Value: value})
	}
	return tags
}

// seriesKey is the measurement and the tags in the order of their names, the
// sensor's id of what comes as line protocol.
func seriesKey(tags []telemetry.Tag) string {
	var pairs []string
	for _, t := range tags {
		pairs = append(pairs, ","+t.Name+"="+t.Value)
	}
	slices.Sort(pairs)
	return measurementOf + strings.Join(pairs, "")
}

// step returns a reading of each host, all at one time.
func (h hosts) step(k uint64, at time.Time) []telemetry.Reading {
	readings := make([]telemetry.Reading, len(h))
	for i := range h {
		readings[i] = telemetry.Reading{Sensor: h[i].id, Time: at, Fields: slices.Clone(h[i].fields[k%variants]), Tags: h[i].tags}
	}
	return readings
}

// A format is a way to send readings.
type format struct {
	path, contentType string // of HTTP; empty: gRPC
	encode            func(readings []telemetry.Reading) ([]byte, error)
	// stamp appends a time as encode does; all of them have the same length.
	stamp func(dst []byte, at time.Time) []byte
}

var formats = map[string]format{
	lineProtocol: {"/write?ack=journaled", "text/plain", encodeLines, func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixNano(), 10) }},
	ndjson:       {"/v1/readings?ack=journaled", "application/x-ndjson", encodeNDJSON, func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixMilli(), 10) }},
	compactGRPC: {encode: encodeSeries, stamp: func(dst []byte, at time.Time) []byte {
		return protowire.AppendVarint(dst, uint64(at.UnixMilli())) //nolint:gosec // after 1970
	}},
}

func encodeLines(readings []telemetry.Reading) (text []byte, _ error) {
	for i := range readings {
		text = append(text, measurementOf...)
		for _, t := range readings[i].Tags {
			text = append(text, ","+t.Name+"="+t.Value...)
		}
		separator := byte(' ')
		for _, f := range readings[i].Fields {
			text = append(append(text, separator), f.Name+"="...)
			text = append(f.Value.AppendJSON(text), 'i')
			separator = ','
		}
		text = append(strconv.AppendInt(append(text, ' '), readings[i].Time.UnixNano(), 10), '\n')
	}
	return text, nil
}

func encodeNDJSON(readings []telemetry.Reading) ([]byte, error) {
	return telemetry.AppendNDJSON(nil, readings), nil
}

// encodeSeries makes a WriteRequest with a series for each reading.
func encodeSeries(readings []telemetry.Reading) ([]byte, error) {
	request := &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED}
	for i := range readings {
		r := &readings[i]
		series := &telemetrypb.Series{SensorId: r.Sensor, TsMs: []int64{r.Time.UnixMilli()}}
		for _, t := range r.Tags {
			series.Tags = append(series.Tags, &telemetrypb.Tag{Name: t.Name, Value: t.Value})
		}
		for _, f := range r.Fields {
			series.Columns = append(series.Columns, &telemetrypb.Column{Name: f.Name, Ints: []int64{f.Value.Int()}})
		}
		request.Series = append(request.Series, series)
	}
	return proto.Marshal(request)
}

// A body is a request made beforehand, of which only the timestamps change, so
// that sending it costs next to nothing. All readings have the same time: it is
// one step of the hosts.
type body struct {
	text   []byte
	stamps []int // where the timestamps stand
	stamp  func(dst []byte, at time.Time) []byte
}

// newBody makes a step with the values of a variant.
func (f format) newBody(of hosts, variant uint64) (*body, error) {
	stampedAt := time.Unix(1.7e9, 0).UTC()
	text, err := f.encode(of.step(variant, stampedAt))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	b, mark := &body{text: text, stamp: f.stamp}, f.stamp(nil, stampedAt)
	for at := 0; ; at += len(mark) {
		next := bytes.Index(text[at:], mark)
		if next < 0 {
			break
		}
		at += next
		b.stamps = append(b.stamps, at)
	}
	if len(b.stamps) != len(of) {
		return nil, fmt.Errorf("make a request: it has %d timestamps, not %d", len(b.stamps), len(of))
	}
	return b, nil
}

// moveTo sets the time.
func (b *body) moveTo(at time.Time) {
	var room [20]byte
	stamp := b.stamp(room[:0], at)
	for _, place := range b.stamps {
		copy(b.text[place:], stamp)
	}
}

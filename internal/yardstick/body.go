package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A body is a request made beforehand, of which only the timestamps change, so
// that sending it costs next to nothing. All readings have the same time: it is
// one step of the hosts.
type body struct {
	text   []byte
	stamps []int // where the timestamps stand
	// stamp appends one; all have the same length.
	stamp func(dst []byte, at time.Time) []byte
}

// moveTo sets the time.
func (b *body) moveTo(at time.Time) {
	var room [20]byte
	stamp := b.stamp(room[:0], at)
	for _, place := range b.stamps {
		copy(b.text[place:place+len(stamp)], stamp)
	}
}

// somewhen is where a body stands before it is moved.
func somewhen() time.Time { return time.Unix(1.7e9, 0) }

// appendStamp appends a timestamp that will be moved.
func (b *body) appendStamp() {
	b.stamps = append(b.stamps, len(b.text))
	b.text = b.stamp(b.text, somewhen())
}

// lineBody is a step in line protocol, with the values of a variant.
func lineBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixNano(), 10) }}
	for i := range hosts {
		b.text = append(b.text, measurementOf...)
		for t, name := range tagNames {
			b.text = append(b.text, ","+name+"="+hosts[i].tags[t]...)
		}
		separator := byte(' ')
		for f, value := range hosts[i].values[variant] {
			b.text = append(append(b.text, separator), fieldNames[f]+"="...)
			b.text = append(strconv.AppendInt(b.text, value, 10), 'i')
			separator = ','
		}
		b.text = append(b.text, ' ')
		b.appendStamp()
		b.text = append(b.text, '\n')
	}
	return b, nil
}

// ndjsonBody is a step as JSON objects, a line each; timestamps are integers.
func ndjsonBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixMilli(), 10) }}
	for i := range hosts {
		h := &hosts[i]
		fields, tags := make(map[string]int64, fieldsOf), make(map[string]string, len(tagNames))
		for f, value := range h.values[variant] {
			fields[fieldNames[f]] = value
		}
		for t, value := range h.tags {
			tags[tagNames[t]] = value
		}
		rest, err := json.Marshal(struct {
			Fields map[string]int64  `json:"fields"`
			Tags   map[string]string `json:"tags"`
		}{fields, tags})
		if err != nil {
			return nil, fmt.Errorf("make a reading in JSON: %w", err)
		}
		b.text = fmt.Appendf(b.text, `{"sensorId":%q,"ts":`, h.key)
		b.appendStamp()
		b.text = append(append(append(b.text, ','), rest[1:]...), '\n')
	}
	return b, nil
}

// compactBody is a step as a WriteRequest of the compact form: a series for
// each host, with one reading.
func compactBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte {
		return protowire.AppendVarint(dst, uint64(at.UnixMilli())) //nolint:gosec // after 1970
	}}
	head, err := proto.Marshal(&telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED})
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	b.text = append(b.text, head...)
	for i := range hosts {
		h := &hosts[i]
		series := &telemetrypb.Series{SensorId: h.key, TsMs: []int64{somewhen().UnixMilli()}}
		for t, value := range h.tags {
			series.Tags = append(series.Tags, &telemetrypb.Tag{Name: tagNames[t], Value: value})
		}
		for f, value := range h.values[variant] {
			series.Columns = append(series.Columns, &telemetrypb.Column{Name: fieldNames[f], Ints: []int64{value}})
		}
		text, err := proto.Marshal(&telemetrypb.WriteRequest{Series: []*telemetrypb.Series{series}})
		if err != nil {
			return nil, fmt.Errorf("make a series: %w", err)
		}
		place := bytes.Index(text, b.stamp(nil, somewhen()))
		if place < 0 {
			return nil, fmt.Errorf("find the time in the series of %s", h.name)
		}
		b.stamps = append(b.stamps, len(b.text)+place)
		b.text = append(b.text, text...) // messages that stand together are one
	}
	return b, nil
}

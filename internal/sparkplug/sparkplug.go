// Package sparkplug decodes Sparkplug B messages, and remembers the births that name the metrics
// of later messages.
package sparkplug

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/brim-telemetry/brim/internal/sparkplug/sparkplugpb"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Prefix is the prefix of Sparkplug B topics.
const Prefix = "spBv1.0/"

// Codes of errors.
const (
	codeTopic   = "topic"           // the topic is malformed
	CodePayload = "sparkplug"       // it is not a Sparkplug B payload, or of an unknown type
	CodeAlias   = "sparkplug_alias" // no birth defines the alias
)

// Skips returns the reasons for not storing a message or a metric.
func Skips() []string {
	return []string{"state", "death", "command", "null", "range", "not_finite", "type", "name"}
}

// A Decoder decodes the messages of a subscription, for one goroutine.
type Decoder struct {
	Births  Births                             // known so far; may be nil
	Changed bool                               // set when Births change; the caller resets it
	Skip    func(reason string)                // counts a message or a metric that is not stored
	Publish func(topic string, payload []byte) // asks a node for its births

	asked map[string]time.Time // when each node was asked for its births
}

// A Message is a decoded message.
type Message struct {
	Sensor   string
	Tags     []telemetry.Tag
	Readings []telemetry.Reading // none in deaths, for example
}

// Data types of Sparkplug B metrics that can be stored.
const (
	typeInt8 = iota + 1
	typeInt16
	typeInt32
	typeInt64
	typeUint8
	typeUint16
	typeUint32
	typeUint64
	typeFloat
	typeDouble
	typeBoolean
	typeString
	typeDateTime
	typeText
	typeUUID
)

// A metricName is the name and the type that a birth defines for an alias.
type metricName struct {
	Name string `json:"name"`
	Type uint32 `json:"type"`
}

// Births are the aliases of each node and device, by group/node and group/node/device. A
// node's birth removes those of its devices. The inner maps never change; a birth replaces
// them.
type Births map[string]map[uint64]metricName

// A topic is spBv1.0/GROUP/KIND/NODE or spBv1.0/GROUP/KIND/NODE/DEVICE.
type topic struct{ group, kind, node, device string }

func parseTopic(text string) (t topic, ok bool) {
	rest, ok := strings.CutPrefix(text, Prefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 3 || len(parts) > 4 {
		return t, false
	}
	t = topic{group: parts[0], kind: parts[1], node: parts[2]}
	if len(parts) == 4 {
		t.device = parts[3]
	}
	return t, t.group != "" && t.node != ""
}

func (t topic) nodeID() string { return t.group + "/" + t.node }

// sensor returns the sensor ID of the node or device.
func (t topic) sensor() string {
	if t.device == "" {
		return t.nodeID()
	}
	return t.nodeID() + "/" + t.device
}

// maxAliases is the largest number of aliases of all nodes together.
const maxAliases = 100_000

// Decode decodes a message and remembers births. A message that has no readings, such as a
// death, is no error. Errors are of type *telemetry.Error.
func (d *Decoder) Decode(name string, payload []byte) (m Message, err error) {
	if strings.HasPrefix(name, Prefix+"STATE/") {
		d.Skip("state")
		return m, nil
	}
	t, ok := parseTopic(name)
	if !ok {
		return m, refuse(codeTopic, "the topic is not a Sparkplug B topic: spBv1.0/GROUP/KIND/NODE or spBv1.0/GROUP/KIND/NODE/DEVICE")
	}
	switch t.kind {
	case "NBIRTH", "NDATA", "DBIRTH", "DDATA":
	case "NDEATH", "DDEATH":
		d.Skip("death")
		return m, nil
	case "NCMD", "DCMD":
		d.Skip("command")
		return m, nil
	default:
		return m, refuse(CodePayload, "message type %s is unknown; allowed: NBIRTH, DBIRTH, NDATA, DDATA, NDEATH, DDEATH, NCMD, DCMD, STATE", telemetry.Quote([]byte(t.kind)))
	}
	if (t.kind[0] == 'D') != (t.device != "") {
		return m, refuse(codeTopic, "a topic must have a device if its message type begins with D, and no device otherwise; its type is %s", t.kind)
	}
	if countMetrics(payload) > maxMetrics {
		return m, refuse(CodePayload, "the payload has more than %d metrics", maxMetrics)
	}
	var p pb.Payload
	if err := proto.Unmarshal(payload, &p); err != nil {
		return m, refuse(CodePayload, "the payload is not Sparkplug B: %v", err)
	}
	if m.Readings, err = d.readings(t, &p); err != nil {
		return m, err
	}
	if t.kind == "NBIRTH" || t.kind == "DBIRTH" {
		if err := d.noteBirth(t, &p); err != nil {
			return m, err
		}
	}
	m.Sensor = t.sensor()
	m.Tags = []telemetry.Tag{{Name: "group", Value: t.group}, {Name: "node", Value: t.node}}
	if t.device != "" {
		m.Tags = append(m.Tags, telemetry.Tag{Name: "device", Value: t.device})
	}
	return m, nil
}

func refuse(code, format string, args ...any) error {
	return telemetry.Errorf(telemetry.Invalid, code, format, args...)
}

// maxMetrics is the largest number of metrics in a message. An empty one takes two bytes, and
// over a hundred when it is decoded.
const maxMetrics = 100_000

// countMetrics counts the metrics of a payload, up to where it is malformed.
func countMetrics(payload []byte) (n int) {
	for len(payload) > 0 {
		number, _, size := protowire.ConsumeField(payload)
		if size < 0 {
			return n
		}
		if number == 2 {
			n++
		}
		payload = payload[size:]
	}
	return n
}

// noteBirth remembers the aliases of a birth.
func (d *Decoder) noteBirth(t topic, p *pb.Payload) error {
	if d.Births == nil {
		d.Births = make(Births)
	}
	if t.device == "" {
		maps.DeleteFunc(d.Births, func(id string, _ map[uint64]metricName) bool {
			return id == t.nodeID() || strings.HasPrefix(id, t.nodeID()+"/")
		})
	}
	names := make(map[uint64]metricName)
	for _, metric := range p.GetMetrics() {
		if metric.Alias != nil {
			names[metric.GetAlias()] = metricName{metric.GetName(), metric.GetDatatype()}
		}
	}
	all := len(names)
	for id, others := range d.Births {
		if id != t.sensor() { // its own are replaced
			all += len(others)
		}
	}
	if all > maxAliases {
		return refuse(CodePayload, "the births of all nodes have more than %d aliases", maxAliases)
	}
	d.Births[t.sensor()], d.Changed = names, true
	return nil
}

// lookup returns the name and the type of an alias. Aliases are unique within a node, so a
// device may use those of its node.
func (b Births) lookup(t topic, alias uint64) (metricName, bool) {
	name, ok := b[t.sensor()][alias]
	if !ok {
		name, ok = b[t.nodeID()][alias]
	}
	return name, ok
}

// readings returns one reading for the metrics of each timestamp.
func (d *Decoder) readings(t topic, p *pb.Payload) ([]telemetry.Reading, error) {
	var out []telemetry.Reading
	open := make(map[uint64]int) // index of the reading for a timestamp
	for _, metric := range p.GetMetrics() {
		name := metricName{metric.GetName(), metric.GetDatatype()}
		if metric.Alias != nil && metric.Name == nil {
			of, ok := d.Births.lookup(t, metric.GetAlias())
			if !ok {
				d.requestRebirth(t)
				return nil, refuse(CodeAlias, "no birth of %s defines alias %d; a rebirth was requested", telemetry.Quote([]byte(t.sensor())), metric.GetAlias())
			}
			if name.Name = of.Name; metric.Datatype == nil {
				name.Type = of.Type
			}
		}
		if name.Name == "bdSeq" || strings.HasPrefix(name.Name, "Node Control/") || strings.HasPrefix(name.Name, "Device Control/") {
			continue
		}
		field := strings.ReplaceAll(name.Name, ".", "_") // field names cannot contain dots
		value, skip := valueOf(metric, name.Type)
		if skip == "" && telemetry.CheckFieldName([]byte(field)) != nil {
			skip = "name"
		}
		if skip != "" {
			d.Skip(skip)
			continue
		}
		at := metric.GetTimestamp()
		if metric.Timestamp == nil {
			at = p.GetTimestamp()
		}
		i, ok := open[at]
		if !ok || len(out[i].Fields) == telemetry.MaxFields || slices.ContainsFunc(out[i].Fields, func(f telemetry.Field) bool { return f.Name == field }) {
			i = len(out)
			r := telemetry.Reading{}
			if at > 0 {
				r.Time = time.UnixMilli(int64(min(at, math.MaxInt64))).UTC()
			}
			out = append(out, r)
			open[at] = i
		}
		out[i].Fields = append(out[i].Fields, telemetry.Field{Name: field, Value: value})
	}
	return out, nil
}

// valueOf returns the value of a metric, or the reason why it is skipped.
func valueOf(m *pb.Metric, kind uint32) (v telemetry.Value, skip string) {
	if m.GetIsNull() {
		return v, "null"
	}
	switch value := m.GetValue().(type) {
	case *pb.Metric_IntValue:
		switch n := value.IntValue; kind {
		case typeInt8:
			return telemetry.IntValue(int64(int8(n))), ""
		case typeInt16:
			return telemetry.IntValue(int64(int16(n))), ""
		case typeInt32:
			return telemetry.IntValue(int64(int32(n))), ""
		default:
			return telemetry.IntValue(int64(n)), ""
		}
	case *pb.Metric_LongValue:
		if value.LongValue > math.MaxInt64 && kind != typeInt64 && kind != typeDateTime {
			return v, "range"
		}
		return telemetry.IntValue(int64(value.LongValue)), ""
	case *pb.Metric_FloatValue:
		return finite(float64(value.FloatValue))
	case *pb.Metric_DoubleValue:
		return finite(value.DoubleValue)
	case *pb.Metric_BooleanValue:
		return telemetry.BoolValue(value.BooleanValue), ""
	case *pb.Metric_StringValue:
		return telemetry.TextValue(value.StringValue), ""
	case nil:
		return v, "null"
	}
	return v, "type" // data sets, templates, bytes and files
}

func finite(f float64) (telemetry.Value, string) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return telemetry.Value{}, "not_finite"
	}
	return telemetry.FloatValue(f), ""
}

// rebirthPause is the shortest time between two requests for the births of a node.
const rebirthPause = 10 * time.Second

// requestRebirth asks a node for its births, at most once per rebirthPause.
func (d *Decoder) requestRebirth(t topic) {
	now := time.Now()
	if now.Sub(d.asked[t.nodeID()]) < rebirthPause {
		return
	}
	if d.asked == nil || len(d.asked) > 10_000 {
		d.asked = make(map[string]time.Time)
	}
	d.asked[t.nodeID()] = now
	payload, _ := proto.Marshal(&pb.Payload{ // its parts can always be encoded
		Timestamp: proto.Uint64(uint64(now.UnixMilli())),
		Metrics: []*pb.Metric{{
			Name: proto.String("Node Control/Rebirth"), Datatype: proto.Uint32(typeBoolean), Value: &pb.Metric_BooleanValue{BooleanValue: true},
		}},
	})
	d.Publish(Prefix+t.group+"/NCMD/"+t.node, payload)
}

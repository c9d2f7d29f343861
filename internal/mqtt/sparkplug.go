package mqtt

import (
	"maps"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/ingest"
	pb "github.com/brim-telemetry/brim/internal/mqtt/sparkplugpb"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Types of Sparkplug B metrics that are values.
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

// A metricName is what a birth says of a metric.
type metricName struct {
	Name string `json:"name"`
	Type uint32 `json:"type"`
}

// births has the metrics with aliases of each device, by group/node and group/node/device.
// What is below a node is gone when the node is born again. Values never change; a birth
// replaces them.
type births map[string]map[uint64]metricName

// A sparkplugTopic is spBv1.0/GROUP/KIND/NODE or spBv1.0/GROUP/KIND/NODE/DEVICE.
type sparkplugTopic struct{ group, kind, node, device string }

func parseSparkplugTopic(topic string) (t sparkplugTopic, ok bool) {
	rest, ok := strings.CutPrefix(topic, sparkplugPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 3 || len(parts) > 4 {
		return t, false
	}
	t = sparkplugTopic{group: parts[0], kind: parts[1], node: parts[2]}
	if len(parts) == 4 {
		t.device = parts[3]
	}
	return t, t.group != "" && t.node != ""
}

func (t sparkplugTopic) nodeID() string { return t.group + "/" + t.node }

// sensor is the id of the sensor that a node or a device is.
func (t sparkplugTopic) sensor() string {
	if t.device == "" {
		return t.nodeID()
	}
	return t.nodeID() + "/" + t.device
}

// maxAliases bounds the births of all nodes together.
const maxAliases = 100_000

// decodeSparkplug decodes a message. Without a refusal and without readings it has none,
// as that of a death. It notes births.
func (s *Subscriber) decodeSparkplug(topic string, payload []byte, m *ingest.Message) (r *refusal) {
	if strings.HasPrefix(topic, sparkplugPrefix+"STATE/") {
		s.metrics.skipped.WithLabelValues("state").Inc()
		return nil
	}
	t, ok := parseSparkplugTopic(topic)
	if !ok {
		return refuse(reasonTopic, "the topic is not that of a Sparkplug B message, spBv1.0/GROUP/KIND/NODE or spBv1.0/GROUP/KIND/NODE/DEVICE")
	}
	switch t.kind {
	case "NBIRTH", "NDATA", "DBIRTH", "DDATA":
	case "NDEATH", "DDEATH":
		s.metrics.skipped.WithLabelValues("death").Inc()
		return nil
	case "NCMD", "DCMD":
		s.metrics.skipped.WithLabelValues("command").Inc()
		return nil
	default:
		return refuse(reasonSparkplug, "messages of kind %s are unknown; allowed: NBIRTH, DBIRTH, NDATA, DDATA, NDEATH, DDEATH, NCMD, DCMD, STATE", telemetry.Quote([]byte(t.kind)))
	}
	if (t.kind[0] == 'D') != (t.device != "") {
		return refuse(reasonTopic, "a topic of kind %s names a device only if it begins with D", t.kind)
	}
	var p pb.Payload
	if err := proto.Unmarshal(payload, &p); err != nil {
		return refuse(reasonSparkplug, "the payload is not Sparkplug B: %v", err)
	}
	if m.Readings, r = s.readings(t, &p); r != nil {
		return r
	}
	if t.kind == "NBIRTH" || t.kind == "DBIRTH" {
		if r := s.noteBirth(t, &p); r != nil {
			return r
		}
	}
	m.Sensor = t.sensor()
	m.Tags = []telemetry.Tag{{Name: "group", Value: t.group}, {Name: "node", Value: t.node}}
	if t.device != "" {
		m.Tags = append(m.Tags, telemetry.Tag{Name: "device", Value: t.device})
	}
	return nil
}

// noteBirth remembers the aliases of a birth.
func (s *Subscriber) noteBirth(t sparkplugTopic, p *pb.Payload) *refusal {
	if t.device == "" {
		maps.DeleteFunc(s.births, func(id string, _ map[uint64]metricName) bool {
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
	for _, others := range s.births {
		all += len(others)
	}
	if all > maxAliases {
		return refuse(reasonSparkplug, "all births have more than %d aliases", maxAliases)
	}
	s.births[t.sensor()], s.changed = names, true
	return nil
}

// lookup returns what a birth said of an alias. Aliases are unique in a node, so a device
// may use those of its node.
func (b births) lookup(t sparkplugTopic, alias uint64) (metricName, bool) {
	name, ok := b[t.sensor()][alias]
	if !ok {
		name, ok = b[t.nodeID()][alias]
	}
	return name, ok
}

// readings makes a reading of the metrics of each instant.
func (s *Subscriber) readings(t sparkplugTopic, p *pb.Payload) ([]telemetry.Reading, *refusal) {
	var out []telemetry.Reading
	open := make(map[uint64]int)            // the reading that metrics of an instant go to
	seen := make(map[string]map[uint64]int) // of a field at an instant, how many values came
	for _, metric := range p.GetMetrics() {
		name := metricName{metric.GetName(), metric.GetDatatype()}
		if metric.Alias != nil && metric.Name == nil {
			of, ok := s.births.lookup(t, metric.GetAlias())
			if !ok {
				s.requestRebirth(t)
				return nil, refuse(reasonAlias, "no birth of %s gave alias %d a name; a rebirth was requested", telemetry.Quote([]byte(t.sensor())), metric.GetAlias())
			}
			if name.Name = of.Name; metric.Datatype == nil {
				name.Type = of.Type
			}
		}
		if name.Name == "bdSeq" || strings.HasPrefix(name.Name, "Node Control/") || strings.HasPrefix(name.Name, "Device Control/") {
			continue
		}
		field := strings.ReplaceAll(name.Name, ".", "_") // which the names of fields cannot contain
		value, skip := valueOf(metric, name.Type)
		if skip == "" && telemetry.CheckFieldName([]byte(field)) != nil {
			skip = "name"
		}
		if skip != "" {
			s.metrics.skipped.WithLabelValues(skip).Inc()
			continue
		}
		at := metric.GetTimestamp()
		if metric.Timestamp == nil {
			at = p.GetTimestamp()
		}
		of := seen[field]
		if of == nil {
			of = make(map[uint64]int)
			seen[field] = of
		}
		i, ok := open[at]
		if !ok || len(out[i].Fields) == telemetry.MaxFields || of[at] > 0 {
			i = len(out)
			r := telemetry.Reading{}
			if at > 0 && at <= math.MaxInt64/1_000_000 {
				r.Time = time.UnixMilli(int64(at)).UTC()
			}
			out = append(out, r)
			open[at] = i
		}
		of[at]++
		out[i].Fields = append(out[i].Fields, telemetry.Field{Name: field, Value: value})
	}
	return out, nil
}

// valueOf returns the value of a metric, or why it is none.
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

// rebirthPause is how long a node is not asked again for its births.
const rebirthPause = 10 * time.Second

// rebirthPayload asks a node to publish its births.
func rebirthPayload(now time.Time) []byte {
	payload, err := proto.Marshal(&pb.Payload{
		Timestamp: proto.Uint64(uint64(now.UnixMilli())),
		Metrics: []*pb.Metric{{
			Name: proto.String("Node Control/Rebirth"), Datatype: proto.Uint32(typeBoolean), Value: &pb.Metric_BooleanValue{BooleanValue: true},
		}},
	})
	if err != nil {
		return nil // its parts can always be encoded
	}
	return payload
}

// requestRebirth asks a node for its births, unless it was asked shortly before.
func (s *Subscriber) requestRebirth(t sparkplugTopic) {
	now := time.Now()
	if now.Sub(s.asked[t.nodeID()]) < rebirthPause {
		return
	}
	if len(s.asked) > 10_000 {
		clear(s.asked)
	}
	s.asked[t.nodeID()] = now
	s.publish(sparkplugPrefix+t.group+"/NCMD/"+t.node, rebirthPayload(now))
}

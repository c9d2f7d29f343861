package doctor

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	yaml "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
)

// Thresholds are an operator's, from a file. What the file leaves out keeps the
// built-in value; nil has only built-in ones.
type Thresholds struct {
	own map[string]ownThreshold // by signal; disk_await by signal and kind: "disk_await.nvme"
}

type ownThreshold struct {
	Threshold
	source string // FILE:LINE
}

// LoadThresholds reads a YAML file of thresholds in the signals' units:
//
//	disk_busy: {degrading: 60, bottleneck: 90}
//	disk_await:
//	  nvme: {degrading: 1, bottleneck: 4}
//
// Unreachable bounds, such as 1000 %, turn a signal off. Errors name the line and
// what is allowed; several are joined.
func LoadThresholds(path string) (*Thresholds, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read thresholds: %w", err)
	}
	return parseThresholds(path, content)
}

// unmeasured returns all signals without values, with the thresholds for a kind of
// disk. t nil: the built-in ones.
func (t *Thresholds) unmeasured(kind diskKind) []Signal {
	out := make([]Signal, len(signalRules))
	for i := range signalRules {
		r, name := &signalRules[i], signalRules[i].name
		s := Signal{Name: r.name, Title: r.title, Unit: r.unit, Value: math.NaN(), Class: Unknown, Threshold: r.threshold, Source: r.source}
		if r.name == diskAwait {
			if _, ok := awaits[kind]; !ok {
				kind = diskUnknown
			}
			s.Threshold, s.Source = awaits[kind].threshold, awaits[kind].source
			name += "." + string(kind)
		}
		if t != nil {
			if own, ok := t.own[name]; ok {
				s.Threshold, s.Source = own.Threshold, own.source
			}
		}
		out[i] = s
	}
	return out
}

func parseThresholds(path string, content []byte) (*Thresholds, error) {
	file, t := &config.YAML{Path: path}, &Thresholds{own: make(map[string]ownThreshold)}
	read := func(key, value *yaml.Node, name string, r *signalRule) {
		bounds := make(map[string]float64)
		file.Each(value, name+".", config.Choices{Names: []string{"degrading", "bottleneck"}}, func(half, n *yaml.Node) {
			v, err := strconv.ParseFloat(n.Value, 64)
			if n.Kind != yaml.ScalarNode || err != nil || !(v >= 0 && v <= math.MaxFloat64) {
				file.Wrong(n, "%s.%s: %q is not a number of at least 0, in %s", name, half.Value, n.Value, r.unit)
				v = math.NaN()
			}
			bounds[half.Value] = v
		})
		if value.Kind != yaml.MappingNode && value.Tag != "!!null" {
			return
		}
		example := fmt.Sprintf("both are needed, as in {degrading: %s, bottleneck: %s}", plain(r.threshold.Degrading), plain(r.threshold.Bottleneck))
		degrading, first := bounds["degrading"]
		bottleneck, second := bounds["bottleneck"]
		switch {
		case !first:
			file.Wrong(key, "%s: degrading is missing; %s", name, example)
		case !second:
			file.Wrong(key, "%s: bottleneck is missing; %s", name, example)
		case r.threshold.Below && bottleneck > degrading:
			file.Wrong(key, "%s: lower values are worse, so bottleneck must not exceed degrading; it is %s, and degrading is %s", name, plain(bottleneck), plain(degrading))
		case !r.threshold.Below && bottleneck < degrading:
			file.Wrong(key, "%s: bottleneck must not be less than degrading; it is %s, and degrading is %s", name, plain(bottleneck), plain(degrading))
		}
		t.own[name] = ownThreshold{Threshold{degrading, bottleneck, r.threshold.Below}, fmt.Sprintf("%s:%d", path, key.Line)}
	}
	if top := file.Parse(content); top != nil {
		names := make([]string, len(signalRules))
		for i := range signalRules {
			names[i] = signalRules[i].name
		}
		file.Each(top, "", config.Choices{Names: names}, func(key, value *yaml.Node) {
			r := &signalRules[slices.Index(names, key.Value)]
			if r.name != diskAwait {
				read(key, value, r.name, r)
				return
			}
			kinds := config.Choices{Names: []string{string(diskNVMe), string(diskSSD), string(diskHDD), string(diskUnknown)}}
			file.Each(value, diskAwait+".", kinds, func(kind, value *yaml.Node) { read(kind, value, diskAwait+"."+kind.Value, r) })
		})
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

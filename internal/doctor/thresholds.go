package doctor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Thresholds are an operator's own, from a file. What the file does not name
// stays as built in; nil is the built-in ones alone.
type Thresholds struct {
	own map[string]ownThreshold // by signal; disk_await by signal and kind: "disk_await nvme"
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
// Bounds that no value reaches, such as 1000 %, turn a signal off. An error names
// the line and what is allowed; several are joined.
func LoadThresholds(path string) (*Thresholds, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read thresholds: %w", err)
	}
	return parseThresholds(path, content)
}

// Rules returns all signals without a value, with their thresholds for a kind of
// disk: nvme, ssd, hdd or unknown. t nil: the built-in ones.
func Rules(t *Thresholds, kind string) []Signal { return t.unmeasured(diskKind(kind)) }

func (t *Thresholds) unmeasured(kind diskKind) []Signal {
	out := make([]Signal, len(rules))
	for i := range rules {
		r, name := &rules[i], rules[i].name
		s := Signal{Name: r.name, Title: r.title, Unit: r.unit, Value: math.NaN(), Class: Unknown, Threshold: r.threshold, Source: r.source}
		if r.name == diskAwait {
			if _, ok := awaits[kind]; !ok {
				kind = diskUnknown
			}
			s.Threshold, s.Source = awaits[kind].threshold, awaits[kind].source
			name += " " + string(kind)
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

// A thresholdsFile is one that is being read.
type thresholdsFile struct {
	path     string
	own      map[string]ownThreshold
	problems []error
}

func parseThresholds(path string, content []byte) (*Thresholds, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		// The parser names no line where it is the first.
		text, line := strings.TrimPrefix(err.Error(), "yaml: "), "1"
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			line, text, _ = strings.Cut(rest, ": ")
		}
		return nil, fmt.Errorf("%s:%s: not valid YAML: %s", path, line, text)
	}
	f := thresholdsFile{path: path, own: make(map[string]ownThreshold)}
	if len(root.Content) > 0 && root.Content[0].Tag != "!!null" { // else it has comments at most
		f.each(root.Content[0], "thresholds", ruleNames(), func(key, value *yaml.Node, r *rule) {
			if r.name != diskAwait {
				f.threshold(key, value, r, r.name)
				return
			}
			kinds := []string{string(diskNVMe), string(diskSSD), string(diskHDD), string(diskUnknown)}
			f.each(value, diskAwait, kinds, func(kind, value *yaml.Node, _ *rule) {
				f.threshold(kind, value, r, diskAwait+" "+kind.Value)
			})
		})
	}
	if err := errors.Join(f.problems...); err != nil {
		return nil, err
	}
	return &Thresholds{own: f.own}, nil
}

func ruleNames() []string {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].name
	}
	return names
}

func (f *thresholdsFile) wrong(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %s", f.path, n.Line, fmt.Sprintf(format, args...)))
}

// each calls take for every allowed key of a mapping, with the rule of that name
// if there is one.
func (f *thresholdsFile) each(n *yaml.Node, what string, allowed []string, take func(key, value *yaml.Node, r *rule)) {
	if n.Kind != yaml.MappingNode {
		f.wrong(n, "%s: must be a mapping; allowed keys are %s", what, strings.Join(allowed, ", "))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.AliasNode && value.Alias.Kind != yaml.ScalarNode {
			value = value.Alias
		}
		line, twice := seen[key.Value]
		seen[key.Value] = key.Line
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, key.Value):
			f.wrong(key, "%s: unknown name %q; allowed are %s", what, key.Value, strings.Join(allowed, ", "))
		case twice:
			f.wrong(key, "%s: %s is already set in line %d", what, key.Value, line)
		default:
			var r *rule
			if i := slices.Index(ruleNames(), key.Value); i >= 0 {
				r = &rules[i]
			}
			take(key, value, r)
		}
	}
}

// threshold reads the two halves of one threshold and checks their order.
func (f *thresholdsFile) threshold(key, value *yaml.Node, r *rule, name string) {
	before, t := len(f.problems), Threshold{Degrading: -1, Bottleneck: -1, Below: r.threshold.Below}
	f.each(value, name, []string{"degrading", "bottleneck"}, func(half, value *yaml.Node, _ *rule) {
		v := f.number(value, name+"."+half.Value, r.unit)
		if half.Value == "degrading" {
			t.Degrading = v
		} else {
			t.Bottleneck = v
		}
	})
	missing := map[bool]string{true: "degrading", false: "bottleneck"}[t.Degrading < 0]
	switch {
	case len(f.problems) > before:
	case t.Degrading < 0, t.Bottleneck < 0:
		f.wrong(key, "%s: %s is missing; both are needed, as in {degrading: %s, bottleneck: %s}", name, missing, plain(r.threshold.Degrading), plain(r.threshold.Bottleneck))
	case t.Below && t.Bottleneck > t.Degrading:
		f.wrong(key, "%s: small values are the bad ones, so bottleneck must not exceed degrading; it is %s, and degrading is %s", name, plain(t.Bottleneck), plain(t.Degrading))
	case !t.Below && t.Bottleneck < t.Degrading:
		f.wrong(key, "%s: bottleneck must not be less than degrading; it is %s, and degrading is %s", name, plain(t.Bottleneck), plain(t.Degrading))
	default:
		f.own[name] = ownThreshold{t, fmt.Sprintf("%s:%d", f.path, key.Line)}
	}
}

// number reads a bound in the signal's unit.
func (f *thresholdsFile) number(n *yaml.Node, name, unit string) float64 {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(v >= 0 && v <= math.MaxFloat64) {
		f.wrong(n, "%s: %q is not a number of at least 0, in %s", name, n.Value, unit)
	}
	return v
}

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

// Thresholds are those of an operator's own, from a file. What the file does
// not name is as built in; nil is the built-in ones alone.
type Thresholds struct {
	own map[string]sourced // by signal; of disk_await by signal and kind: "disk_await nvme"
}

type sourced struct {
	threshold Threshold
	source    string // FILE:LINE
}

// LoadThresholds reads a YAML file of thresholds in the signals' units:
//
//	disk_busy: {degrading: 60, bottleneck: 90}
//	disk_await:
//	  nvme: {degrading: 1, bottleneck: 4}
//
// Bounds that no value reaches, as 1000 %, turn a signal off. An error names the
// line and what is allowed; several are joined.
func LoadThresholds(path string) (*Thresholds, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read thresholds: %w", err)
	}
	return parseThresholds(path, content)
}

// of returns what a signal is held against.
func (t *Thresholds) of(r *rule, kind diskKind) (Threshold, string) {
	threshold, source, name := r.threshold, r.source, r.name
	if name == diskAwait {
		threshold, source = awaits[kind].threshold, awaits[kind].source
		name += " " + string(kind)
	}
	if t == nil {
		return threshold, source
	}
	if own, ok := t.own[name]; ok {
		return own.threshold, own.source
	}
	return threshold, source
}

// blank returns all signals without a value.
func (t *Thresholds) blank(kind diskKind) []Signal {
	out := make([]Signal, len(rules))
	for i := range rules {
		r := &rules[i]
		out[i] = Signal{Name: r.name, Title: r.title, Unit: r.unit, Value: math.NaN(), Class: Unknown}
		out[i].Threshold, out[i].Source = t.of(r, kind)
	}
	return out
}

// Rules returns all signals without a value, with what they are held against
// on a disk of a kind: nvme, ssd, hdd or unknown. t nil: the built-in
// thresholds.
func Rules(t *Thresholds, kind string) []Signal {
	k := diskKind(kind)
	if _, ok := awaits[k]; !ok {
		k = diskUnknown
	}
	return t.blank(k)
}

// A thresholdsFile is one that is being read.
type thresholdsFile struct {
	path     string
	own      map[string]sourced
	problems []error
}

func parseThresholds(path string, content []byte) (*Thresholds, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, notYAML(path, err)
	}
	f := thresholdsFile{path: path, own: make(map[string]sourced)}
	if len(root.Content) > 0 && root.Content[0].Tag != "!!null" { // else there are comments at most
		f.signals(root.Content[0])
	}
	if err := errors.Join(f.problems...); err != nil {
		return nil, err
	}
	return &Thresholds{own: f.own}, nil
}

// notYAML says in which line a file is broken. The parser names none where it is
// the first.
func notYAML(path string, err error) error {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), "1"
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		line, text, _ = strings.Cut(rest, ": ")
	}
	return fmt.Errorf("%s:%s: this is no YAML: %s", path, line, text)
}

func (f *thresholdsFile) wrong(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %s", f.path, n.Line, fmt.Sprintf(format, args...)))
}

// each calls take for every key of a mapping that is allowed, once.
func (f *thresholdsFile) each(n *yaml.Node, what string, allowed []string, take func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.wrong(n, "%s: keys with values are expected here; allowed are %s", what, strings.Join(allowed, ", "))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := seen[key.Value]
		seen[key.Value] = key.Line
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, key.Value):
			f.wrong(key, "%s: unknown name %q; allowed are %s", what, key.Value, strings.Join(allowed, ", "))
		case twice:
			f.wrong(key, "%s: %s is there already, in line %d", what, key.Value, line)
		case value.Kind == yaml.AliasNode && value.Alias.Kind != yaml.ScalarNode:
			take(key, value.Alias)
		default:
			take(key, value)
		}
	}
}

func (f *thresholdsFile) signals(top *yaml.Node) {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].name
	}
	f.each(top, "thresholds", names, func(key, value *yaml.Node) {
		r := &rules[slices.Index(names, key.Value)]
		if r.name != diskAwait {
			f.threshold(key, value, r, r.name)
			return
		}
		kinds := []string{string(diskNVMe), string(diskSSD), string(diskHDD), string(diskUnknown)}
		f.each(value, diskAwait, kinds, func(kind, value *yaml.Node) {
			f.threshold(kind, value, r, diskAwait+" "+kind.Value)
		})
	})
}

// threshold takes the two halves of one threshold, and holds them to the order
// that its signal has.
func (f *thresholdsFile) threshold(key, value *yaml.Node, r *rule, name string) {
	before := len(f.problems)
	halves := map[string]float64{}
	const degrading, bottleneck = "degrading", "bottleneck"
	f.each(value, name, []string{degrading, bottleneck}, func(half, value *yaml.Node) {
		halves[half.Value] = f.number(value, name+"."+half.Value, r.unit)
	})
	if len(f.problems) > before {
		return
	}
	for _, half := range []string{degrading, bottleneck} {
		if _, ok := halves[half]; !ok {
			f.wrong(key, "%s: %s is missing; both are needed, as in {degrading: %s, bottleneck: %s}", name, half, plain(r.threshold.Degrading), plain(r.threshold.Bottleneck))
			return
		}
	}
	t := Threshold{Degrading: halves[degrading], Bottleneck: halves[bottleneck], Below: r.threshold.Below}
	switch {
	case t.Below && t.Bottleneck > t.Degrading:
		f.wrong(key, "%s: small values are the bad ones, so that bottleneck must not be more than degrading; it is %s, and degrading is %s", name, plain(t.Bottleneck), plain(t.Degrading))
	case !t.Below && t.Bottleneck < t.Degrading:
		f.wrong(key, "%s: bottleneck must not be less than degrading; it is %s, and degrading is %s", name, plain(t.Bottleneck), plain(t.Degrading))
	default:
		f.own[name] = sourced{threshold: t, source: fmt.Sprintf("%s:%d", f.path, key.Line)}
	}
}

// number reads a bound in the signal's unit.
func (f *thresholdsFile) number(n *yaml.Node, name, unit string) float64 {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(v >= 0 && v <= math.MaxFloat64) {
		f.wrong(n, "%s: %q is not a number from 0 on, in %s", name, n.Value, unit)
	}
	return v
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

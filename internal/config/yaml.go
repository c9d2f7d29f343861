package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// A YAML is a file that is read strictly: a key that is unknown or occurs twice is a
// problem, which names the file, the line, and what is allowed. The problems are
// gathered, so that all of them are reported at once.
type YAML struct {
	Path     string
	problems []error
}

// Parse returns the content of a file; nil if it has none, or a problem.
func (f *YAML) Parse(content []byte) *yaml.Node {
	var root yaml.Node
	err := yaml.Unmarshal(content, &root)
	if err == nil && len(root.Content) > 0 {
		var discarded any
		err = root.Decode(&discarded) // it refuses keys that occur twice, and mappings that contain themselves
	}
	if err != nil {
		f.syntax(err)
		return nil
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" { // comments at most
		return nil
	}
	return root.Content[0]
}

// syntax puts the name of the file and the line in front of each of the parser's errors.
func (f *YAML) syntax(err error) {
	message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	for line := range strings.Lines(message) {
		line = strings.TrimSpace(line)
		if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(line); m != nil {
			f.problems = append(f.problems, fmt.Errorf("%s:%s: %s", f.Path, m[1], m[2]))
		} else {
			f.problems = append(f.problems, fmt.Errorf("%s: %s", f.Path, line))
		}
	}
}

// Wrong adds a problem at a node.
func (f *YAML) Wrong(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %s", f.Path, n.Line, fmt.Sprintf(format, args...)))
}

// Err returns all problems, nil if there are none.
func (f *YAML) Err() error { return errors.Join(f.problems...) }

// Each calls take for every key of a mapping that is among the allowed names; if there
// are none, for every key. Aliases and merged mappings (<<) are resolved. Prefix stands
// before keys in messages.
func (f *YAML) Each(mapping *yaml.Node, prefix string, allowed Choices, take func(key, value *yaml.Node)) {
	for _, pair := range pairs(mapping) {
		key, value := pair[0], pair[1]
		if key.Kind != yaml.ScalarNode || len(allowed.Names) > 0 && !slices.Contains(allowed.Names, key.Value) {
			f.Wrong(key, "unknown key %s%s%s", prefix, key.Value, allowed.InsteadOf(key.Value))
			continue
		}
		take(key, value)
	}
}

// pairs returns the keys of a mapping with their values. A key of its own replaces one
// of a mapping that is merged into it.
func pairs(mapping *yaml.Node) (out [][2]*yaml.Node) {
	add := func(key, value *yaml.Node) {
		if !slices.ContainsFunc(out, func(p [2]*yaml.Node) bool { return p[0].Value == key.Value }) {
			out = append(out, [2]*yaml.Node{key, value})
		}
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], resolve(mapping.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			add(key, value)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		for _, p := range pairs(resolve(m)) {
			add(p[0], p[1])
		}
	}
	return out
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

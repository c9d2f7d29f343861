package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// A YAML is a file that is read strictly: a key that is unknown or occurs twice is a
// problem, which names the file, the line, and what is allowed. The problems are
// gathered, so that all of them are reported at once.
type YAML struct {
	Path string
	// Plain refuses anchors, aliases and tags, which make a value differ from its text.
	Plain bool
	// Quote shortens text of the file in error messages, because it may be a secret; nil:
	// the text is shown unchanged.
	Quote    func(text string) string
	problems []error
}

// Parse returns the content of a file; nil if it has none, or a problem.
func (f *YAML) Parse(content []byte) *yaml.Node {
	if f.Quote == nil {
		f.Quote = func(text string) string { return text }
	}
	var root, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) { // comments at most
		return nil
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			f.Wrong(&second, "a second YAML document begins here; only one is allowed")
			return nil
		}
		f.plain(&root)
	}
	if errors.Is(err, io.EOF) && len(f.problems) == 0 {
		var discarded any
		err = root.Decode(&discarded) // it refuses keys that occur twice, and mappings that contain themselves
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.syntax(err)
	}
	if len(f.problems) > 0 || len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil
	}
	return root.Content[0]
}

// plain adds a problem for all that Plain refuses.
func (f *YAML) plain(n *yaml.Node) {
	switch {
	case !f.Plain:
		return
	case n.Kind == yaml.AliasNode:
		f.Wrong(n, "the alias *%s is not allowed here; write the value out", f.Quote(n.Value))
	case n.Anchor != "":
		f.Wrong(n, "the anchor &%s is not allowed here; write the value out where it is needed", f.Quote(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		f.Wrong(n, "the tag %s is not allowed here; leave it out", f.Quote(n.Tag))
	}
	for _, child := range n.Content {
		f.plain(child)
	}
}

// syntax puts the name of the file and the line before each of the parser's errors,
// which omit the line if it is the first.
func (f *YAML) syntax(err error) {
	message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	for text := range strings.Lines(message) {
		text, line := strings.TrimSpace(text), "1"
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			line, text, _ = strings.Cut(rest, ": ")
		}
		f.problems = append(f.problems, fmt.Errorf("%s:%s: %s", f.Path, line, f.Quote(text)))
	}
}

// Wrong adds a problem at a node.
func (f *YAML) Wrong(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %s", f.Path, n.Line, fmt.Sprintf(format, args...)))
}

// Problems counts the problems so far.
func (f *YAML) Problems() int { return len(f.problems) }

// Err returns all problems, nil if there are none.
func (f *YAML) Err() error { return errors.Join(f.problems...) }

// Each calls take for every allowed key of a mapping, or for every key if allowed has no
// names. Aliases and merged mappings (<<) are resolved, and a missing value is an empty
// mapping. Messages put prefix before keys.
func (f *YAML) Each(mapping *yaml.Node, prefix string, allowed Choices, take func(key, value *yaml.Node)) {
	if mapping.Tag == "!!null" {
		return
	}
	if mapping.Kind != yaml.MappingNode {
		f.Wrong(mapping, "%s must hold keys with values%s", cmp.Or(strings.TrimSuffix(prefix, "."), "the file"), allowed.InsteadOf(""))
		return
	}
	for _, pair := range pairs(mapping) {
		key, value := pair[0], pair[1]
		if key.Kind != yaml.ScalarNode || len(allowed.Names) > 0 && !slices.Contains(allowed.Names, key.Value) {
			f.Wrong(key, "unknown key %s%s%s", prefix, f.Quote(key.Value), allowed.InsteadOf(key.Value))
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

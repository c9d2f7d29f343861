package daemon

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlnode "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
)

// streamsKey is where a configuration file describes its streams.
const streamsKey = "streams"

// A file is a configuration file. Nested keys are joined by dots.
type file struct {
	path   string
	values *koanf.Koanf
	lines  map[string]int // by key
}

// place says where key stands, as editors understand it.
func (f *file) place(key string) string {
	if line, ok := f.lines[key]; ok {
		return fmt.Sprintf("%s:%d", f.path, line)
	}
	return f.path
}

// readFile reads a configuration file; known are the keys that it may hold
// beside its streams. Of the errors, several are joined.
func readFile(path string, known []string) (*file, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	f := &file{path: path, values: koanf.New("."), lines: make(map[string]int)}
	var root yamlnode.Node
	if err := yamlnode.Unmarshal(content, &root); err != nil {
		return nil, f.syntax(err)
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" { // nothing but comments
		return f, nil
	}
	top := root.Content[0]
	if top.Kind != yamlnode.MappingNode {
		return nil, fmt.Errorf("%s:%d: keys with values are expected here, like http-addr: 127.0.0.1:8430", path, top.Line)
	}
	// It also refuses mappings that hold themselves, which note could not bear.
	if err := f.values.Load(rawbytes.Provider(content), yaml.Parser()); err != nil {
		return nil, f.syntax(err)
	}
	f.note("", top)
	err = f.check(known)
	return f, err
}

// note remembers the lines of the keys of a mapping.
func (f *file) note(prefix string, mapping *yamlnode.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		f.lines[path] = key.Line
		if value.Kind == yamlnode.AliasNode {
			value = value.Alias
		}
		if value.Kind == yamlnode.MappingNode {
			f.note(path+".", value)
		}
	}
}

// syntax puts the file's name and line in front of the parser's words.
func (f *file) syntax(err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	message = strings.ReplaceAll(strings.TrimPrefix(message, "unmarshal errors:\n  "), "\n ", ";")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(message); m != nil {
		return fmt.Errorf("%s:%s: %s", f.path, m[1], m[2])
	}
	return fmt.Errorf("%s: %s", f.path, message)
}

// check looks for keys that mean nothing, and for values of another shape than
// their key has.
func (f *file) check(known []string) error {
	var problems []error
	var overrides []string
	for _, s := range (&Stream{}).all() {
		overrides = append(overrides, s.Name)
	}
	for _, key := range f.values.Keys() {
		allowed, name := known, key
		if key == streamsKey {
			if !isEmpty(f.values.Get(key)) {
				problems = append(problems, fmt.Errorf("%s: streams must hold a mapping from names to settings", f.place(key)))
			}
			continue
		}
		if rest, ok := strings.CutPrefix(key, streamsKey+"."); ok {
			stream, override, nested := strings.Cut(rest, ".")
			if err := checkStreamName(stream); err != nil {
				problems = append(problems, fmt.Errorf("%s: streams: %w", f.place(key), err))
				continue
			}
			if !nested {
				problems = append(problems, f.checkStreamShape(key)...)
				continue
			}
			allowed, name = overrides, override
		}
		if !slices.Contains(allowed, name) {
			if allowed = slices.Clone(allowed); len(allowed) == len(known) {
				allowed = append(allowed, streamsKey)
			}
			problems = append(problems, fmt.Errorf("%s: unknown key %s%s", f.place(key), key, config.Choices{Names: allowed, Where: "`brim config print` without a file lists all"}.InsteadOf(name)))
			continue
		}
		switch v := f.values.Get(key).(type) {
		case string, int, int64, uint64, float64, bool:
		case []any:
			if err := f.join(key, name, v); err != nil {
				problems = append(problems, fmt.Errorf("%s: %s %w", f.place(key), key, err))
				f.values.Delete(key)
			}
		default:
			problems = append(problems, fmt.Errorf("%s: %s must have a single value", f.place(key), key))
			f.values.Delete(key) // so that nothing more is said of it
		}
	}
	return errors.Join(problems...)
}

// checkStreamShape refuses a stream that has a value where settings belong. It
// may have none at all.
func (f *file) checkStreamShape(key string) []error {
	if isEmpty(f.values.Get(key)) {
		return nil
	}
	return []error{fmt.Errorf("%s: %s must hold settings, like granularity: 1m", f.place(key), key)}
}

// isEmpty reports whether a key has no value, or a mapping without keys.
func isEmpty(v any) bool {
	mapping, ok := v.(map[string]any)
	return v == nil || ok && len(mapping) == 0
}

// streams lists the names of the streams that the file describes.
func (f *file) streams() []string {
	return f.values.MapKeys(streamsKey)
}

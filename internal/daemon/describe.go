package daemon

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
)

// Shown is a setting as it is told to people and programs.
type Shown struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // secrets are masked
	Origin        // its source and place
}

type Described struct {
	Settings []Shown            `json:"settings"`
	Streams  map[string][]Shown `json:"streams"`
}

func (c *Config) Describe() Described {
	d := Described{Streams: make(map[string][]Shown)}
	for _, e := range c.effective {
		d.Settings = append(d.Settings, e.shown())
	}
	for name, list := range c.streams {
		for _, e := range list {
			d.Streams[name] = append(d.Streams[name], e.shown())
		}
	}
	return d
}

func (e effective) shown() Shown {
	s := Shown{Name: e.path(), Value: e.text, Origin: e.origin}
	if e.secret {
		s.Value = config.MaskURI(e.text)
	}
	return s
}

// Print writes a file that makes the same settings, each with its origin in a
// comment. A value with a masked secret is commented out, since the file would
// not work with it.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
	for _, e := range c.effective {
		c.printSetting(&b, e)
	}
	b.WriteString("streams: # what they do not set is as above\n")
	for _, name := range slices.Sorted(maps.Keys(c.streams)) {
		own := slices.DeleteFunc(slices.Clone(c.streams[name]), func(e effective) bool { return !e.ownOf(name) })
		if len(own) == 0 {
			fmt.Fprintf(&b, "  %s: {}\n", quoteYAML(name))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", quoteYAML(name))
		for _, e := range own {
			fmt.Fprintf(&b, "%-34s # %s\n", "    "+e.Name+": "+quoteYAML(e.text), e.origin)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Config) printSetting(b *strings.Builder, e effective) {
	name, indent := e.path(), ""
	if group, key, nested := strings.Cut(name, "."); nested {
		fmt.Fprintf(b, "%s:\n", group)
		name, indent = key, "  "
	}
	value, secret := e.shown().Value, ""
	if value != e.text {
		indent, secret = "# "+indent, "; the secret is masked, give it in "+e.Variable()
	}
	fmt.Fprintf(b, "%-34s # %s%s\n", indent+name+": "+quoteYAML(value), e.origin, secret)
}

// quoteYAML writes text so that YAML reads it back as the same text: bare
// where that is safe, quoted otherwise.
func quoteYAML(text string) string {
	if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
		return text // every setting is read as text, whatever YAML takes it for
	}
	out, err := yaml.Marshal(text)
	if bare := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(bare, "\n") {
		return bare
	}
	return strconv.Quote(text)
}

// SplitErrors takes joined errors apart; there is one on each line.
func SplitErrors(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

// Names lists the streams.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.streams)) }

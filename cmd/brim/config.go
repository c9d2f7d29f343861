package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func newConfig(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, or print the settings in force",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(p), newConfigPrint(p))
	return cmd
}

// newConfigCheck looks at a file alone, without flags and environment, so that
// it says the same on every machine.
func newConfigCheck(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a configuration file, and where",
		Long: "Say what is wrong with a configuration file, and where.\n\n" +
			"A listener that serve would refuse to open is wrong, too, unless its address is a name: names are not\n" +
			"looked up. Flags and the environment are not looked at.",
		Args: exactly("a FILE"),
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		c, err := sources{path: args[0]}.load()
		if err == nil {
			err = errors.Join(c.checkOpen()...)
		}
		problems := splitErrors(err)
		if *output == "json" {
			if err := printJSON(p.stdout, checked{File: args[0], OK: err == nil, Problems: problems}); err != nil {
				return err
			}
		} else {
			lines := problems
			if err == nil {
				lines = []string{args[0] + " is correct; streams: " + strings.Join(slices.Sorted(maps.Keys(c.streams)), ", ")}
			}
			if _, err := fmt.Fprintln(p.stdout, strings.Join(lines, "\n")); err != nil {
				return err
			}
		}
		if err != nil {
			// The command itself did what was asked, so this is no wrong usage.
			return fmt.Errorf("%s cannot be used: problems found: %d", args[0], len(problems))
		}
		return nil
	}
	return cmd
}

type checked struct {
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
}

// splitErrors takes joined errors apart; there is one on each line.
func splitErrors(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

// newConfigPrint takes the flags of serve, and prints what serve would run with.
func newConfigPrint(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting in force and where it came from; the text is a configuration file",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd, "text", "json")
	flags := settingFlags(cmd.Flags())
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := flags(p).load()
		if err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(p.stdout, c.describe())
		}
		return c.print(p.stdout)
	}
	return cmd
}

// shown is a setting as it is told to people and programs.
type shown struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // secrets are masked
	origin        // its source and place
}

type described struct {
	Settings []shown            `json:"settings"`
	Streams  map[string][]shown `json:"streams"`
}

func (c *configuration) describe() described {
	d := described{Streams: make(map[string][]shown)}
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

func (e effective) shown() shown {
	s := shown{Name: e.path(), Value: e.text, origin: e.origin}
	if e.secret {
		s.Value = maskURI(e.text)
	}
	return s
}

// print writes a file that makes the same settings, each with its origin in a
// comment. A value with a masked secret is commented out, since the file would
// not work with it.
func (c *configuration) print(w io.Writer) error {
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
			fmt.Fprintf(&b, "%-34s # %s\n", "    "+e.name+": "+quoteYAML(e.text), e.origin)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *configuration) printSetting(b *strings.Builder, e effective) {
	name, indent := e.path(), ""
	if group, key, nested := strings.Cut(name, "."); nested {
		fmt.Fprintf(b, "%s:\n", group)
		name, indent = key, "  "
	}
	value, secret := e.shown().Value, ""
	if value != e.text {
		indent, secret = "# "+indent, "; the secret is masked, give it in "+e.variable()
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

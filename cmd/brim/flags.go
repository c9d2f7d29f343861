package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// flagText is a flag with a setter that checks its value.
type flagText struct {
	text, kind string
	set        func(string) error // nil: any text
}

func (f *flagText) String() string { return f.text }
func (f *flagText) Type() string   { return f.kind }

func (f *flagText) Set(s string) error {
	if f.set != nil {
		if err := f.set(s); err != nil {
			return err
		}
	}
	f.text = s
	return nil
}

// An adder adds a flag: name, default, kind of value, usage, and a setter, which it calls with
// the default.
type adder func(name, initial, kind, usage string, set func(string) error)

func flagAdder(flags *pflag.FlagSet) adder {
	return func(name, initial, kind, usage string, set func(string) error) {
		if initial != "" {
			_ = set(initial) // an initial text that is not a valid value, like 0 steps, sets nothing
		}
		flags.Var(&flagText{text: initial, kind: kind, set: set}, name, usage)
	}
}

// settingFlags adds --config and flags for some of the daemon's settings, as pairs of name and
// usage; an empty usage means the setting's own. The result loads the daemon's configuration,
// checking values together with other sources; call it after the flags are parsed.
func settingFlags(flags *pflag.FlagSet, shown ...[2]string) func(*process) (*daemon.Config, error) {
	flags.SortFlags = false
	path := new(string)
	flagAdder(flags)("config", "", "FILE", "YAML file with the daemon's settings and streams", config.Text(path, nil))
	settings := make(map[string]daemon.Setting)
	for _, s := range (&daemon.Settings{}).All() {
		settings[s.Name] = s
	}
	for _, one := range shown {
		s, usage := settings[one[0]], one[1]
		if usage == "" {
			usage = s.Usage
		}
		flags.Var(&flagText{text: s.Initial, kind: s.Kind}, s.Name, usage)
	}
	return func(p *process) (*daemon.Config, error) {
		from := daemon.Sources{Flags: make(map[string]string), Env: p.env, Path: *path}
		for _, one := range shown {
			if f := flags.Lookup(one[0]); f.Changed {
				from.Flags[f.Name] = f.Value.String()
			}
		}
		return from.Load()
	}
}

// explainFlag rewrites flag errors to the form "--name: what is wrong".
func explainFlag(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok { // the value may be a secret, so only the setter's own words are shown
		err = fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	} else if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		err = fmt.Errorf("--%s: a value is missing", missing.GetFlag().Name)
	} else if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		allowed := config.Choices{Names: names, Prefix: "--", Where: "`" + cmd.CommandPath() + " --help` lists all"}
		return fmt.Errorf("--%s: unknown flag%s", unknown.GetSpecifiedName(), allowed.InsteadOf(unknown.GetSpecifiedName()))
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// exactArg requires one argument; what describes it.
func exactArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%s takes %s, and was given %s: %s", cmd.CommandPath(), what, plural(len(args), "argument"), cmd.UseLine())
	}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, and was given %q", cmd.CommandPath(), strings.Join(args, " "))
}

// outputFlag adds --output to a command that prints a result.
func outputFlag(cmd *cobra.Command, allowed ...string) *string {
	var output string
	flagAdder(cmd.Flags())("output", allowed[0], strings.Join(allowed, "|"), "form of the result", config.Choice(&output, allowed...))
	return &output
}

// print prints a command's result in the form of --output: as JSON, or as text.
func (p *process) print(output string, result any, text string) error {
	var err error
	if output == "json" {
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(result)
	} else {
		_, err = io.WriteString(p.stdout, text)
	}
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// tableText returns a table of rows under a head, nil for none, safe for terminals. Without
// rows it is empty.
func tableText(head []string, rows [][]string) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(rows) > 0 && head != nil {
		rows = slices.Insert(rows, 0, head)
	}
	for _, cells := range rows {
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) // into memory
	}
	_ = table.Flush()
	return b.String()
}

// seed returns a setter for an integer above 0.
func seed(place *uint64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a whole number from 1 to %d", s, uint64(math.MaxUint64))
		}
		*place = n
		return nil
	}
}

// share returns a setter for a share like 0.05 or 5%, up to most.
func share(place *float64, most float64) func(string) error {
	return func(s string) error {
		number, percent := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v >= 0 && v <= most) {
			return fmt.Errorf("%q is not a share from 0 to %v, like 0.05 or 5%%", s, most)
		}
		*place = v
		return nil
	}
}

// checkFolder returns an error if path is not a folder.
func checkFolder(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("find the folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%q is not a folder", path)
	}
	return nil
}

// checkWritable checks before a run that files can be written after it. It does not change
// existing content.
func checkWritable(paths ...string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == "" || err == nil && !info.Mode().IsRegular() {
			continue // opening a pipe or device and closing it would end its reader
		}
		f, opened := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if opened != nil {
			return fmt.Errorf("open the report: %w", opened)
		}
		_ = f.Close() // nothing was written
		if err != nil {
			_ = os.Remove(path) // did not exist before
		}
	}
	return nil
}

// writeFile replaces a file with what write writes; an empty path does nothing.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Package patch reads the patches that remove protections from the source. Command sabotage
// has their form.
package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// A Sabotage removes one protection from the source.
type Sabotage struct {
	Name  string
	Tests []Check

	protection string // what is removed, as a sentence
	files      []*gitdiff.File
}

// A Check is a test that must fail under the sabotage.
type Check struct {
	Package string         // as go test takes it
	Run     string         // as its flag -run
	Says    *regexp.Regexp // must match the output
	Runs    int            // at most, for a test that needs luck
	Short   bool           // it is part of a short run, although its package takes long
}

const suffix = ".patch"

// Load reads the patches in a folder: those with these names, or all of them, in order.
func Load(dir string, names ...string) ([]*Sabotage, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the sabotages: %w", err)
	}
	var known []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			known = append(known, name)
		}
	}
	if len(names) == 0 {
		names = known
	}
	var all []*Sabotage
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no sabotage %q; there are %s", name, strings.Join(known, ", "))
		}
		text, err := os.ReadFile(filepath.Join(dir, name+suffix))
		if err != nil {
			return nil, fmt.Errorf("read a sabotage: %w", err)
		}
		s, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("sabotage %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// parse reads a patch: a header, then a unified diff.
func parse(name, text string) (*Sabotage, error) {
	files, header, err := gitdiff.Parse(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the diff: %w", err)
	}
	s := &Sabotage{Name: name, files: files}
	for line := range strings.Lines(header) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := s.header(line); err != nil {
			return nil, fmt.Errorf("header %q: %w", line, err)
		}
	}
	switch {
	case s.protection == "":
		return nil, errors.New(`the header has no line "Protection: SENTENCE"`)
	case len(s.Tests) == 0:
		return nil, errors.New(`the header has no line "Test: PACKAGE REGEXP"`)
	case len(files) == 0:
		return nil, errors.New("no diff follows the header")
	}
	for _, c := range s.Tests {
		if c.Says == nil {
			return nil, fmt.Errorf(`no line "Says: REGEXP" follows the test %s`, c)
		}
	}
	for _, f := range files {
		if f.OldName != f.NewName || f.IsBinary || len(f.TextFragments) == 0 {
			return nil, fmt.Errorf("%s: a sabotage may only change lines of text files", f.NewName)
		}
	}
	return s, nil
}

// header parses a line of the header.
func (s *Sabotage) header(line string) error {
	key, value, _ := strings.Cut(line, ": ")
	value = strings.TrimSpace(value)
	if key != "Protection" && key != "Test" && len(s.Tests) == 0 {
		return errors.New(`allowed: "Protection: SENTENCE" and "Test: PACKAGE REGEXP", and then, for each test, "Says: REGEXP", "Runs: NUMBER" and "Short: yes"`)
	}
	switch key {
	case "Protection":
		s.protection = value
	case "Test":
		pkg, run, ok := strings.Cut(value, " ")
		if !ok {
			return errors.New("a test has the form PACKAGE REGEXP")
		}
		s.Tests = append(s.Tests, Check{Package: pkg, Run: run, Runs: 1})
	case "Says":
		says, err := regexp.Compile(value)
		if err != nil {
			return err
		}
		if says.MatchString("") {
			return errors.New("it matches any output")
		}
		s.Tests[len(s.Tests)-1].Says = says
	case "Runs":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number from 1", value)
		}
		s.Tests[len(s.Tests)-1].Runs = n
	case "Short":
		if value != "yes" {
			return fmt.Errorf("%q is not allowed; allowed: yes", value)
		}
		s.Tests[len(s.Tests)-1].Short = true
	default:
		return errors.New("allowed: Protection, Test, Says, Runs and Short")
	}
	return nil
}

// In reports whether the test is in a package, or below it if that ends in /...
func (c Check) In(pkg string) bool {
	above, all := strings.CutSuffix(pkg, "/...")
	return c.Package == pkg || all && strings.HasPrefix(c.Package+"/", above+"/")
}

func (c Check) String() string { return c.Package + " " + c.Run }

// Apply returns the changed files by their paths, which are relative to root. The lines
// of each fragment, with their context, must be in the file exactly once; its line
// numbers do not matter.
func (s *Sabotage) Apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, f := range s.files {
		name := filepath.FromSlash(f.NewName)
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("sabotage %s does not apply: %w", s.Name, err)
		}
		text := "\n" + string(content) // so that every line follows a line break
		for i, fragment := range f.TextFragments {
			before, after := sides(fragment)
			if n := strings.Count(text, before); n != 1 {
				return nil, fmt.Errorf("sabotage %s does not apply: the lines of fragment %d of %s, with their context, occur %d times; they must occur once",
					s.Name, i+1, f.NewName, n)
			}
			text = strings.Replace(text, before, after, 1)
		}
		changed[name] = text[1:]
	}
	return changed, nil
}

// sides returns the lines of a fragment before and after the change, after a line break.
func sides(f *gitdiff.TextFragment) (before, after string) {
	var from, to strings.Builder
	from.WriteByte('\n')
	to.WriteByte('\n')
	for _, line := range f.Lines {
		if line.Old() {
			from.WriteString(line.Line)
		}
		if line.New() {
			to.WriteString(line.Line)
		}
	}
	return from.String(), to.String()
}

// Overlay writes the changed files to dir, and returns the path of a file for the flag
// -overlay of the go command.
func (s *Sabotage) Overlay(root, dir string) (string, error) {
	changed, err := s.Apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for i, name := range slices.Sorted(maps.Keys(changed)) {
		from, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(name)))
		if err := os.WriteFile(to, []byte(changed[name]), 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

package main

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

// A sabotage removes one protection from the source.
type sabotage struct {
	name       string
	protection string // what is removed, as a sentence
	tests      []check
	files      []*gitdiff.File
}

// A check is a test that must fail under the sabotage.
type check struct {
	pkg  string         // as go test takes it
	run  string         // as its flag -run
	says *regexp.Regexp // must match the output
	runs int            // at most, for a test that needs luck

	short bool // it is part of a short run, although its package takes long
}

const suffix = ".patch"

// load reads the patches in a folder: those with these names, or all of them, in order.
func load(dir string, names ...string) ([]*sabotage, error) {
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
	var all []*sabotage
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
func parse(name, text string) (*sabotage, error) {
	files, header, err := gitdiff.Parse(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the diff: %w", err)
	}
	s := &sabotage{name: name, files: files}
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
	case len(s.tests) == 0:
		return nil, errors.New(`the header has no line "Test: PACKAGE REGEXP"`)
	case len(files) == 0:
		return nil, errors.New("no diff follows the header")
	}
	for _, c := range s.tests {
		if c.says == nil {
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
func (s *sabotage) header(line string) error {
	key, value, _ := strings.Cut(line, ": ")
	value = strings.TrimSpace(value)
	if key != "Protection" && key != "Test" && len(s.tests) == 0 {
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
		s.tests = append(s.tests, check{pkg: pkg, run: run, runs: 1})
	case "Says":
		says, err := regexp.Compile(value)
		if err != nil {
			return err
		}
		if says.MatchString("") {
			return errors.New("it matches any output")
		}
		s.tests[len(s.tests)-1].says = says
	case "Runs":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number from 1", value)
		}
		s.tests[len(s.tests)-1].runs = n
	case "Short":
		if value != "yes" {
			return fmt.Errorf("%q is not allowed; allowed: yes", value)
		}
		s.tests[len(s.tests)-1].short = true
	default:
		return errors.New("allowed: Protection, Test, Says, Runs and Short")
	}
	return nil
}

// in reports whether the test is in a package, or below it if that ends in /...
func (c check) in(pkg string) bool {
	above, all := strings.CutSuffix(pkg, "/...")
	return c.pkg == pkg || all && strings.HasPrefix(c.pkg+"/", above+"/")
}

func (c check) String() string { return c.pkg + " " + c.run }

// apply returns the changed files by their paths, which are relative to root. The lines
// of each fragment, with their context, must be in the file exactly once; its line
// numbers do not matter.
func (s *sabotage) apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, f := range s.files {
		name := filepath.FromSlash(f.NewName)
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("sabotage %s does not apply: %w", s.name, err)
		}
		text := "\n" + string(content) // so that every line follows a line break
		for i, fragment := range f.TextFragments {
			before, after := sides(fragment)
			if n := strings.Count(text, before); n != 1 {
				return nil, fmt.Errorf("sabotage %s does not apply: the lines of fragment %d of %s, with their context, occur %d times; they must occur once",
					s.name, i+1, f.NewName, n)
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

// overlay writes the changed files to dir, and returns the path of a file for the flag
// -overlay of the go command.
func (s *sabotage) overlay(root, dir string) (string, error) {
	changed, err := s.apply(root)
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

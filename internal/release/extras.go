package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// documents of the checkout that go into every archive, at the places where
// they are: how Brim is set up, and the files that those who do it from an
// archive are sent to.
var documents = []string{
	"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "deploy/README.md", "deploy/RUNBOOK.md", "deploy/mongodb/roles.js", "deploy/balancer/nginx.conf",
}

// shells that there are completions for, with the names of the files as they
// want them.
var shells = [...]struct{ shell, file string }{
	{"bash", "brim.bash"}, {"zsh", "_brim"}, {"fish", "brim.fish"}, {"powershell", "brim.ps1"},
}

// common is what is the same in all archives.
func (c config) common(ctx context.Context, scratch string) ([]entry, error) {
	var entries []entry
	for _, name := range documents {
		entries = append(entries, entry{name: name, path: filepath.Join(c.root, name)})
	}
	pages, err := c.folder("docs")
	if err != nil {
		return nil, err
	}
	entries = append(entries, pages...)
	program := here().program(scratch) // it writes the manual pages and completions of all
	if err := c.build(ctx, here(), program); err != nil {
		return nil, err
	}
	manuals := filepath.Join(scratch, "man")
	if _, err := output(ctx, exec.CommandContext(ctx, program, "man", manuals)); err != nil {
		return nil, err
	}
	found, err := os.ReadDir(manuals)
	if err != nil {
		return nil, fmt.Errorf("list manual pages: %w", err)
	}
	for _, page := range found {
		entries = append(entries, entry{name: "man/man1/" + page.Name(), path: filepath.Join(manuals, page.Name())})
	}
	for _, s := range shells {
		text, err := output(ctx, exec.CommandContext(ctx, program, "completion", s.shell))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "completions/" + s.file, content: []byte(text + "\n")})
	}
	return entries, nil
}

// folder returns the files of a folder of the checkout, to be archived at the same
// place. Programs are not for who installs a release.
func (c config) folder(from string) ([]entry, error) {
	var entries []entry
	base := filepath.Join(c.root, filepath.FromSlash(from))
	err := filepath.WalkDir(base, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".go") {
			return err
		}
		rel, err := filepath.Rel(base, name)
		entries = append(entries, entry{name: path.Join(from, filepath.ToSlash(rel)), path: name})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", from, err)
	}
	return entries, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// licences returns the licences of all that is compiled into the program for a
// platform, Go itself first. Most of them ask for nothing but to be passed on.
func (c config) licences(ctx context.Context, p platform) ([]byte, error) {
	list, err := output(ctx, c.goCommand(ctx, p, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/brim"))
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, c.goCommand(ctx, p, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	modules := strings.Split(list, "\n")
	slices.Sort(modules)
	var text bytes.Buffer
	text.WriteString("Brim is under the licence in LICENSE. Compiled into it are these, under their own.\n")
	if err := addLicences(&text, "Go", runtime.Version(), root); err != nil {
		return nil, err
	}
	for _, line := range slices.Compact(modules) {
		parts := strings.Split(line, "\t")
		if len(parts) != 3 {
			continue // of Go, or of Brim itself
		}
		if err := addLicences(&text, parts[0], parts[1], parts[2]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)`)

// addLicences adds what a module's folder has; a module that has none is an
// error, for nothing allows to pass it on.
func addLicences(text *bytes.Buffer, module, version, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for the licence of %s: %w", module, err)
	}
	found := false
	for _, file := range files {
		if file.IsDir() || !licenceName.MatchString(file.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", module, err)
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), module, version, file.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("find the licence of %s %s: there is none in %s", module, version, dir)
	}
	return nil
}

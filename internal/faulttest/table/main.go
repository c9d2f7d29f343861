// Command table creates the table of fault tests from their output:
//
//	BRIM_FAULT_FULL=1 go test -json ./… | go run ./internal/faulttest/table --into docs/durability.md
//
// It prints the table on stdout, progress on stderr. If every named test has a row in which nothing
// is lost or stored twice, and no test failed, the table replaces the one between the markers in
// the file; otherwise it exits with 1. The patches in internal/sabotage say which tests fail
// without a protection.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/sabotage/patch"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	flags.SetOutput(stderr)
	patches := flags.String("sabotages", "internal/sabotage/testdata/sabotage", "folder of the patches that remove protections")
	into := flags.String("into", "", "Markdown file with the markers of the table; empty: only print it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	table, err := faulttest.ReadTable(stdin, stderr)
	if err != nil {
		return err
	}
	if table.Sabotages, err = patch.Load(*patches); err != nil {
		return err
	}
	text := table.Markdown()
	fmt.Fprint(stdout, text)
	fmt.Fprintf(stderr, "%d tests in %.0f minutes\n", len(table.Rows), table.Took.Minutes())
	if missing := table.Missing(faulttest.Names()); len(missing) > 0 {
		return fmt.Errorf("no row for %s", strings.Join(missing, ", "))
	}
	if !table.Good() {
		return errors.New("the promise was not kept")
	}
	if *into == "" {
		return nil
	}
	page, err := os.ReadFile(*into)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	changed, err := replace(string(page), text)
	if err != nil {
		return fmt.Errorf("write the table into %s: %w", *into, err)
	}
	if err := os.WriteFile(*into, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// Markers around the table; the first is only a prefix.
const (
	begins = "<!-- fault table: begin"
	ends   = "<!-- fault table: end -->"
)

// replace returns a page with the table between its markers replaced.
func replace(page, table string) (string, error) {
	before, rest, begun := strings.Cut(page, begins)
	line, rest, _ := strings.Cut(rest, "\n")
	_, after, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		return "", fmt.Errorf("it needs the lines %q and %q", begins+" -->", ends)
	}
	return before + begins + line + "\n" + table + ends + after, nil
}

// Command table makes the table of the fault tests from their output:
//
//	BRIM_FAULT_FULL=1 go test -json ./… | go run ./internal/faulttest/table --dir DIR
//
// It writes the table to stdout and to DIR/fault-table.md, and what happens
// meanwhile to stderr. It exits with 1 unless every named test has a row in
// which nothing is lost or doubled and every sabotage is caught.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/brim-telemetry/brim/internal/faulttest"
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
	dir := flags.String("dir", ".", "folder that gets fault-table.md")
	if err := flags.Parse(args); err != nil {
		return err
	}
	table, err := faulttest.ReadTable(stdin, stderr)
	if err != nil {
		return err
	}
	text := table.Markdown()
	fmt.Fprint(stdout, text)
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	if err := os.WriteFile(filepath.Join(*dir, "fault-table.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	fmt.Fprintf(stderr, "%d tests in %.0f minutes\n", len(table.Rows), table.Took.Minutes())
	if missing := table.Missing(faulttest.Names()); len(missing) > 0 {
		return fmt.Errorf("no row for %s", strings.Join(missing, ", "))
	}
	if !table.Good() {
		return errors.New("the promise was not kept, or a sabotage not noticed")
	}
	return nil
}

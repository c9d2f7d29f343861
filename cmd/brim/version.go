package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/daemon"
)

// stamp is put in by who builds a release, "VERSION REVISION DATE":
//
//	go build -ldflags "-X 'main.stamp=v1.2.0 4f0c… 2026-11-21T10:00:00Z'" ./cmd/brim
//
// Without it the Go toolchain tells what it has noted of the checkout.
var stamp string //nolint:gochecknoglobals // only a variable can be set by the linker

// readVersion says what was built.
func readVersion() daemon.Version { return daemon.VersionOf(stamp) }

func newVersion(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print what was built", Args: cobra.NoArgs}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := readVersion()
		if *output == "json" {
			return printJSON(p.stdout, v)
		}
		_, err := fmt.Fprintln(p.stdout, v.Line())
		return err
	}
	return cmd
}

// printJSON prints a command's result.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

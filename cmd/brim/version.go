package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/brim-telemetry/brim/internal/daemon"
)

// stamp is set in release builds, "VERSION REVISION DATE":
//
//	go build -ldflags "-X 'main.stamp=v1.2.0 4f0c… 2026-11-21T10:00:00Z'" ./cmd/brim
//
// Without it, the version is the one recorded by the Go toolchain.
var stamp string //nolint:gochecknoglobals // only a variable can be set by the linker

// readVersion returns the version of this program.
func readVersion() daemon.Version { return daemon.VersionOf(stamp) }

func newVersion(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print what was built", Args: noArgs}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := readVersion()
		return p.print(*output, v, v.Line()+"\n")
	}
	return cmd
}

// newMan returns `brim man DIR`, which writes a manual page for each command. It is for release
// packaging, so it is not listed.
func newMan(p *process) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command into a folder", Hidden: true,
		Args: exactArg("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writeManuals(cmd.Root(), args[0], readVersion()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(p.stderr, "manual pages are in %s\n", args[0])
			return err
		},
	}
}

// writeManuals writes the pages of a command and its subcommands. The output is reproducible:
// the date is the revision's.
func writeManuals(root *cobra.Command, dir string, v daemon.Version) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder for manual pages: %w", err)
	}
	date, err := time.Parse(time.RFC3339, v.Date)
	if err != nil {
		date = time.Unix(0, 0).UTC() // unknown; the current date would make the page differ every day
	}
	root.DisableAutoGenTag = true // would add the current date
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "brim " + v.Version, Manual: "Brim"}
	if err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: dir, CommandSeparator: "-"}); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	return nil
}

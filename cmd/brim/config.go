package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/daemon"
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
		c, err := daemon.Sources{Path: args[0]}.Load()
		if err == nil {
			err = errors.Join(c.CheckOpen()...)
		}
		problems := daemon.SplitErrors(err)
		if *output == "json" {
			if err := printJSON(p.stdout, checked{File: args[0], OK: err == nil, Problems: problems}); err != nil {
				return err
			}
		} else {
			lines := problems
			if err == nil {
				lines = []string{args[0] + " is correct; streams: " + strings.Join(c.Names(), ", ")}
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

// newConfigPrint takes the flags of serve, and prints what serve would run with.
func newConfigPrint(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting in force and where it came from; the text is a configuration file",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd, "text", "json")
	settingFlags(cmd, p, func(_ context.Context, c *daemon.Config) error {
		if *output == "json" {
			return printJSON(p.stdout, c.Describe())
		}
		return c.Print(p.stdout)
	})
	return cmd
}

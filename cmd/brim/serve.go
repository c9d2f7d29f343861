package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/daemon"
)

// newServe returns `brim serve`, the daemon.
func newServe(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon: readings in over HTTP and gRPC, documents in MongoDB",
		Long: "Run the daemon: readings in over HTTP and gRPC, documents in MongoDB.\n\n" +
			"Each flag can also be set in the environment (BRIM_MONGO_URI for --mongo-uri, and so on)\n" +
			"and by its name in a YAML file; a flag wins over the environment, and that over the file.",
		Args: noArgs,
	}
	withSettings(cmd, p, func(ctx context.Context, c *daemon.Config) error { return daemon.Serve(ctx, c, p.options()) })
	return cmd
}

// withSettings adds the daemon's settings to a command as flags and passes them to run. Help
// shows only the common ones.
func withSettings(cmd *cobra.Command, p *process, run func(context.Context, *daemon.Config) error) {
	flags := cmd.Flags()
	var names [][2]string
	var rare []string
	for _, s := range (&daemon.Settings{}).All() {
		names = append(names, [2]string{s.Name})
		if !s.Common() {
			rare = append(rare, s.Name)
		}
	}
	load := settingFlags(flags, names...)
	everything := flags.Bool("help-all", false, "help with all settings")
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range rare {
			flags.Lookup(name).Hidden = !*everything
		}
		help(cmd, args)
		if !*everything {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "\n%d more settings are shown by %s --help-all.\n", len(rare), cmd.CommandPath())
		}
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *everything {
			return cmd.Help()
		}
		c, err := load(p)
		if err != nil {
			return err
		}
		return run(cmd.Context(), c)
	}
}

func newConfig(p *process) *cobra.Command {
	return newGroup("config", "Check a configuration file, or print the settings in force", newConfigCheck(p), newConfigPrint(p))
}

// newConfigCheck checks only a file, without flags and environment, so the result is the same
// on every machine.
func newConfigCheck(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a configuration file, and where",
		Long: "Say what is wrong with a configuration file, and where.\n\n" +
			"A listener that serve would refuse to open is wrong, too, unless its address is a name: names are not\n" +
			"looked up. Flags and the environment are ignored.",
		Args: exactArg("a FILE"),
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		c, err := daemon.Sources{Path: args[0]}.Load()
		if err == nil {
			err = errors.Join(c.CheckOpen()...)
		}
		problems := daemon.SplitErrors(err)
		text := strings.Join(problems, "\n") + "\n"
		if err == nil {
			text = fmt.Sprintf("%s is correct; streams: %s\n", args[0], strings.Join(c.Names(), ", "))
		}
		printed := p.print(*output, checked{args[0], err == nil, problems}, text)
		if printed == nil && err != nil {
			// The command was used correctly, so this is not a usage error.
			return fmt.Errorf("%s cannot be used: problems found: %d", args[0], len(problems))
		}
		return printed
	}
	return cmd
}

type checked struct {
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
}

// newConfigPrint takes the flags of serve, and prints the configuration serve would run with.
func newConfigPrint(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting in force and where it came from; the text is a configuration file",
		Args:  noArgs,
	}
	output := outputFlag(cmd, "text", "json")
	withSettings(cmd, p, func(_ context.Context, c *daemon.Config) error {
		return p.print(*output, c.Describe(), c.Text())
	})
	return cmd
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		Args: cobra.NoArgs,
	}
	settingFlags(cmd, p, func(ctx context.Context, c *daemon.Config) error { return daemon.Serve(ctx, c, p.options()) })
	return cmd
}

// settingFlags makes a command one that runs with the daemon's settings, each of
// which is a flag. Its help shows those that most people set.
func settingFlags(cmd *cobra.Command, p *process, run func(context.Context, *daemon.Config) error) {
	flags := cmd.Flags()
	flags.SortFlags = false
	path := flags.String("config", "", "YAML `FILE` with settings and streams")
	texts := make(map[string]*string)
	var rare []*pflag.Flag
	for _, s := range (&daemon.Settings{}).All() {
		text := s.Initial
		texts[s.Name] = &text
		// The text is checked together with those of the other sources.
		flags.Var(&flagText{text: &text, kind: s.Kind, set: func(given string) error { text = given; return nil }}, s.Name, s.Usage)
		if !s.Common() {
			rare = append(rare, flags.Lookup(s.Name))
		}
	}
	everything := flags.Bool("help-all", false, "help with all settings")
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, f := range rare {
			f.Hidden = !*everything
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
		from := daemon.Sources{Flags: make(map[string]string), Env: p.env, Path: *path}
		for name, text := range texts {
			if flags.Changed(name) {
				from.Flags[name] = *text
			}
		}
		c, err := from.Load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c)
	}
}

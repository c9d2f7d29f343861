package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// process is what a command may use of the world around it.
type process struct {
	env            []string // NAME=value
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run is the whole program: it carries out one command and returns what went
// wrong, for main to print. Results go to stdout, everything else to stderr.
//
//nolint:revive // the six are what a process is given
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) error {
	p := &process{env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	return p.carryOut(ctx, args, experiments())
}

// options are what a daemon is given of the process.
func (p *process) options() daemon.Options {
	return daemon.Options{Env: p.env, Stderr: p.stderr, Version: readVersion()}
}

// carryOut carries out a command, of which `brim bench` has these experiments.
func (p *process) carryOut(ctx context.Context, args []string, all []*bench.Experiment) error {
	began := false // a command was found, and its flags and arguments make sense
	root := p.commands(all)
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !began {
		return config.Usage(err)
	}
	return err
}

// commands returns the program's command and all below it.
func (p *process) commands(all []*bench.Experiment) *cobra.Command {
	root := &cobra.Command{
		Use:           "brim",
		Short:         "Takes telemetry in over HTTP and gRPC and stores it in MongoDB",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newServe(p), newLoad(p), newQuery(p), newBench(p, all), newAdvise(p), newDoctor(p), newCompact(p), newRecompress(p), newMigrate(p), newShard(), newJournal(p), newDeadLetter(p), newToken(p), newConfig(p), newVersion(p), newMan(p))
	root.Version = readVersion().Line()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, like brim version") // or cobra would add -v too
	root.SetFlagErrorFunc(explainFlag)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	return root
}

// newShard returns `brim shard`, which was removed.
func newShard() *cobra.Command {
	return &cobra.Command{
		Use: "shard", Hidden: true, DisableFlagParsing: true, Short: "Removed: see docs/growing.md",
		RunE: func(*cobra.Command, []string) error {
			return config.Usage(errors.New("brim shard was removed: mongosh shards a collection with three commands, which are in docs/growing.md under \"More than one replica set\""))
		},
	}
}

// A verdict is the exit code of a command that did what it was asked, and by
// the code says what it found. It is no error to be told.
type verdict int

func (v verdict) Error() string { return fmt.Sprintf("exit code %d", int(v)) }

// Exit codes of every command, and those of `brim doctor` beside them.
const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 2
	exitDegrading  = 10
	exitBottleneck = 20
)

func exitCode(err error) int {
	var misused config.UsageError
	var found verdict
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &found):
		return int(found)
	case errors.As(err, &misused):
		return exitUsage
	default:
		return exitFailed
	}
}

// subcommand refuses what is no command, and says which there are.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %s%s; allowed are %s", args[0], cmd.CommandPath(), config.DidYouMean("", args[0], names), strings.Join(names, ", "))
}

// explainFlag adds to an error about flags which ones there are.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%w; see %s --help", withoutSecret(err), cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	allowed := config.Choices{Names: names, Prefix: "--", Where: "`" + cmd.CommandPath() + " --help` lists all"}
	return fmt.Errorf("%w%s", err, allowed.InsteadOf(unknown.GetSpecifiedName()))
}

// outputFlag adds --output to a command that prints a result.
func outputFlag(cmd *cobra.Command, allowed ...string) *string {
	output := allowed[0]
	cmd.Flags().Var(&flagText{text: &output, kind: strings.Join(allowed, "|"), set: config.Choice(&output, allowed...)}, "output", "form of the result")
	return &output
}

// flagText is a flag whose text is checked by a setting's own function.
type flagText struct {
	text *string
	kind string
	set  func(string) error
}

func (f *flagText) String() string {
	if f.text == nil {
		return ""
	}
	return *f.text
}
func (f *flagText) Set(s string) error { return f.set(s) }
func (f *flagText) Type() string       { return f.kind }

// exactly wants one argument, and says what of.
func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%s takes %s, and was given %d arguments: %s", cmd.CommandPath(), what, len(args), cmd.UseLine())
	}
}

// withoutSecret is a flag's refusal without the value, where that may be one.
func withoutSecret(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Name == daemon.UriSetting {
		return fmt.Errorf("--%s: %w", daemon.UriSetting, invalid.Unwrap())
	}
	return err
}

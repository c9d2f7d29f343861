// Brim ingests telemetry readings over HTTP and gRPC and stores each once in MongoDB.
// This package is the program: each command turns its flags into one call of a package
// in internal/, and prints the result.
//
//	main.go        run: from arguments to a command, from an error to an exit code
//	flags.go       what flags of all commands have in common
//	client.go      how a command calls a daemon; deployment.go: and finds its MongoDB
//	progress.go    the line that shows how far a command is
//	COMMAND.go     one file for each command
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	var found verdict
	if err != nil && !errors.As(err, &found) {
		fmt.Fprintln(os.Stderr, "brim:", err)
	}
	os.Exit(exitCode(err))
}

// process is the environment of a command.
type process struct {
	env            []string // NAME=value
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run is the whole program: it carries out one command and returns the error for main to print.
// Results go to stdout, everything else to stderr.
//
//nolint:revive // the six are what a process is given
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) error {
	p := &process{env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	return p.carryOut(ctx, args, experiments())
}

// options returns the daemon's options.
func (p *process) options() daemon.Options {
	return daemon.Options{Env: p.env, Stderr: p.stderr, Version: readVersion()}
}

// carryOut runs a command; all are the experiments of `brim bench`.
func (p *process) carryOut(ctx context.Context, args []string, all []*bench.Experiment) error {
	began := false // a command was found, and its flags and arguments are valid
	root := p.commands(all)
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !began {
		return config.Usage(err)
	}
	return err
}

// commands returns the root command with its subcommands.
func (p *process) commands(all []*bench.Experiment) *cobra.Command {
	root := newGroup("brim", "Ingest telemetry over HTTP and gRPC and store it in MongoDB",
		newServe(p), newLoad(p), newQuery(p), newDelete(p), newExport(p), newImport(p), newBench(p, all), newAdvise(p), newDoctor(p), newSeal(p), newCompact(p), newMove(p), newJournal(p), newDeadLetter(p), newToken(p), newConfig(p), newVersion(p), newMan(p))
	root.AddCommand(removedCommands()...)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = readVersion().Line()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, like brim version") // otherwise cobra adds -v as well
	root.SetFlagErrorFunc(explainFlag)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	return root
}

// newGroup returns a command that only has subcommands.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// subcommand rejects unknown commands, and lists the known ones.
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
	return fmt.Errorf("unknown command %q for %s%s; allowed: %s", args[0], cmd.CommandPath(), config.DidYouMean("", args[0], names), strings.Join(names, ", "))
}

// removedCommands returns commands that were removed. They report what to do instead.
func removedCommands() (out []*cobra.Command) {
	for name, instead := range map[string]string{
		"shard":      `mongosh shards a collection with three commands, which are in docs/growing.md under "More than one replica set"`,
		"recompress": "restart the daemons with the other --compressor, which writes a new collection, then run `brim move STREAM` to empty the old one into it",
		"migrate":    "restart the daemons with the other --storage, which writes a new collection, then run `brim move STREAM` to empty the old one into it; another --granularity takes a restart only",
	} {
		out = append(out, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true, Short: "Removed",
			RunE: func(*cobra.Command, []string) error {
				return config.Usage(fmt.Errorf("brim %s was removed: %s", name, instead))
			},
		})
	}
	return out
}

// A verdict is the exit code of a successful command that reports a finding by its code.
type verdict int

func (v verdict) Error() string { return fmt.Sprintf("exit code %d", int(v)) }

// Exit codes of every command, and those specific to `brim doctor`.
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

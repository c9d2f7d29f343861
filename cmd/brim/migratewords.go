package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// refuseIgnored refuses flags that would change nothing of what is to be done.
func (o *migrateOptions) refuseIgnored() error {
	refuse := func(name, why string) error {
		if !o.flags.Changed(name) {
			return nil
		}
		return config.Usage(fmt.Errorf("--%s: %s; leave it out", name, why))
	}
	if o.storage != "" {
		if err := refuse("swap", "a change of storage exchanges the collections in its own way"); err != nil {
			return err
		}
	}
	grains := o.storage == "" && o.granularity != 0
	if grains && !o.dropOld {
		if err := refuse("no-daemon", "with --granularity daemons are asked by --drop-old alone"); err != nil {
			return err
		}
	}
	if o.abort || grains && o.dropOld {
		for _, name := range howToMove {
			if err := refuse(name, "it says how documents are moved, and none will be"); err != nil {
				return err
			}
		}
	}
	return nil
}

// howToMove are the flags of a move that say how it is made.
var howToMove = []string{"rate", "swap", "bucket-max-readings", "bucket-max-bytes"}

// learn finds out what the migration is to that --abort or --drop-old ends.
func (o *migrateOptions) learn(ctx context.Context, p *process) error {
	w, err := o.open(ctx, p, maintain.KindMigrate)
	if err != nil {
		return err
	}
	defer w.close(context.WithoutCancel(ctx))
	work, err := maintain.UnderWay(ctx, w.connection.Database(), w.stream.Name, maintain.KindMigrate)
	if err != nil {
		return err
	}
	if d, err := time.ParseDuration(work.To); err == nil {
		o.granularity = d
		return store.CheckGranularity(d)
	}
	if err := config.Choice(&o.storage, store.Bucket, store.TimeSeries)(work.To); err != nil {
		return fmt.Errorf("the migration of stream %s is to %q, which this version of brim does not know: %w", w.stream.Name, work.To, err)
	}
	if o.dropOld && !work.Done {
		return fmt.Errorf("the migration of stream %s to %s is in phase %s, and --drop-old would make its last step, too; if that is meant: %s",
			w.stream.Name, work.To, work.Phase, o.words(w.stream.Name, false).command("--storage", work.To, "--drop-old"))
	}
	return nil
}

// commandWords are what further commands for the same stream have in common.
type commandWords []string

// words are those of the flags that say where the stream is, and of those that
// say how it is moved.
func (o *migrateOptions) words(stream string, moves bool) commandWords {
	out := commandWords{"--stream", stream}
	names := []string{"config", daemon.UriSetting, daemon.UriFileSetting, "database", "token-file", "ca", "cert", "key"}
	if moves {
		names = append(names, howToMove...)
	}
	for _, name := range names {
		if f := o.flags.Lookup(name); f.Changed {
			out = append(out, "--"+name, f.Value.String())
		}
	}
	for _, at := range o.beside.admins {
		out = append(out, "--admin", at)
	}
	if o.storage != "" && o.beside.noDaemon {
		out = append(out, "--no-daemon")
	}
	return out
}

// command writes a command that can be pasted into a shell, but for a password,
// which is not shown.
func (c commandWords) command(more ...string) string {
	words := []string{"brim", "migrate"}
	for _, word := range append(more, c...) {
		words = append(words, config.ShellWord(config.MaskURI(word)))
	}
	return strings.Join(words, " ")
}

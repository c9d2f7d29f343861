package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/daemon"
)

// newJournalReplay returns `brim journal replay`, a daemon without its doors:
// what the journal holds goes to MongoDB, and that is all.
func newJournalReplay(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Store what a journal holds, without taking new readings",
		Long: "Store what a journal holds, without taking new readings. No daemon may run on the journal meanwhile;\n" +
			"others may go on writing the same sensors.\n\n" +
			"It takes the flags of serve. Use it to empty the journal of a daemon that will not come back, or before\n" +
			"its settings are changed. It may be ended at any moment, and run again: nothing is stored twice. Readings\n" +
			"that MongoDB refuses go to the dead-letter file in --data-dir.",
		Example: "  brim journal replay --data-dir ./brim-data\n" +
			"  brim journal replay --data-dir /mnt/dead/brim-data --mongo-uri mongodb://a,b,c/?replicaSet=rs\n" +
			"  brim journal replay --journal-dir /mnt/old/journal --mongo-uri mongodb://db/ --retarget",
		Args: cobra.NoArgs,
	}
	retarget := cmd.Flags().Bool("retarget", false, "store readings where the settings say, also if they were taken for another MongoDB, database or storage; those stored there already are then stored here, too")
	output := outputFlag(cmd, "text", "json")
	settingFlags(cmd, p, func(ctx context.Context, c *daemon.Config) error {
		done, err := daemon.Replay(ctx, c, p.options(), *retarget)
		if err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(p.stdout, done)
		}
		return printReplayed(p.stdout, &done)
	})
	return cmd
}

// printReplayed tells people what was done.
func printReplayed(w io.Writer, r *daemon.Replayed) error {
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	lines := []string{fmt.Sprintf("%d readings stored in %v, %d left in the journal", r.Stored, took, r.Left)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, s := range r.Taken {
		add("  session %s, stream %s: %d readings were not known to be stored", s.Session, s.Stream, s.Readings)
	}
	if r.Found > 0 {
		add("  %d of them were stored already", r.Found)
	}
	if r.Letters > 0 {
		add("  %d were refused by MongoDB, see `brim deadletter list`", r.Letters)
	}
	switch {
	case r.Left > 0:
	case r.Keys > 0:
		add("Nothing in %s is needed any more, but for %d idempotency keys: a request repeated elsewhere is taken again.", r.Journal, r.Keys)
	default:
		add("Nothing in %s is needed any more.", r.Journal)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

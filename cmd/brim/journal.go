package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/journal"
)

// newJournal returns `brim journal`, for readings accepted but not yet stored.
func newJournal(p *process) *cobra.Command {
	return newGroup("journal", "Inspect the journal of a daemon, or store what it holds", newJournalInspect(p), newJournalReplay(p))
}

// errDamaged ends `brim journal inspect` if readings are at stake.
var errDamaged = errors.New("the journal is damaged; a daemon refuses it, unless --journal-corruption quarantine gives up what cannot be read")

// newJournalInspect returns `brim journal inspect`.
func newJournalInspect(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show sessions, segments and what is not yet stored, and verify every checksum",
		Long: "Show sessions, segments and readings that are not stored yet, and verify every checksum. Nothing is changed,\n" +
			"and a daemon may be running. The figures for readings not known to be stored may be some milliseconds old.",
		Example: "  brim journal inspect\n" +
			"  brim journal inspect --journal-dir /var/lib/brim/journal --output json",
		Args: noArgs,
	}
	load := settingFlags(cmd.Flags(), [2]string{"data-dir"}, [2]string{"journal-dir"})
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := load(p)
		if err != nil {
			return err
		}
		report, err := daemon.InspectJournal(c.JournalPath())
		if err != nil {
			return err
		}
		err = p.print(*output, report, journalText(&report))
		if err == nil && report.Damaged() {
			err = errDamaged
		}
		return err
	}
	return cmd
}

// journalText returns a report as text.
func journalText(r *journal.Report) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(table, format+"\n", args...) } // into memory
	line("journal\t%s", r.Dir)
	line("size\t%s in %d segments, positions to %d", humanize.IBytes(uint64(r.Bytes)), len(r.Segments), r.End)
	line("stored\teverything before position %d", r.Applied)
	line("keys\t%d idempotency keys", r.Keys)
	line("\nsegment\tsession\tstarted\tbytes\tpositions\trecords\treadings\tsequences")
	for _, s := range r.Segments {
		line("%s\t%s\t%s\t%d\t%d-%d\t%d\t%d\t%d-%d", filepath.Base(s.File), s.Session, s.Started.UTC().Format(time.RFC3339), s.Bytes, s.Base, s.End, s.Records, s.Readings, s.FirstSeq, s.LastSeq)
	}
	switch {
	case len(r.Unapplied) == 0 && r.Damaged():
		line("\nOf what can be read everything is stored.")
	case len(r.Unapplied) == 0:
		line("\nEverything is stored.")
	default:
		line("\nnot known to be stored (the oldest arrived %s)\treadings\tstorage\tgranularity\ttarget", r.Oldest.UTC().Format(time.RFC3339))
		for _, u := range r.Unapplied {
			line("session %s, stream %s\t%d\t%s\t%s\t%s", u.Session, u.Stream, u.Readings, u.Settings.Storage, config.FormatDuration(u.Settings.Granularity), u.Settings.Target)
		}
	}
	for _, g := range r.GivenUp {
		kept := "the file was missing"
		if g.Copy != "" {
			kept = "a copy is in " + g.Copy
		}
		line("\ngiven up on %s: positions %d-%d were not stored, %s", g.When.UTC().Format(time.RFC3339), g.From, g.To, kept)
	}
	for _, b := range r.Problems {
		verdict := "damage: what was acknowledged cannot be read"
		switch {
		case b.Torn:
			verdict = "a write that was cut off, or is in progress; nothing of it was acknowledged"
		case b.Stored:
			verdict = "what was there is stored"
		}
		line("\n%s, offset %d, position %d: %s (%s)", b.File, b.Offset, b.Position, b.Wrong, verdict)
	}
	_ = table.Flush()
	return b.String()
}

// newJournalReplay returns `brim journal replay`, a daemon without listeners that only writes
// the journal's readings to MongoDB.
func newJournalReplay(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Store what a journal holds, without accepting new readings",
		Long: "Store what a journal holds, without accepting new readings. No daemon may be using the journal;\n" +
			"others may keep writing the same sensors.\n\n" +
			"It takes the flags of serve. Use it to empty the journal of a daemon that will not come back, or before\n" +
			"its settings are changed. It may be stopped at any time and run again: nothing is stored twice. Readings\n" +
			"that MongoDB refuses go to the dead-letter file in --data-dir.",
		Example: "  brim journal replay --data-dir ./brim-data\n" +
			"  brim journal replay --data-dir /mnt/dead/brim-data --mongo-uri mongodb://a,b,c/?replicaSet=rs\n" +
			"  brim journal replay --journal-dir /mnt/old/journal --mongo-uri mongodb://db/ --retarget",
		Args: noArgs,
	}
	retarget := cmd.Flags().Bool("retarget", false, "store readings where the settings say, even if they were accepted for another MongoDB, database or storage; those already stored there are then stored here too")
	output := outputFlag(cmd, "text", "json")
	withSettings(cmd, p, func(ctx context.Context, c *daemon.Config) error {
		done, err := daemon.Replay(ctx, c, p.options(), *retarget)
		if err != nil {
			return err
		}
		return p.print(*output, done, replayedText(&done))
	})
	return cmd
}

// replayedText describes the outcome.
func replayedText(r *daemon.Replayed) string {
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	lines := []string{fmt.Sprintf("%s stored in %v, %d left in the journal", plural(int64(r.Stored), "reading"), took, r.Left)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, s := range r.Taken {
		add("  session %s, stream %s: %s not known to be stored", s.Session, s.Stream, plural(int64(s.Readings), "reading"))
	}
	if r.Found > 0 {
		add("  %d of them already stored", r.Found)
	}
	if r.Letters > 0 {
		add("  %d of them refused by MongoDB, see `brim deadletter list`", r.Letters)
	}
	switch {
	case r.Left > 0:
	case r.Keys > 0:
		add("Nothing in %s is needed any more, but for %d idempotency keys: a request repeated elsewhere is accepted again.", r.Journal, r.Keys)
	default:
		add("Nothing in %s is needed any more.", r.Journal)
	}
	return strings.Join(lines, "\n") + "\n"
}

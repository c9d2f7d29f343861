package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/maintain"
)

// A migrateReport is the result of `brim migrate --granularity`.
type migrateReport struct {
	Stream  string `json:"stream"`
	To      string `json:"to,omitempty"`
	Aborted bool   `json:"aborted,omitempty"`

	*maintain.Result `json:"result,omitempty"` // nil: there was nothing to do

	Dropped    *maintain.Dropped    `json:"dropped,omitempty"`
	Tombstones *maintain.DropResult `json:"tombstones,omitempty"`

	OldDaemon bool `json:"-"` // one writes another granularity, or nobody knows
	NoDaemon  bool `json:"-"` // none was asked

	words, wordsToMove commandWords // of further commands, which drop and move
}

func (r *migrateReport) again() string { return r.wordsToMove.command("--granularity", r.To) }
func (r *migrateReport) drop() string {
	return r.words.command("--granularity", r.To, "--drop-old")
}

func (r *migrateReport) print(p *process, output string) error {
	if output == "json" {
		return printJSON(p.stdout, r)
	}
	if _, err := io.WriteString(p.stdout, r.text()); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

func (r *migrateReport) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch {
	case r.Aborted:
		line("The migration of stream %s is given up. The copy is dropped; daemons go on with the collection that they have.", r.Stream)
	case r.Dropped != nil:
		r.droppedText(line)
	case r.Result == nil:
		line("All documents of stream %s have a granularity of %s already: there is nothing to do.", r.Stream, r.To)
		line("To drop what an earlier migration has left: %s", r.drop())
	case r.AlreadyDone:
		line("Stream %s was migrated to %s before, and nothing was written with another granularity since.", r.Stream, r.To)
		r.keptText(line)
	default:
		r.movedText(line)
	}
	return b.String()
}

func (r *migrateReport) movedText(line func(string, ...any)) {
	line("Stream %s has a granularity of %s: %d documents, %s on disk (%s before).", r.Stream, r.To, r.Documents, roundSize(r.BytesAfter), roundSize(r.BytesBefore))
	line("It took %s; daemons had to wait for %s.", r.Took.Round(time.Second), r.Fenced.Round(time.Millisecond))
	line("")
	line("Next:")
	step := 0
	next := func(format string, args ...any) { step++; line("%3d. %s", step, fmt.Sprintf(format, args...)) }
	if r.OldDaemon {
		next("Restart each daemon with a granularity of %s for stream %s. Until then they write documents of the old granularity, which is right, beside the others.", r.To, r.Stream)
		next("Once more, for what they wrote until then: %s", r.again())
	}
	r.keptText(next)
}

func (r *migrateReport) keptText(line func(string, ...any)) {
	kept := "Empty documents are left of those that were moved."
	if r.Kept != "" {
		kept = r.Kept + " holds the documents as they were."
	}
	line("%s When all daemons have stored what they took in before: %s", kept, r.drop())
}

func (r *migrateReport) droppedText(line func(string, ...any)) {
	if r.Dropped.Collection != "" {
		line("Dropped collection %s: %s on disk.", r.Dropped.Collection, roundSize(r.Dropped.Bytes))
	}
	if r.Tombstones == nil {
		return
	}
	line("Removed %d empty documents that migrated ones had left behind.", r.Tombstones.Dropped)
	if n := r.Tombstones.Windows; n > 0 {
		line("%d windows still hold readings in documents of another granularity, and keep theirs. To move them, too: %s", n, r.again())
	}
	if r.NoDaemon {
		line("No daemon was asked. One that has readings in its journal, from before the migration, of which it does not know that they are stored, stores them again.")
	}
}

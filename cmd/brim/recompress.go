package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// kindRecompress is how the command's work is called in MongoDB.
const kindRecompress = "recompress"

// recompressOptions say what `brim recompress` does.
type recompressOptions struct {
	*maintainOptions
	to store.Compressor
}

// newRecompress returns `brim recompress`, which moves a collection to another
// compressor while daemons write:
//
//	flags ─▶ site ─▶ maintain.Move ─┬─▶ result as text or JSON ─▶ stdout
//	                                └─▶ progress ─▶ stderr
func newRecompress(p *process) *cobra.Command {
	var o recompressOptions
	cmd := &cobra.Command{
		Use:   "recompress --to zstd|snappy|none",
		Short: "Move a stream's collection to another compressor while daemons write",
		Long: "Move a stream's collection to another compressor while daemons write.\n\n" +
			"The compressor of an existing collection cannot be changed, so the documents are copied into a new one, with the\n" +
			"same options and indexes, at --rate. What daemons write in the meantime is copied as well. Then both collections\n" +
			"are compared byte by byte; for a moment daemons wait, and journal incoming readings, while the names are swapped in\n" +
			"one step. The old collection stays as STREAM.brim_old until --drop-old. The disk needs room for both.\n\n" +
			"Progress is recorded in MongoDB: after a kill or a lost connection the same command continues where it stopped, and\n" +
			"--abort abandons the move, until the swap is ordered. At the end MongoDB is asked for a checkpoint (fsync), so that\n" +
			"the sizes are accurate. The command requires a replica set (a single member is enough), and for the swap the\n" +
			"privilege to run any applyOps; without it see --swap. Running daemons continue; start them with the new --compressor from then on.\n\n" +
			"The JSON has stream, kind, to, already_done, kept (the old collection), documents, bytes_before, bytes_after\n" +
			"(on disk, without indexes), groups_made_anew, groups_repaired, groups_returned, groups_missed,\n" +
			"copies, fenced_ns (daemons\n" +
			"waited) and took_ns; with --drop-old stream, dropped and bytes.",
		Example: "  brim recompress --to zstd\n" +
			"  brim recompress --to zstd --stream machines --rate 8MiB\n" +
			"  brim recompress --drop-old\n" +
			"  brim recompress --abort",
		Args: nothing,
	}
	flagAdder(cmd.Flags())("to", "", "zstd|snappy|none", "compressor of the new collection", config.Choice(&o.to, store.Zstd, store.Snappy, store.NoneCompressor))
	o.maintainOptions = maintainFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) }
	return cmd
}

func (o *recompressOptions) run(ctx context.Context, p *process) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.to == "" && !o.abort && !o.dropOld {
		return config.Usage(errors.New("--to is missing: which compressor the collection gets; allowed: zstd, snappy, none"))
	}
	if o.to != "" && (o.abort || o.dropOld) {
		return config.Usage(errors.New("--to begins a move or goes on with it, --abort and --drop-old end one; take one of them"))
	}
	w, err := o.open(ctx, p, kindRecompress)
	if err != nil {
		return err
	}
	defer w.close(context.WithoutCancel(ctx))
	return softly(ctx, w, kindRecompress, func(ctx context.Context) error { return o.carryOut(ctx, p, w) })
}

func (o *recompressOptions) carryOut(ctx context.Context, p *process, w *workplace) error {
	if o.abort || o.dropOld {
		return o.endMove(ctx, p, w, kindRecompress)
	}
	cfg := o.move(w, kindRecompress)
	cfg.To, cfg.Compressor, cfg.SameDocuments = string(o.to), o.to, true
	result, err := maintain.Move(ctx, cfg)
	if err != nil {
		return err
	}
	w.line.end()
	return o.report(p, result)
}

// report says what the move came to, and what to do next.
func (o *recompressOptions) report(p *process, r *maintain.Result) error {
	var text strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	if r.AlreadyDone {
		add("stream %s has compressor %s already, from an earlier run", r.Stream, r.To)
	} else {
		add("stream %s has compressor %s now, in %s", r.Stream, r.To, config.FormatDuration(r.Took.Round(100*time.Millisecond)))
	}
	add("documents       %s", humanize.Comma(r.Documents))
	add("on disk before  %s", roundSize(r.BytesBefore))
	add("on disk after   %s%s", roundSize(r.BytesAfter), ofWhole(r.BytesAfter, r.BytesBefore))
	add("daemons waited  %s", config.FormatDuration(r.Fenced.Round(time.Millisecond)))
	add("written meanwhile and copied again: %s groups (a sensor's hour each)", humanize.Comma(r.Remade))
	if r.Repaired > 0 {
		add("differed although no daemon wrote to them, and were repaired: %s groups; was something else written to the copy?", humanize.Comma(r.Repaired))
	}
	if r.Returned > 0 {
		add("deleted in the moment of the exchange, and there again: documents in %s groups; the lines above name them", humanize.Comma(r.Returned))
	}
	if r.Missed > 0 {
		add("written to the old collection while it was being swapped: %s groups, named in the lines above. Restore them before --drop-old", humanize.Comma(r.Missed))
	}
	add("Start `brim serve` with --compressor %s for this stream from now on. A daemon that runs goes on; at its next start", r.To)
	add("it would refuse the collection under another compressor.")
	if r.Kept != "" {
		add("The old collection is kept as %s. When you are content: brim recompress --stream %s --drop-old", r.Kept, r.Stream)
	}
	return p.print(*o.output, r, text.String())
}

// ofWhole writes what a part of the whole is.
func ofWhole(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f %%)", 100*float64(part)/float64(whole))
}

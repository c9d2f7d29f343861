package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// maintainOptions are what the commands have in common that move a collection.
type maintainOptions struct {
	rate    int64 // bytes a second; 0: no limit
	swap    maintain.Swap
	dropOld bool
	abort   bool
	output  *string
	site    func(context.Context, *process) (*site, error)
}

// oldMoveRate reads 100 GiB in some fifty minutes, and leaves most of an
// SSD to the daemons.
const oldMoveRate = 32 << 20

// maintainFlags adds their flags to a command.
func maintainFlags(cmd *cobra.Command) *maintainOptions {
	o := &maintainOptions{rate: oldMoveRate, swap: maintain.SwapAtomic}
	flags := cmd.Flags()
	add := flagAdder(flags)
	add("rate", config.FormatSize(o.rate), "SIZE", "bytes before compression that are read in a second; 0: no limit", config.Size(&o.rate, 4<<10, 1<<40, true))
	names := make([]string, 0, len(maintain.Swaps()))
	for _, s := range maintain.Swaps() {
		names = append(names, string(s))
	}
	add("swap", string(o.swap), strings.Join(names, "|"), "how the collections are exchanged: atomic keeps the old one and needs the right to applyOps; replace drops the old one; renames wants the daemons stopped", config.Choice(&o.swap, maintain.Swaps()...))
	flags.BoolVar(&o.dropOld, "drop-old", false, "drop the old collection of a move that is done")
	flags.BoolVar(&o.abort, "abort", false, "give up a move that is not done, and drop the copy")
	o.output = outputFlag(cmd, "text", "json")
	o.site = siteFlags(flags)
	return o
}

// check refuses what does not go together.
func (o *maintainOptions) check() error {
	if o.abort && o.dropOld {
		return config.Usage(errors.New("--abort gives up a move that is not done, --drop-old ends one that is; take one of them"))
	}
	return nil
}

// A workplace is where a move works.
type workplace struct {
	site       *site
	stream     daemon.Stream
	connection *store.Connection
	log        *slog.Logger
	line       *oldMoveProgress
}

// open finds the stream and connects to its MongoDB. The connection is the
// caller's to close.
func (o *maintainOptions) open(ctx context.Context, p *process, command string) (*workplace, error) {
	s, err := o.site(ctx, p)
	if err != nil {
		return nil, err
	}
	one, err := s.stream()
	if err != nil {
		return nil, err
	}
	line := newOldMoveProgress(p.stderr)
	log := slog.New(slog.NewTextHandler(line, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutTime}))
	// That it is connected is no news; that it is not, is.
	connection, err := s.connect(command, slog.New(slog.NewTextHandler(line, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime})))
	if err != nil {
		return nil, err
	}
	return &workplace{site: s, stream: one, connection: connection, log: log, line: line}, nil
}

// withoutTime omits the time from log lines shown beside progress.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func (w *workplace) close(ctx context.Context) {
	w.line.end()
	if err := w.connection.Close(ctx); err != nil {
		w.log.Debug("the connection is left to its end", "err", err)
	}
}

// move is the configuration of a move of the stream.
func (o *maintainOptions) move(w *workplace, kind string) maintain.Config {
	return maintain.Config{
		Database: w.connection.Database(), Stream: w.stream.Name, Kind: kind,
		Rate: o.rate, Swap: o.swap, Progress: w.line.show, Logger: w.log,
	}
}

// softly runs something that a signal ends in good order: what is done stays
// done, daemons are not left waiting.
func softly(ctx context.Context, w *workplace, kind string, run func(context.Context) error) error {
	running, stopping, release := daemon.OnSignals(ctx,
		func(s os.Signal) {
			w.log.Info("stopping; the same command goes on from here", "command", "brim "+kind, "signal", s.String())
		},
		func(s os.Signal) { w.log.Warn("stopping at once", "signal", s.String()) })
	defer release()
	// The second signal ends what the first has not ended.
	both, cancel := context.WithCancelCause(running)
	defer cancel(nil)
	defer context.AfterFunc(stopping, func() { cancel(context.Cause(stopping)) })()
	return run(both)
}

// endMove carries out --abort and --drop-old.
func (o *maintainOptions) endMove(ctx context.Context, p *process, w *workplace, kind string) error {
	cfg := o.move(w, kind)
	if o.abort {
		if err := maintain.Abort(ctx, cfg); err != nil {
			return err
		}
		w.line.end()
		return p.print(*o.output, map[string]any{"stream": w.stream.Name, "aborted": true},
			fmt.Sprintf("aborted `brim %s` of stream %s: daemons continue with the original collection; the copy was dropped\n", kind, w.stream.Name))
	}
	dropped, err := maintain.DropOld(ctx, cfg)
	if err != nil {
		return err
	}
	w.line.end()
	text := fmt.Sprintf("dropped collection %s, which took %s on disk\n", dropped.Collection, roundSize(dropped.Bytes))
	if dropped.Collection == "" {
		text = "there was no old collection any more\n"
	}
	return p.print(*o.output, dropped, text)
}

// A oldMoveProgress shows how far a move is: on a terminal in one line that changes,
// elsewhere in a line every few seconds and at each phase.
type oldMoveProgress struct {
	*progressLine

	began time.Time // of the phase
	from  int64     // bytes that were done then
	last  maintain.Progress
}

// plainPause is how often progress is written where it is kept.
const (
	plainPause = 5 * time.Second
	month      = 30 * config.Day
)

func newOldMoveProgress(w io.Writer) *oldMoveProgress {
	return &oldMoveProgress{progressLine: newProgressLine(w, plainPause)}
}

// show is not called by two goroutines at once.
func (l *oldMoveProgress) show(p maintain.Progress) {
	news := p.Phase != l.last.Phase
	if news || p.Done < l.last.Done {
		l.began, l.from = l.now(), p.Done
	}
	l.last = p
	began, from := l.began, l.from
	l.progressLine.show(news, func(now time.Time) string { return oldMoveText(p, now.Sub(began), from) })
}

// oldMoveText is the line. What matters most stands in front, for a narrow terminal
// cuts it.
func oldMoveText(p maintain.Progress, since time.Duration, from int64) string {
	parts := []string{p.Phase}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if p.Total > 0 && p.Done > 0 {
		add("%d%%", min(100*p.Done/p.Total, 100))
		if seconds := since.Seconds(); seconds >= 1 && p.Done > from {
			perSecond := float64(p.Done-from) / seconds
			add("%.1f MB/s", perSecond/1e6)
			// Longer than a month is what the first bytes after a pause say.
			if left := float64(p.Total-p.Done) / perSecond; left >= 1 && left < month.Seconds() {
				add("%s left", config.FormatDuration(time.Duration(left)*time.Second))
			}
		}
	}
	if p.Documents > 0 {
		add("%s documents", humanize.Comma(p.Documents))
	}
	if p.Behind >= time.Second {
		add("%s behind", config.FormatDuration(p.Behind.Round(time.Second)))
	}
	text := strings.Join(parts, "  ")
	if p.Note != "" {
		text += " (" + p.Note + ")"
	}
	return text
}

// roundSize writes bytes in words.
func roundSize(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

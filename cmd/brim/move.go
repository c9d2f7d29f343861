package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// moveOptions are the flags of `brim move`.
type moveOptions struct {
	stream     string
	share      float64 // fraction of the time to work
	abandon    []string
	output     *string
	deployment func(context.Context, *process) (*deployment, error)
}

// newMove returns `brim move`, which leaves a stream with one collection.
func newMove(p *process) *cobra.Command {
	var o moveOptions
	cmd := &cobra.Command{
		Use:   "move STREAM",
		Short: "Move a stream's readings from its former collections into the current one",
		Long: "Move a stream's readings from its former collections into the one that daemons write, and drop the former ones.\n\n" +
			"A stream gets another collection when its daemons are restarted with another --storage or --compressor. Readings are accepted,\n" +
			"stored and queried as before while this command runs, and answers have each of them once. It needs space for a second copy of\n" +
			"what it moves. It can be interrupted, and continues when it is run again.\n\n" +
			"A collection is moved once no daemon has readings for it. If a daemon was killed or has stopped with readings in its journal, start\n" +
			"it again, or give these readings up with --abandon: should the daemon come back, they become dead letters.",
		Example: "  brim move readings\n" +
			"  brim move readings --mongo-uri mongodb://db1,db2,db3/?replicaSet=rs0 --config /etc/brim/brim.yaml\n" +
			"  brim move readings --share 100% --output json",
		Args: exactArg("a stream"),
	}
	flags := cmd.Flags()
	add := flagAdder(flags)
	add("share", "20%", "SHARE", "part of the time to work, from 1%; the rest are pauses for the daemons. 100%: no pauses", o.setShare)
	flags.StringArrayVar(&o.abandon, "abandon", nil, "name of a stopped `DAEMON`, as printed by this command, to give up its journal; may be repeated")
	o.output = outputFlag(cmd, "text", "json")
	o.deployment = deploymentFlags(flags)
	_ = flags.MarkHidden("stream") // an argument here, though the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.stream = args[0]; flags.Changed("stream") {
			return config.Usage(errors.New("--stream is not a flag of brim move: it takes the stream as an argument"))
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

func (o *moveOptions) setShare(text string) error {
	var share float64
	if err := config.Percent(&share, 100)(text); err != nil || share < 0.01 {
		return fmt.Errorf("%q is not a percentage from 1%% to 100%%, like 25%%", text)
	}
	o.share = share
	return nil
}

func (o *moveOptions) run(ctx context.Context, p *process) error {
	s, err := o.deployment(ctx, p)
	if err != nil {
		return err
	}
	s.chosen = o.stream
	one, err := s.stored("STREAM")
	if err != nil {
		return err
	}
	connection, disconnect, err := s.connect("move")
	if err != nil {
		return err
	}
	defer disconnect()
	line, running, stopping, end := p.interruptible(ctx, movePause, "stopping; run the same command again to continue")
	defer end()
	both, cancel := context.WithCancelCause(running)
	defer cancel(nil)
	defer context.AfterFunc(stopping, func() { cancel(context.Cause(stopping)) })()
	began := time.Now()
	moved, err := generation.NewMover(generation.MoveConfig{
		Config: store.Config{
			Database: connection.Database(), Stream: one.Name, Granularity: one.Granularity, Format: one.BucketFormat,
			MaxReadings: one.BucketMaxReadings, MaxBytes: one.BucketMaxBytes, View: one.View != daemon.Off,
			Logger: slog.New(slog.NewTextHandler(line, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Claims: connection.ControlDatabase(), Place: config.Deployment(s.uri),
		Share: o.share, Abandon: o.abandon,
		Progress: func(p generation.MoveProgress) {
			line.show(p.From+p.Note, func(time.Time) string { return moveText(p) })
		},
	}).Run(both)
	line.end()
	if err != nil && both.Err() != nil {
		return fmt.Errorf("move stream %s: interrupted", one.Name)
	}
	if err != nil {
		return fmt.Errorf("move stream %s: %w", one.Name, err)
	}
	return o.report(p, moved, time.Since(began))
}

// moveResult is the result as JSON.
type moveResult struct {
	Stream  string                       `json:"stream"`
	Moved   []generation.MovedCollection `json:"moved"`
	Seconds float64                      `json:"seconds"`
}

func (o *moveOptions) report(p *process, moved []generation.MovedCollection, took time.Duration) error {
	var text strings.Builder
	for _, m := range moved {
		fmt.Fprintf(&text, "%s: all readings are in %s now, %s of them copied by this command; the collection is dropped\n", m.Collection, m.Into, humanize.Comma(m.Readings))
	}
	if len(moved) == 0 {
		fmt.Fprintf(&text, "stream %s has one collection: there is nothing to move\n", o.stream)
	}
	return p.print(*o.output, moveResult{o.stream, append([]generation.MovedCollection{}, moved...), took.Seconds()}, text.String())
}

// movePause is how often progress is written to a log.
const movePause = 5 * time.Second

func moveText(p generation.MoveProgress) string {
	if p.From == "" {
		return p.Note
	}
	text := fmt.Sprintf("%s → %s", p.From, p.Into)
	if p.Note != "" {
		return text + "  " + p.Note
	}
	if p.Total > 0 {
		text += fmt.Sprintf("  %d%%", min(100*p.Bytes/p.Total, 100))
	}
	return text + fmt.Sprintf("  %s readings  sensor %s", humanize.Comma(p.Readings), printable(p.Sensor))
}

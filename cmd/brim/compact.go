package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/maintain/compact"
	"github.com/brim-telemetry/brim/internal/store"
)

// compactOptions are the flags of `brim compact`.
type compactOptions struct {
	choice    compact.Choice
	dryRun    bool
	freeShare float64 // 0 to 1
	freeBytes int64
	passes    int
	output    *string
	site      func(context.Context, *process) (*site, error)
}

// newCompact returns `brim compact`:
//
//	flags ─▶ site ─▶ Look (members, sizes, who is busy) ─▶ Choose ─▶ Run, member by member ─▶ report
//	                                                         │         └▶ a live line
//	                                                         └▶ left, and why
func newCompact(p *process) *cobra.Command {
	o := compactOptions{freeShare: 0.2, freeBytes: 64 << 20, passes: 4}
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give the free space in a stream's collection back to the file system",
		Long: "Give the free space in a stream's collection, and in its indexes, back to the file system.\n\n" +
			"Of a replica set it compacts the secondaries, one after another, and waits until each has caught up\n" +
			"before it goes on. The primary is left: make it a secondary first, or ask for it with --member or\n" +
			"--all. A server that takes writes is refused while it is busy, unless --force is given. Readings are\n" +
			"taken and stored all the while; they take longer. Where too little is free it does nothing.\n\n" +
			"What was deleted is free after the next checkpoint, and once the server keeps no history of it any\n" +
			"more (minSnapshotHistoryWindowInSeconds, 300 s unless it was changed).\n\n" +
			"An interrupt asks MongoDB to end the compaction. Before MongoDB 6.2 one that has begun is carried to\n" +
			"its end. It can be run again at any time.",
		Example: "  brim compact --dry-run\n" +
			"  brim compact --mongo-uri mongodb://db1,db2,db3/?replicaSet=rs0 --stream machines\n" +
			"  brim compact --member db1:27017 --force --output json",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.choice.Member, "member", "", "`HOST:PORT` of the only member to compact, as the set's configuration names it")
	flags.BoolVar(&o.choice.All, "all", false, "compact all members, the primary last")
	flags.BoolVar(&o.choice.Force, "force", false, "compact also a server that takes writes and is busy")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	shareText, bytesText, passesText := "20%", "64MiB", "4"
	flags.Var(&flagText{text: &shareText, kind: "SHARE", set: keep(&shareText, freeShare(&o.freeShare))}, "free-at-least", "`SHARE` of the files that must be free")
	flags.Var(&flagText{text: &bytesText, kind: "SIZE", set: keep(&bytesText, config.Size(&o.freeBytes, 1, math.MaxInt64, true))}, "free-bytes-at-least", "bytes that must be free")
	flags.Var(&flagText{text: &passesText, kind: "N", set: keep(&passesText, config.Count(&o.passes, 1, 100))}, "passes", "how often a member is compacted, at most, while that gives something back")
	o.output = outputFlag(cmd, "text", "json")
	o.site = siteFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.choice.All && o.choice.Member != "" {
			return config.Usage(errors.New("--all and --member exclude each other: give one of them"))
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// keep is a setter that also keeps the text.
func keep(text *string, to func(string) error) func(string) error {
	return func(s string) error {
		err := to(s)
		if err == nil {
			*text = s
		}
		return err
	}
}

// freeShare takes a part of the whole, as 20% or 0.2.
func freeShare(place *float64) func(string) error {
	return func(s string) error {
		text, percent := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v >= 0 && v <= 1) {
			return fmt.Errorf("%q is not a share of 0%% to 100%%, written like 20%% or 0.2", s)
		}
		*place = v
		return nil
	}
}

// run compacts until the first signal, which ends it in good order.
func (o *compactOptions) run(ctx context.Context, p *process) error {
	s, err := o.site(ctx, p)
	if err != nil {
		return err
	}
	one, err := s.stream()
	if err != nil {
		return err
	}
	collection := one.Name
	switch one.Storage {
	case store.Memory:
		return config.Usage(fmt.Errorf("stream %s is stored in memory: MongoDB has nothing of it to compact", one.Name))
	case store.TimeSeries:
		collection = compact.BucketsOf(one.Name)
	}
	connection, err := s.connect("compact", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	live := newCompactLive(p.stderr)
	running, stopping, release := daemon.OnSignals(ctx,
		func(os.Signal) {
			live.say("stopping: MongoDB is asked to end the compaction; a second signal does not wait for it")
		},
		func(os.Signal) { live.say("stopping at once") })
	defer release()
	c, err := compact.New(compact.Config{
		Client: connection.Client(), URI: s.uri, Database: s.database, Collection: collection,
		FreeAtLeast: o.freeShare, LeastBytes: o.freeBytes, Passes: o.passes, Progress: live.show,
	})
	if err == nil {
		err = o.carryOut(running, stopping, p, &compactTask{compactor: c, stream: one.Name, live: live})
		err = errors.Join(err, within(c.Close))
	}
	return errors.Join(err, within(connection.Close))
}

// within lets something end that is not worth waiting for.
func within(end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := end(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// A compactTask is what is compacted.
type compactTask struct {
	compactor *compact.Compactor
	stream    string
	live      *compactLive
}

// carryOut looks, chooses, compacts and reports; also what was done before it
// failed.
func (o *compactOptions) carryOut(ctx, hard context.Context, p *process, t *compactTask) error {
	t.live.note("looks at the members")
	d, err := t.compactor.Look(ctx)
	if err != nil {
		t.live.end()
		if ctx.Err() != nil {
			return compact.ErrInterrupted
		}
		return fmt.Errorf("compact stream %s: %w", t.stream, err)
	}
	todo, left, err := t.compactor.Choose(d, o.choice)
	if err != nil {
		t.live.end()
		return config.Usage(fmt.Errorf("--member: %w", err))
	}
	report := &compactReport{Stream: t.stream, DryRun: o.dryRun, Deployment: d, Left: left, Chosen: []string{}}
	for _, m := range todo {
		report.Chosen = append(report.Chosen, m.Host)
	}
	if *o.output == "text" {
		t.live.end()
		if err := report.printMembers(p.stdout); err != nil {
			return err
		}
	}
	if !o.dryRun {
		var more []compact.Left
		report.Compacted, more, err = t.compactor.Run(ctx, hard, d, todo, o.choice)
		report.Left = append(report.Left, more...)
	}
	t.live.end()
	if *o.output == "json" {
		return errors.Join(printJSON(p.stdout, report), err, report.failure())
	}
	return errors.Join(report.print(p.stdout), err, report.failure())
}

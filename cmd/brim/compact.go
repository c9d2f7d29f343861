package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/compact"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// compactOptions are the flags of `brim compact`.
type compactOptions struct {
	choice     compact.Selection
	dryRun     bool
	freeShare  float64 // 0 to 1
	freeBytes  int64
	passes     int
	output     *string
	deployment func(context.Context, *process) (*deployment, error)
}

// newCompact returns `brim compact`:
//
//	flags ─▶ deployment ─▶ Inspect (members, sizes, who is busy) ─▶ Choose ─▶ Run, member by member ─▶ report
//	                                                                  │         └▶ a live line
//	                                                                  └▶ skipped, and why
func newCompact(p *process) *cobra.Command {
	var o compactOptions
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give the free space in a stream's collection back to the file system",
		Long: "Give the free space in a stream's collection, and in its indexes, back to the file system.\n\n" +
			"In a replica set it compacts the secondaries one after another, and waits until each has caught up\n" +
			"before continuing. It skips the primary: step it down first, or select it with --member or --all. A\n" +
			"server that accepts writes is refused while it is busy, unless --force is given. Readings are still\n" +
			"accepted and stored during a compaction, but more slowly. If too little space is free it does nothing.\n\n" +
			"Space of deleted documents becomes free after the next checkpoint, once the server no longer keeps\n" +
			"their history (minSnapshotHistoryWindowInSeconds, 300 s by default). It compacts the collection that\n" +
			"daemons write; brim move empties and drops former ones.\n\n" +
			"An interrupt asks MongoDB to stop the compaction. Before MongoDB 6.2 a compaction that has started\n" +
			"runs to completion. The command can be run again at any time.",
		Example: "  brim compact --dry-run\n" +
			"  brim compact --mongo-uri mongodb://db1,db2,db3/?replicaSet=rs0 --stream machines\n" +
			"  brim compact --member db1:27017 --force --output json",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.choice.Member, "member", "", "`HOST:PORT` of the only member to compact, as the set's configuration names it")
	flags.BoolVar(&o.choice.All, "all", false, "compact all members, the primary last")
	flags.BoolVar(&o.choice.Force, "force", false, "compact also a server that takes writes and is busy")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	add := flagAdder(flags)
	add("free-at-least", "20%", "SHARE", "part of the files that must be free", share(&o.freeShare, 1))
	add("free-bytes-at-least", "64MiB", "SIZE", "bytes that must be free", config.Size(&o.freeBytes, 1, math.MaxInt64, true))
	add("passes", "4", "N", "how often a member is compacted, at most, while that gives something back", config.Count(&o.passes, 1, 100))
	o.output = outputFlag(cmd, "text", "json")
	o.deployment = deploymentFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.choice.All && o.choice.Member != "" {
			return config.Usage(errors.New("--all and --member cannot be used together: give one of them"))
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// run compacts until done or until the first signal, which stops it gracefully. It also reports
// what was done before an error.
func (o *compactOptions) run(ctx context.Context, p *process) error {
	s, err := o.deployment(ctx, p)
	if err != nil {
		return err
	}
	stream, err := s.stored("--stream")
	if err != nil {
		return err
	}
	connection, disconnect, err := s.connect("compact")
	if err != nil {
		return err
	}
	defer disconnect()
	live, soft, hard, end := p.interruptible(ctx, tellEvery, "stopping: MongoDB is asked to end the compaction; a second signal does not wait for it")
	defer end()
	collection, err := collectionOf(soft, connection, &stream)
	if err != nil {
		return err
	}
	c := compact.New(compact.Config{
		Client: connection.Client(), URI: s.uri, Database: s.database, Collection: collection,
		FreeAtLeast: o.freeShare, LeastBytes: o.freeBytes, Passes: o.passes, Progress: showCompaction(live),
	})
	defer withinSecond(c.Close)
	if live.terminal {
		live.tell("inspecting the members")
	}
	d, err := c.Inspect(soft)
	switch {
	case err != nil && soft.Err() != nil:
		return compact.ErrInterrupted
	case err != nil:
		return fmt.Errorf("compact stream %s: %w", stream.Name, err)
	}
	todo, left, err := c.Choose(d, o.choice)
	if err != nil {
		return config.Usage(fmt.Errorf("--member: %w", err))
	}
	report := &compactReport{Stream: stream.Name, DryRun: o.dryRun, Deployment: d, Left: left, Chosen: []string{}}
	for _, m := range todo {
		report.Chosen = append(report.Chosen, m.Host)
	}
	if *o.output == "text" {
		live.clear()
		if _, err := io.WriteString(p.stdout, report.members()); err != nil {
			return fmt.Errorf("print the members: %w", err)
		}
	}
	if !o.dryRun {
		var more []compact.Skipped
		report.Compacted, more, err = c.Run(soft, hard, d, todo, o.choice)
		report.Left = append(report.Left, more...)
	}
	live.end()
	return errors.Join(p.print(*o.output, report, report.text()), err, report.failure())
}

// collectionOf returns the underlying collection that daemons write a stream to.
func collectionOf(ctx context.Context, connection *store.Connection, s *daemon.Stream) (string, error) {
	list, err := generation.Read(ctx, connection.Database(), s.Name)
	if err != nil {
		return "", err
	}
	name := s.Name
	if list != nil {
		name = list.Written(generation.Target{Storage: s.Storage, Compressor: s.Compressor}).Collection
	}
	if s.Storage == store.TimeSeries {
		name = compact.BucketsOf(name)
	}
	return name, nil
}

// A compactReport is the result of `brim compact`.
type compactReport struct {
	Stream string `json:"stream"`
	DryRun bool   `json:"dry_run"`
	*compact.Deployment
	Chosen    []string          `json:"chosen"` // members to compact, in order
	Compacted []*compact.Result `json:"compacted,omitempty"`
	Left      []compact.Skipped `json:"left,omitempty"`
}

// bytesText formats a size.
func bytesText(n int64) string {
	if n < 0 {
		return "-" + humanize.IBytes(uint64(-n))
	}
	return humanize.IBytes(uint64(n))
}

// members returns a table of the members.
func (r *compactReport) members() string {
	where := "a standalone MongoDB"
	if r.Set != "" {
		where = fmt.Sprintf("replica set %s of %s with data", r.Set, plural(len(r.Members), "member"))
	}
	head := []string{"member", "role", "version", "file", "free", "indexes", "free", "free of all", "written/s", "queries/s", "busy"}
	var rows [][]string
	for _, m := range r.Members {
		row := []string{m.Host, m.Role, m.Version, m.Unseen}
		if m.Seen() {
			busy := "no"
			if len(m.Load.Busy()) > 0 {
				busy = "yes"
			}
			s := m.Sizes
			row = append(row[:3], bytesText(s.File), bytesText(s.Free), bytesText(s.IndexFile), bytesText(s.IndexFree),
				fmt.Sprintf("%.1f %%", 100*s.FreeShare()), rateText(m.Load.Writes), rateText(m.Load.Reads), busy)
		}
		rows = append(rows, row)
	}
	return fmt.Sprintf("stream %s: collection %s, %s\n\n%s\n", r.Stream, r.Collection, where, tableText(head, rows))
}

func rateText(v float64) string {
	if math.IsNaN(v) {
		return absent
	}
	return fmt.Sprintf("%.0f", v)
}

// text describes what was done and what was skipped.
func (r *compactReport) text() string {
	var text strings.Builder
	if r.DryRun {
		for i, host := range r.Chosen {
			fmt.Fprintf(&text, "%s would be compacted", host)
			if i > 0 {
				text.WriteString(", when the one before has caught up")
			}
			text.WriteByte('\n')
		}
	}
	for _, one := range r.Compacted {
		text.WriteString(resultText(one))
	}
	for _, l := range r.Left {
		fmt.Fprintf(&text, "%s is not compacted: %s\n", l.Member, printable(l.Why))
		if l.Do != "" {
			fmt.Fprintf(&text, "  what to do: %s\n", printable(l.Do))
		}
	}
	if r.Old != "" {
		fmt.Fprintf(&text, "%s is what `brim recompress` or `brim migrate` of an earlier release has left behind; once it is no longer needed, dropping it gives all of its space back (in mongosh: db.getCollection(%q).drop())\n", r.Old, r.Old)
	}
	if r.DryRun {
		text.WriteString("nothing was done (--dry-run)\n")
	}
	return text.String()
}

// resultText describes the result of one compaction.
func resultText(r *compact.Result) string {
	var text strings.Builder
	passes := "1 pass"
	if len(r.Passes) != 1 {
		passes = fmt.Sprintf("%d passes", len(r.Passes))
	}
	fmt.Fprintf(&text, "%s: %s given back in %.1f s, %s\n", r.Member, bytesText(r.GivenBack), r.Seconds, passes)
	line := func(title, value string) { fmt.Fprintf(&text, "  %-16s%s\n", title, value) }
	if r.Ended != "" {
		line("interrupted", r.Ended)
	}
	if waits := r.After.Waits(); waits != "" && r.GivenBack <= 0 {
		line("what to do", waits)
	}
	line("file", fmt.Sprintf("%s → %s, free in it %s → %s", bytesText(r.Before.File), bytesText(r.After.File), bytesText(r.Before.Free), bytesText(r.After.Free)))
	line("indexes", fmt.Sprintf("%s → %s, free in them %s → %s", bytesText(r.Before.IndexFile), bytesText(r.After.IndexFile), bytesText(r.Before.IndexFree), bytesText(r.After.IndexFree)))
	more := bytesText(r.FilesMore) + " in these files"
	if r.DiskMore != nil {
		more += fmt.Sprintf(", %s in the file system with all that was written meanwhile", bytesText(int64(*r.DiskMore)))
	}
	line("more disk, most", more)
	if r.CaughtUp != nil {
		line("caught up", fmt.Sprintf("in %.1f s", *r.CaughtUp))
	}
	return text.String()
}

// failure returns an error if selected members were not compacted. Members with nothing to gain,
// and a primary that was not selected, are not failures.
func (r *compactReport) failure() error {
	if r.DryRun {
		return nil
	}
	var failed []string
	for _, l := range r.Left {
		switch l.Kind {
		case compact.Busy:
			failed = append(failed, l.Member+" is busy, and --force was not given")
		case compact.Unseen, compact.Running:
			failed = append(failed, l.Member+": "+l.Why)
		}
	}
	if failed == nil {
		return nil
	}
	return errors.New("not compacted: " + strings.Join(failed, "; "))
}

// tellEvery is how often progress is written if the output is not a terminal.
const tellEvery = 10 * time.Second

// showCompaction returns a function that shows the progress of a compaction.
func showCompaction(live *progressLine) func(compact.Progress) {
	return func(p compact.Progress) {
		live.show(fmt.Sprint(p.Member, p.Pass, p.Note), func(time.Time) string { return compactText(p) })
	}
}

func compactText(p compact.Progress) string {
	if p.Pass == 0 {
		return p.Member + ": " + p.Note
	}
	text := fmt.Sprintf("%s: pass %d, %.1f s, %s given back, files %s, free in them %s",
		p.Member, p.Pass, p.Elapsed.Seconds(), bytesText(p.GivenBack), bytesText(p.Files), bytesText(p.Free))
	if p.Note != "" {
		text += "; " + p.Note
	}
	return text
}

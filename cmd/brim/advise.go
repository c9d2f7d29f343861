package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench/advise"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
)

// newAdvise returns `brim advise`, which goes from numbers to settings:
//
//	flags ─▶ advise.Run ──▶ advise.Advice ─┬─▶ advice as text or JSON ─▶ stdout
//	             │                         └─▶ configuration in YAML ───┘
//	             └─▶ progress ─▶ stderr
func newAdvise(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Recommend settings for your sensors and queries, by what they cost on this machine",
		Long: "Recommend settings for your sensors and queries, by what they cost on this machine.\n\n" +
			"It measures, in a mongod of its own or in a scratch database of --mongo-uri: what an update costs by the\n" +
			"readings in the document and in the update, what a checkpoint costs, and of each way to store what readings\n" +
			"take on disk and what a query takes. From that it works out what a day of your numbers costs. It takes about\n" +
			"a minute and a half; with --quick, half of that.\n\n" +
			"The rule: price = CPU-hours of a month (mongod and brim: writing, checkpoints, queries) x --core-hour\n" +
			"+ GB kept on disk x --gb-month. The cheapest that --duplicates allows is taken. Prices within 10 % count as the\n" +
			"same, and of those the simpler is taken: bucket documents before a time series; then smaller documents; then\n" +
			"snappy; then the shorter flush interval. The interval between checkpoints is the shortest of 1m, 2m and 5m\n" +
			"with which they write no more than --disk-writes a day.\n\n" +
			"--queries are of one sensor each; without it every reading is read once. --follow also runs a daemon with\n" +
			"these settings and `brim load` against it, and compares the documents and bytes that are stored.\n\n" +
			"The JSON has needs, environment, chosen (a day's documents, *_bytes and *_cpu_seconds, prices of a month,\n" +
			"times in nanoseconds where they end in _ns), choices (setting, value, why), rejected (as chosen, with why),\n" +
			"warnings, followed (predicted and seen), figures (all that was measured) and yaml.",
		Example: "  brim advise --sensors 10000 --interval 5s --fields 4 --query-span 1h --retention 90d\n" +
			"  brim advise --sensors 50000 --interval 1m --fields 2 --query-span 30d --retention 1825d\n" +
			"  brim advise --sensors 1 --interval 2777us --fields 1 --query-span 10m --retention 30d --follow",
		Args: cobra.NoArgs,
	}
	o := newAdviseFlags(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) }
	return cmd
}

// run measures, and shows what follows.
func (o *adviseOptions) run(ctx context.Context, p *process) error {
	if err := o.needs.Check(); err != nil {
		return config.Usage(err)
	}
	advice, measured := o.measure(ctx, p)
	if advice == nil {
		return measured
	}
	yaml := adviceYAML(advice)
	if o.lab.config.URI != "" {
		yaml += "# mongo-uri: that of the MongoDB that was measured\n"
	}
	var err error
	if *o.output == "json" {
		err = printJSON(p.stdout, struct {
			*advise.Advice
			YAML string `json:"yaml"`
		}{advice, yaml})
	} else {
		err = advise.Text(p.stdout, advice, yaml)
	}
	return errors.Join(measured, err, judgeFollowed(advice.Followed))
}

// measure shows on stderr how far it is.
func (o *adviseOptions) measure(ctx context.Context, p *process) (*advise.Advice, error) {
	live := newBenchLive(p.stderr, true)
	defer live.end()
	say := func(what string) func(os.Signal) {
		return func(os.Signal) { _, _ = fmt.Fprintln(live, what) }
	}
	running, aborting, release := daemon.OnSignals(ctx, say("stopping, and removing what is scratch; a second signal does not wait"), say("stopping at once"))
	defer release()
	c, err := o.lab.prepare()
	if err != nil {
		return nil, err
	}
	c.Abort, c.Progress, c.Out = aborting, live.show, live
	if c.Database != "" {
		_, _ = fmt.Fprintf(live, "scratch database %s in %s, dropped in the end\n", c.Database, config.MaskURI(c.URI))
	}
	return advise.Run(running, advise.Config{Needs: o.needs, Bench: c, Follow: o.follow})
}

// offLimit is the part by which what was stored may differ from the prediction.
const offLimit = 0.15

// judgeFollowed returns that the advice did not hold.
func judgeFollowed(f *advise.Followed) error {
	if f == nil {
		return nil
	}
	hold := func(name string, a advise.Against) error {
		if off := a.Off(); !(off <= offLimit && off >= -offLimit) { // nor does what is no number
			return fmt.Errorf("the %s that were stored differ by %+.0f %% from the prediction, more than %.0f %%", name, 100*off, 100*offLimit)
		}
		return nil
	}
	return errors.Join(hold("documents", f.Documents), hold("bytes", f.Bytes))
}

// adviceYAML is the configuration of the daemon that the advice comes to.
func adviceYAML(a *advise.Advice) string {
	c, n := a.Chosen, a.Needs
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("# brim advise: %d sensors, %d fields every %s, queries of %s", n.Sensors, n.Fields, config.FormatDuration(n.Interval), config.FormatDuration(n.QuerySpan))
	line("flush-interval: %s", config.FormatDuration(c.Flush))
	line("streams:")
	line("  readings:")
	line("    storage: %s", c.Storage)
	line("    granularity: %s", config.FormatDuration(c.Granularity))
	if c.Storage == store.Bucket {
		line("    bucket-max-readings: %d", c.MaxReadings)
		line("    bucket-max-bytes: %s", config.FormatSize(int64(c.MaxBytes)))
	}
	line("    compressor: %s", c.Compressor)
	if n.Retention > 0 {
		line("    retention: %s", config.FormatDuration(n.Retention))
	}
	line("# in mongod's own configuration: storage.syncPeriodSecs: %d", int(c.Checkpoint.Seconds()))
	return b.String()
}

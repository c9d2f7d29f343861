package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/advise"
	"github.com/brim-telemetry/brim/internal/config"
)

// newAdvise returns `brim advise`, which turns numbers into settings:
//
//	flags ─▶ advise.Run ──▶ advise.Advice ─┬─▶ advice as text or JSON ─▶ stdout
//	             │                         └─▶ configuration in YAML ───┘
//	             └─▶ progress ─▶ stderr
func newAdvise(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Recommend settings for your sensors and queries, by what they cost on this machine",
		Long: "Recommend settings for your sensors and queries, by what they cost on this machine.\n\n" +
			"It measures each way to store, in a mongod of its own or in a scratch database of --mongo-uri: what updates and\n" +
			"checkpoints cost, what readings take on disk, and what a query takes. From that it works out what a day of your\n" +
			"numbers costs. It takes about a minute and a half; with --quick, half of that.\n\n" +
			"The rule: price = CPU-hours of a month (mongod and brim: writing, checkpoints, queries) x --core-hour\n" +
			"+ GB kept on disk x --gb-month. The cheapest that --duplicates allows is taken. Prices within 10 % count as\n" +
			"equal, and the simplest of them is taken: bucket documents before a time series; then smaller documents; then\n" +
			"snappy; then the shorter --flush-max. The interval between checkpoints is the shortest of 1m, 2m and 5m\n" +
			"with which they write no more than --disk-writes a day.\n\n" +
			"--queries are of one sensor each; without it every reading is read once. --follow also runs a daemon with\n" +
			"these settings and `brim load` against it, and compares the documents and bytes that are stored.\n\n" +
			"The JSON has needs, environment, chosen (a day's documents, *_bytes and *_cpu_seconds, prices of a month,\n" +
			"times in nanoseconds where they end in _ns), choices (setting, value, next_best, why),\n" +
			"fresh (as chosen, with each --flush-max), rejected (as chosen, with why), warnings, followed (predicted and seen),\n" +
			"figures (all that was measured) and yaml.",
		Example: "  brim advise --sensors 10000 --interval 5s --fields 4 --query-span 1h --retention 90d\n" +
			"  brim advise --sensors 50000 --interval 1m --fields 2 --query-span 30d --retention 1825d\n" +
			"  brim advise --sensors 1 --interval 2777us --fields 1 --query-span 10m --retention 30d --follow",
		Args: noArgs,
	}
	o := newAdviseFlags(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) }
	return cmd
}

// adviseOptions are the flags of `brim advise`.
type adviseOptions struct {
	needs  advise.Needs
	follow bool
	lab    benchOptions // where to measure
	output *string
}

// newAdviseFlags adds the flags to the command. Each is checked as it is read.
func newAdviseFlags(cmd *cobra.Command, p *process) *adviseOptions {
	o := &adviseOptions{}
	n := &o.needs
	add := flagAdder(cmd.Flags())
	money := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	add("sensors", "1000", "N", "number of sensors", config.Count(&n.Sensors, 1, advise.MaxSensors))
	add("interval", "5s", "DURATION", "between readings of a sensor", config.Duration(&n.Interval, time.Millisecond, advise.MaxInterval, false))
	add("fields", "4", "N", "fields of a reading", config.Count(&n.Fields, 1, advise.MaxFields))
	add("query-span", "1h", "DURATION", "that most queries ask for, of one sensor", config.Duration(&n.QuerySpan, time.Millisecond, advise.MaxQuerySpan, false))
	add("queries", "0", "N", "queries a day; 0: as many as read every reading once", config.Number(&n.Queries, 0, 1e9))
	add("retention", "90d", "DURATION", "age at which readings are removed; 0: keep forever (priced as one year)", config.Duration(&n.Retention, time.Minute, advise.MaxRetention, true))
	add("max-wait", config.FormatDuration(advise.DefaultMaxWait), "DURATION", "longest --flush-max to consider: how long a reading may be in Brim's journal only, where queries through Brim see it and programs that read MongoDB directly do not", config.Duration(&n.MaxWait, time.Millisecond, advise.MaxMaxWait, false))
	add("batch", "1", "N", "readings per request (affects the cost of ingest)", config.Count(&n.Batch, 1, 10_000))
	add("duplicates", string(advise.Never), "never|rare", "whether a reading may be stored twice after an answer of MongoDB was lost; rare allows time series, in which the database does not prevent it", config.Choice(&n.Duplicates, advise.Never, advise.Rare))
	add("core-hour", money(advise.DefaultCoreHour), "PRICE", "of an hour of one CPU core", config.Number(&n.CoreHour, 0.000001, 1e6))
	add("gb-month", money(advise.DefaultGBMonth), "PRICE", "of a GB on disk for a month, in the same money", config.Number(&n.GBMonth, 0.000001, 1e6))
	add("disk-writes", "150GB", "SIZE", "that checkpoints may write a day; by default 0.3 times a drive of 500 GB", config.Size(&n.DiskWrites, 1<<20, 1<<50, false))
	flags := cmd.Flags()
	flags.BoolVar(&o.follow, "follow", false, "then follow the advice with a daemon and a load, and compare what is stored")
	flags.BoolVar(&o.lab.config.Quick, "quick", false, "fewer granularities, smaller samples")
	o.output = outputFlag(cmd, "text", "json")
	o.lab.config.Seed, o.lab.config.Repeats = 1, bench.DefaultRepeats // so that the announced time is shown
	o.lab.addPlace(cmd, p)
	return o
}

// run measures, and prints the advice.
func (o *adviseOptions) run(ctx context.Context, p *process) error {
	if err := o.needs.Check(); err != nil {
		return config.Usage(err)
	}
	var advice *advise.Advice
	measured := o.lab.measure(ctx, p, func(running context.Context, c bench.Config, live *progressLine) (err error) {
		if c.Database != "" {
			live.say("scratch database %s in %s, dropped at the end", c.Database, config.MaskURI(c.URI))
		}
		advice, err = advise.Run(running, advise.Config{Needs: o.needs, Bench: c, Follow: o.follow})
		return err
	})
	if advice == nil {
		return measured
	}
	yaml := advice.YAML()
	if o.lab.config.URI != "" {
		yaml += "# mongo-uri: the MongoDB that was measured\n"
	}
	var text strings.Builder
	err := advise.Text(&text, advice, yaml)
	err = errors.Join(err, p.print(*o.output, struct {
		*advise.Advice
		YAML string `json:"yaml"`
	}{advice, yaml}, text.String()))
	return errors.Join(measured, err, checkFollowed(advice.Followed))
}

// maxDeviation is the fraction by which stored amounts may differ from the prediction.
const maxDeviation = 0.15

// checkFollowed returns an error if the advice did not hold.
func checkFollowed(f *advise.Followed) error {
	if f == nil {
		return nil
	}
	hold := func(name string, a advise.Against) error {
		if off := a.Off(); !(off <= maxDeviation && off >= -maxDeviation) { // NaN does not hold either
			return fmt.Errorf("the %s that were stored differ by %+.0f %% from the prediction, more than %.0f %%", name, 100*off, 100*maxDeviation)
		}
		return nil
	}
	return errors.Join(hold("documents", f.Documents), hold("bytes", f.Bytes))
}

package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench/advise"
	"github.com/brim-telemetry/brim/internal/config"
)

// adviseOptions are the flags of `brim advise`.
type adviseOptions struct {
	needs  advise.Needs
	follow bool
	lab    benchOptions // where it is measured
	output *string
}

// newAdviseFlags adds the flags to the command. Each is checked as it is read.
func newAdviseFlags(cmd *cobra.Command, p *process) *adviseOptions {
	o := &adviseOptions{}
	n := &o.needs
	*n = advise.Needs{
		Sensors: 1000, Interval: 5 * time.Second, Fields: 4, QuerySpan: time.Hour, Retention: 90 * config.Day,
		MaxWait: advise.DefaultMaxWait, Batch: 1, Duplicates: advise.Never, CoreHour: advise.DefaultCoreHour, GBMonth: advise.DefaultGBMonth, DiskWrites: advise.DefaultDiskWrites,
	}
	cmd.Flags().SortFlags = false
	add := flagAdder(cmd.Flags())
	money := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	add("sensors", "1000", "N", "number of sensors", config.Count(&n.Sensors, 1, advise.MaxSensors))
	add("interval", "5s", "DURATION", "between readings of a sensor", config.Duration(&n.Interval, time.Millisecond, advise.MaxInterval, false))
	add("fields", "4", "N", "fields of a reading", config.Count(&n.Fields, 1, advise.MaxFields))
	add("query-span", "1h", "DURATION", "that most queries ask for, of one sensor", config.Duration(&n.QuerySpan, time.Millisecond, advise.MaxQuerySpan, false))
	add("queries", "0", "N", "queries a day; 0: as many as read every reading once", decimal(&n.Queries, 0, 1e9))
	add("retention", "90d", "DURATION", "age at which readings are removed; 0: never, of which a year is counted", config.Duration(&n.Retention, time.Minute, advise.MaxRetention, true))
	add("max-wait", config.FormatDuration(advise.DefaultMaxWait), "DURATION", "how long a reading may gather before it is written, in Brim's journal alone: the longest flush interval", config.Duration(&n.MaxWait, time.Millisecond, advise.MaxMaxWait, false))
	add("batch", "1", "N", "readings in a request, for what it costs to take them in", config.Count(&n.Batch, 1, 10_000))
	add("duplicates", "never", "never|rare", "whether a reading may be stored twice after an answer of MongoDB was lost; rare allows time series, in which the database does not prevent it", config.Choice(&n.Duplicates, advise.Never, advise.Rare))
	add("core-hour", money(advise.DefaultCoreHour), "PRICE", "of an hour of a processor", decimal(&n.CoreHour, 0.000001, 1e6))
	add("gb-month", money(advise.DefaultGBMonth), "PRICE", "of a GB on disk for a month, in the same money", decimal(&n.GBMonth, 0.000001, 1e6))
	add("disk-writes", "150GB", "SIZE", "that checkpoints may write a day; by default 0.3 times a drive of 500 GB", config.Size(&n.DiskWrites, 1<<20, 1<<50, false))
	flags := cmd.Flags()
	flags.BoolVar(&o.follow, "follow", false, "then do what is recommended, with a daemon and its load, and compare what is stored")
	flags.BoolVar(&o.lab.config.Quick, "quick", false, "fewer granularities, smaller samples")
	o.output = outputFlag(cmd, "text", "json")
	o.lab.config.Seed = 1 // as that of `brim load`
	o.lab.addPlace(cmd, p)
	return o
}

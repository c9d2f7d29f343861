package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// doctorOptions are what `brim doctor` was asked for.
type doctorOptions struct {
	site       func(context.Context, *process) (*site, error)
	output     *string
	thresholds string        // file; empty: those of the configuration, or built in
	over       time.Duration // to the second look; 0: there is none
	watch      bool
	interval   time.Duration // between two looks of a watch
	looks      int           // of a watch; 0: until it is stopped
	disk       string        // folder of MongoDB's files; empty: MongoDB tells
	given      func(flag string) bool
	where      func() string // the flags that name the site, for commands that are printed
}

func newDoctorFlags(cmd *cobra.Command) *doctorOptions {
	flags := cmd.Flags()
	flags.SortFlags = false
	o := &doctorOptions{given: flags.Changed, over: 2 * time.Second}
	o.site = siteFlags(flags)
	o.where = func() string { return siteWords(flags) }
	o.output = outputFlag(cmd, "text", "json")
	add := flagAdder(flags)
	add("over", "2s", "DURATION", "time between two samples, from which rates are worked out; 0: take one sample", config.Duration(&o.over, time.Second, config.Day, true))
	flags.BoolVar(&o.watch, "watch", false, "look again and again, with what changed in between")
	add("interval", "5s", "DURATION", "of --watch: time between two looks", config.Duration(&o.interval, time.Second, time.Hour, false))
	add("looks", "0", "N", "of --watch: end after so many looks; 0: with Ctrl-C", config.Count(&o.looks, 0, 1_000_000))
	add("thresholds", "", "FILE", "YAML with thresholds of your own, like disk_busy: {degrading: 60, bottleneck: 90}", config.Text(&o.thresholds, daemon.CheckThresholds))
	add("disk", "", "DIR", "folder of MongoDB's files on this machine, if MongoDB cannot tell", config.Text(&o.disk, checkFolder))
	for _, name := range trendFlags {
		flags.String(name, "", "")
		_ = flags.MarkHidden(name) // it was just added
	}
	return o
}

// trendFlags are gone. Using one is answered with what replaces them.
var trendFlags = []string{"trend", "prometheus", "prometheus-token-file", "selector"}

// check refuses flags that make no sense together.
func (o *doctorOptions) check() error {
	if i := slices.IndexFunc(trendFlags, o.given); i >= 0 {
		return fmt.Errorf("--%s was removed: trends are alert rules now; load deploy/prometheus/alerts.yml into Prometheus, whose rules BrimDiskFullSoon, BrimDiskBusySoon, BrimProcessorBusySoon and BrimWritesSlowSoon look two weeks ahead", trendFlags[i])
	}
	switch {
	case o.watch && o.given("over"):
		return errors.New("--over and --watch exclude each other: a watch looks again each --interval")
	case !o.watch && (o.given("interval") || o.given("looks")):
		return errors.New("--interval and --looks belong to --watch, which is missing")
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/doctor"
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
	o := &doctorOptions{given: flags.Changed}
	o.site = siteFlags(flags)
	o.where = func() string { return siteWords(flags) }
	o.output = outputFlag(cmd, "text", "json")
	add := flagAdder(flags)
	add("over", "0", "DURATION", "look again after this long, so that rates are known; 0: look once", duration(&o.over, time.Second, day, true))
	flags.BoolVar(&o.watch, "watch", false, "look again and again, with what changed in between")
	add("interval", "5s", "DURATION", "of --watch: time between two looks", duration(&o.interval, time.Second, time.Hour, false))
	add("looks", "0", "N", "of --watch: end after so many looks; 0: with Ctrl-C", count(&o.looks, 0, 1_000_000))
	add("thresholds", "", "FILE", "YAML with thresholds of your own, like disk_busy: {degrading: 60, bottleneck: 90}", text(&o.thresholds, checkThresholds))
	add("disk", "", "DIR", "folder of MongoDB's files on this machine, if MongoDB cannot tell", text(&o.disk, checkFolder))
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
	case o.watch && o.over > 0:
		return errors.New("--over and --watch exclude each other: a watch looks again each --interval")
	case !o.watch && (o.given("interval") || o.given("looks")):
		return errors.New("--interval and --looks belong to --watch, which is missing")
	}
	return nil
}

// checkThresholds refuses a file that cannot be used.
func checkThresholds(path string) error {
	_, err := loadThresholds(path)
	return err
}

// loadThresholds returns nil where there is no file: the built-in ones.
func loadThresholds(path string) (*doctor.Thresholds, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil is the built-in ones
	}
	return doctor.LoadThresholds(path)
}

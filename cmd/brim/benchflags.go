package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
)

// benchOptions are the flags of `brim bench NAME` and `brim bench all`.
type benchOptions struct {
	config bench.Config
	report string // file
	output *string
}

// newBenchFlags adds the flags that all experiments have.
func newBenchFlags(cmd *cobra.Command, p *process) *benchOptions {
	o := &benchOptions{}
	c := &o.config
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&c.Quick, "quick", false, "fewer cells, smaller")
	repeats, seed := "3", "1"
	_ = count(&c.Repeats, 1, 100)(repeats)
	c.Seed = 1
	flags.Var(&flagText{text: &repeats, kind: "N", set: func(s string) error {
		repeats = s
		return count(&c.Repeats, 1, 100)(s)
	}}, "repeats", "how often each measurement is made; its median counts")
	flags.Var(&flagText{text: &seed, kind: "N", set: func(s string) (err error) {
		seed = s
		if c.Seed, err = strconv.ParseUint(s, 10, 64); err != nil || c.Seed == 0 {
			return fmt.Errorf("%q is not a whole number from 1 to %d", s, uint64(math.MaxUint64))
		}
		return nil
	}}, "seed", "the same seed makes the same readings")
	o.output = outputFlag(cmd, "text", "json")
	flags.StringVar(&o.report, "report", "", "write a page with plots to `FILE`")
	var uri string
	flags.Var(&flagText{text: &uri, kind: "URI", set: text(&c.URI, checkOwnURI)}, "mongo-uri",
		"MongoDB to measure instead of a mongod of its own, in a scratch database that is dropped in the end")
	c.MongodBin = lookupEnv(p.env, "BRIM_MONGOD_BIN")
	flags.StringVar(&c.MongodBin, "mongod-bin", c.MongodBin, "mongod to run, a `FILE`; empty: the one on PATH, or an installed one (BRIM_MONGOD_BIN)")
	flags.StringVar(&c.Dir, "scratch-dir", "", "`DIR` in which the scratch folder is made; empty: the system's")
	return o
}

// addCells adds the choice of an experiment's parts.
func (o *benchOptions) addCells(cmd *cobra.Command, e *bench.Experiment) {
	names := make([]string, len(e.Cells))
	for i, c := range e.Cells {
		names[i] = c.Name
	}
	var given string
	cmd.Flags().Var(&flagText{text: &given, kind: "NAME,…", set: func(s string) error {
		given = s
		for name := range strings.SplitSeq(s, ",") {
			if !slices.Contains(names, name) {
				return fmt.Errorf("%q is no cell of %s%s; allowed are %s", name, e.Name, didYouMean("", name, names), strings.Join(names, ", "))
			}
			o.config.Cells = append(o.config.Cells, name)
		}
		return nil
	}}, "cells", "parts to run")
}

// checkOwnURI refuses what is no MongoDB, and an empty one: whoever gives the
// flag means a MongoDB of his own.
func checkOwnURI(uri string) error {
	if uri == "" {
		return errors.New("it must not be empty; leave it out for a mongod of its own")
	}
	return checkURI(uri)
}

// lookupEnv returns the value of a variable; empty if it is not set.
func lookupEnv(env []string, name string) string {
	for _, pair := range env {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			return value
		}
	}
	return ""
}

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// benchOptions are the flags of `brim bench NAME` and `brim bench all`.
type benchOptions struct {
	config bench.Config
	report string // file
	output *string
}

// newBenchFlags adds the flags that all experiments have. Each is checked as it is
// read.
func newBenchFlags(cmd *cobra.Command, p *process) *benchOptions {
	o := &benchOptions{}
	c := &o.config
	c.Repeats, c.Seed = bench.DefaultRepeats, 1
	flags := cmd.Flags()
	flags.SortFlags = false
	add := flagAdder(flags)
	flags.BoolVar(&c.Quick, "quick", false, "fewer cells, smaller; what is less is said")
	add("repeats", strconv.Itoa(c.Repeats), "N", "of each measurement; the median counts, and least and greatest are shown", config.Count(&c.Repeats, 1, bench.MaxRepeats))
	add("seed", "1", "N", "the same seed makes the same readings", seed(&c.Seed))
	o.output = outputFlag(cmd, "text", "json")
	add("report", "", "FILE", "write a page with plots", config.Text(&o.report, daemon.NotEmpty))
	o.addPlace(cmd, p)
	return o
}

// addPlace adds the flags that say where is measured.
func (o *benchOptions) addPlace(cmd *cobra.Command, p *process) {
	c := &o.config
	c.MongodBin = config.LookupEnv(p.env, "BRIM_MONGOD_BIN")
	add := flagAdder(cmd.Flags())
	add("mongo-uri", "", "URI", "measure this MongoDB, in a scratch database that is dropped in the end. Only this flag says so, not BRIM_MONGO_URI: nothing is written by accident to what a daemon uses", config.Text(&c.URI, checkOwnURI))
	add(daemon.UriFileSetting, "", "FILE", "the same by a file that holds the URI, which has no place in a list of processes if it has a password", func(path string) error {
		uri, err := config.ReadURIFile(path)
		c.URI = uri
		return err
	})
	cmd.Flags().StringVar(&c.MongodBin, "mongod-bin", c.MongodBin, "mongod to run, a `FILE`; empty: the one on PATH, or an installed one (BRIM_MONGOD_BIN)")
	add("scratch-dir", "", "DIR", "where the scratch folder is made, on the disk that is to be measured; empty: the system's", config.Text(&c.Dir, checkFolder))
}

// addCells adds the choice of an experiment's parts.
func (o *benchOptions) addCells(cmd *cobra.Command, e *bench.Experiment) {
	names := cellNames(e)
	flagAdder(cmd.Flags())("cells", "", "A,B", "run these parts alone, of "+strings.Join(names, ", "), func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains(names, name) {
				return fmt.Errorf("%q is no cell of %s%s; allowed are %s", name, e.Name, config.DidYouMean("", name, names), strings.Join(names, ", "))
			}
			if !slices.Contains(o.config.Cells, name) {
				o.config.Cells = append(o.config.Cells, name)
			}
		}
		return nil
	})
}

// checkFolder refuses what is no folder.
func checkFolder(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look for the folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%q is not a folder", path)
	}
	return nil
}

// checkOwnURI refuses what is no MongoDB, and an empty one: the flag
// is for a MongoDB of your own.
func checkOwnURI(uri string) error {
	if uri == "" {
		return errors.New("it must not be empty; leave it out for a mongod of its own")
	}
	return config.CheckURI(uri)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/shard"
)

// shardInit are the flags of `brim shard init`.
type shardInit struct {
	*shardSite
	options shard.Options
	ids     string // file of sensor ids, one a line; -: stdin
	prefix  string // of numbered sensor ids
	digits  string
	dryRun  bool
}

// newShardInit returns `brim shard init`:
//
//	flags ─▶ site ─▶ Look ─▶ Plan of each stream ─┬─ --dry-run: the steps, for mongosh
//	                                              └─ Run: step by step, told on stderr
func newShardInit(p *process) *cobra.Command {
	o := &shardInit{digits: "decimal"}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make and spread the collections of streams, best before their first reading",
		Long: "Make the collections of all streams, or of one, on a sharded cluster and spread them over its shards.\n" +
			"It talks to a router (mongos). What is done already is left alone, so it can be run again.\n\n" +
			"By hash, which is the default, sensors are spread evenly whatever their ids are. By range they lie in\n" +
			"the order of their ids, which zones need; chunks then begin at points: of a list of ids (--sensors),\n" +
			"behind a prefix that numbers follow (--sensors-prefix), or of a sample where there are readings.\n\n" +
			"The key is made of _id.s, the sensor: then all parts of a bucket lie on one shard, and _id is unique\n" +
			"in the cluster, which is what keeps a reading from being stored twice.\n\n" +
			"Brim's own tests have no mongos: they hold the commands against a server that answers as MongoDB's\n" +
			"documentation says. Look at the steps with --dry-run first.",
		Example: "  brim shard init --mongo-uri mongodb://router1,router2/ --dry-run\n" +
			"  brim shard init --config brim.yaml --chunks 64\n" +
			"  brim shard init --stream machines --by range --zone north=shard01,shard02:n- --zone south=shard03:s-\n" +
			"  brim shard init --by range --sensors ids.txt --chunks 48",
		Args: cobra.NoArgs,
	}
	o.addFlags(cmd)
	o.shardSite = shardFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.findPoints(p); err != nil {
			return config.Usage(err)
		}
		return stoppable(cmd.Context(), p.stderr, func(ctx context.Context) error { return o.run(ctx, p) })
	}
	return cmd
}

func (o *shardInit) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	add := func(name, initial, kind, usage string, set func(string) error) {
		text := initial
		flags.Var(&flagText{text: &text, kind: kind, set: keep(&text, set)}, name, usage)
	}
	names := make([]string, 0, len(shard.Bys()))
	for _, by := range shard.Bys() {
		names = append(names, string(by))
	}
	add("by", "", strings.Join(names, "|"), "how sensors are spread (default: as they are already; by range with --zone, --sensors or --sensors-prefix; else by hash)",
		config.Choice(&o.options.By, shard.Bys()...))
	add("chunks", "0", "N", "chunks to begin with, of all shards together; 0: MongoDB's own choice", config.Count(&o.options.Chunks, 0, shard.MaxChunks))
	add("sensors", "", "FILE", "sensor ids, one a line, that chunks are cut by; - is stdin", config.Text(&o.ids, daemon.NotEmpty))
	add("sensors-prefix", "", "PREFIX", "what numbered sensor ids begin with, that chunks are cut by", config.Text(&o.prefix, daemon.NotEmpty))
	add("digits", o.digits, "decimal|hex", "the digits behind --sensors-prefix, all as frequent", config.Choice(&o.digits, "decimal", "hex"))
	add("zone", "", "NAME=SHARD,SHARD:PREFIX", "shards for the sensors whose ids begin with the prefix; may be repeated", func(s string) error {
		z, err := shard.ParseZone(s)
		if err == nil {
			o.options.Zones = append(o.options.Zones, z)
		}
		return err
	})
	flags.BoolVar(&o.options.ExistingData, "existing-data", false, "spread also a collection that has readings; they are moved in the background")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done, as mongosh takes it")
}

// findPoints makes points of what the flags say of ids.
func (o *shardInit) findPoints(p *process) error {
	chunks := o.options.Chunks
	switch {
	case o.ids != "" && o.prefix != "":
		return errors.New("--sensors and --sensors-prefix exclude each other: give one of them")
	case o.ids == "" && o.prefix == "":
		return nil
	case o.options.By == shard.ByHash:
		return errors.New("--sensors and --sensors-prefix say where chunks begin, which a hash does not heed: leave them out, or take --by range")
	case chunks < 2:
		return errors.New("--sensors and --sensors-prefix cut the sensors into --chunks, of which there must be at least 2; two or more for each shard are usual")
	case o.prefix != "":
		digits := shard.Decimal
		if o.digits == "hex" {
			digits = shard.Hex
		}
		o.options.Points = shard.PointsBehind(o.prefix, digits, chunks)
		return nil
	}
	in := p.stdin
	if o.ids != "-" {
		file, err := os.Open(o.ids)
		if err != nil {
			return fmt.Errorf("--sensors: %w", err)
		}
		defer file.Close()
		in = file
	}
	ids, err := shard.ReadIDs(in)
	if err != nil {
		return fmt.Errorf("--sensors: %w", err)
	}
	if o.options.Points = shard.PointsOf(ids, chunks); len(o.options.Points) == 0 {
		return fmt.Errorf("--sensors: %d ids cannot be cut into %d chunks; there must be two that differ", len(ids), chunks)
	}
	return nil
}

// A shardInitResult is what was done, or would be.
type shardInitResult struct {
	Cluster string            `json:"cluster"`
	DryRun  bool              `json:"dry_run"`
	Streams []shardInitStream `json:"streams"`
}

type shardInitStream struct {
	Stream string       `json:"stream"`
	Key    string       `json:"key"`
	Steps  []shard.Step `json:"steps"`
	Notes  []string     `json:"notes"`
}

func (o *shardInit) run(ctx context.Context, p *process) error {
	cluster, streams, connection, err := o.open(ctx, p, "shard init")
	if err != nil {
		return err
	}
	return errors.Join(o.carryOut(ctx, p, cluster, streams), within(connection.Close))
}

// carryOut plans all streams before it changes anything.
func (o *shardInit) carryOut(ctx context.Context, p *process, cluster *shard.Cluster, streams []shard.Stream) error {
	result := shardInitResult{Cluster: cluster.Describe(), DryRun: o.dryRun}
	plans := make([]*shard.Plan, len(streams))
	for i, one := range streams {
		plan, err := cluster.Plan(ctx, one, o.options)
		if err != nil {
			return err
		}
		plans[i] = plan
		if i > 0 && len(plan.Steps) > 0 { // those of the cluster and the database are the first one's
			plan.Steps = withoutRepeats(plan.Steps, plans[:i])
		}
		result.Streams = append(result.Streams, shardInitStream{
			Stream: one.Name, Key: plan.Key.String(), Steps: append([]shard.Step{}, plan.Steps...), Notes: append([]string{}, plan.Notes...),
		})
	}
	if !o.dryRun {
		for _, plan := range plans {
			err := plan.Run(ctx, func(done, all int, s shard.Step) {
				_, _ = fmt.Fprintf(p.stderr, "%s  %d/%d  %s: %s\n", plan.Stream, done+1, all, s.Command[0].Key, s.Why)
			})
			if err != nil {
				return err
			}
		}
	}
	if *o.output == "json" {
		return printJSON(p.stdout, result)
	}
	return result.print(p.stdout)
}

// withoutRepeats leaves the steps out that another plan has word by word.
func withoutRepeats(steps []shard.Step, before []*shard.Plan) []shard.Step {
	seen := make(map[string]bool)
	for _, plan := range before {
		for _, s := range plan.Steps {
			seen[s.String()] = true
		}
	}
	var out []shard.Step
	for _, s := range steps {
		if !seen[s.String()] {
			out = append(out, s)
		}
	}
	return out
}

func (r shardInitResult) print(w io.Writer) error {
	var b strings.Builder
	for _, s := range r.Streams {
		switch {
		case len(s.Steps) == 0:
			fmt.Fprintf(&b, "// stream %s: spread by %s; there is nothing to do\n", s.Stream, s.Key)
		case r.DryRun:
			fmt.Fprintf(&b, "// stream %s: by %s, %d steps\n", s.Stream, s.Key, len(s.Steps))
			for _, step := range s.Steps {
				fmt.Fprintf(&b, "%s\n", step)
			}
		default:
			fmt.Fprintf(&b, "stream %s: spread by %s, %d steps done; `brim shard status` shows how it lies\n", s.Stream, s.Key, len(s.Steps))
		}
		for _, note := range s.Notes {
			fmt.Fprintf(&b, "// note: %s\n", note)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

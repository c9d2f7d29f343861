package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/shard"
)

// A shardReport is the result of `brim shard status`.
type shardReport struct {
	Version  string          `json:"version"`
	Shards   []shard.Shard   `json:"shards"`
	Balancer shard.Balancer  `json:"balancer"`
	Streams  []*shard.Status `json:"streams"`
}

// newShardStatus returns `brim shard status`, which only looks.
func newShardStatus(p *process) *cobra.Command {
	var s *shardSite
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the collections of streams lie on the shards of a cluster",
		Long: "Show, for all streams or for one, by which key the collection is spread and whether that key is right,\n" +
			"how many chunks and how much data each shard has, the zones, and what the balancer does.\n\n" +
			"It exits with 1 if a stream's key is wrong: by such a key a reading can be stored twice, and daemons\n" +
			"refuse the stream.",
		Example: "  brim shard status --mongo-uri mongodb://router1,router2/\n" +
			"  brim shard status --stream machines --output json",
		Args: cobra.NoArgs,
	}
	cmd.Flags().SortFlags = false
	s = shardFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return stoppable(cmd.Context(), io.Discard, func(ctx context.Context) error { return s.status(ctx, p) })
	}
	return cmd
}

func (s *shardSite) status(ctx context.Context, p *process) error {
	cluster, streams, connection, err := s.open(ctx, p, "shard status")
	if err != nil {
		return err
	}
	report, err := lookAtShards(ctx, cluster, streams)
	err = errors.Join(err, within(connection.Close))
	if err != nil {
		return err
	}
	if *s.output == "json" {
		err = printJSON(p.stdout, report)
	} else {
		err = report.print(p.stdout)
	}
	for _, one := range report.Streams {
		if one.Verdict == shard.Wrong {
			return errors.Join(err, verdict(exitFailed))
		}
	}
	return err
}

func lookAtShards(ctx context.Context, cluster *shard.Cluster, streams []shard.Stream) (*shardReport, error) {
	r := &shardReport{Version: cluster.Version, Shards: cluster.Shards}
	var err error
	if r.Balancer, err = cluster.Balancer(ctx); err != nil {
		return nil, err
	}
	for _, one := range streams {
		status, err := cluster.Status(ctx, one)
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", one.Name, err)
		}
		r.Streams = append(r.Streams, status)
	}
	return r, nil
}

func (r *shardReport) print(w io.Writer) error {
	var b strings.Builder
	state := "is idle"
	switch {
	case r.Balancer.Mode == "off":
		state = "is off: data that is uneven stays so; in mongosh: sh.startBalancer()"
	case r.Balancer.Running:
		state = "is in a round"
	}
	fmt.Fprintf(&b, "MongoDB %s, %d shards; the balancer %s\n", r.Version, len(r.Shards), state)
	for _, s := range r.Streams {
		printShardStatus(&b, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printShardStatus(b *strings.Builder, s *shard.Status) {
	fmt.Fprintf(b, "\nstream %s (%s): %s", s.Stream, s.Storage, s.Verdict)
	if s.KeyText != "" {
		fmt.Fprintf(b, ", by %s", s.KeyText)
	}
	fmt.Fprintf(b, "\n  %s\n", s.Why)
	if len(s.Shards) > 0 {
		table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "  shard\tchunks\tdocuments\tdata\ton disk\tshare") // a Builder takes all
		var all int64
		for _, part := range s.Shards {
			all += part.Bytes
		}
		for _, part := range s.Shards {
			share := "–"
			if all > 0 {
				share = fmt.Sprintf("%.1f %%", 100*float64(part.Bytes)/float64(all))
			}
			_, _ = fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\t%s\n", printable(part.Shard), part.Chunks, part.Documents, roundSize(part.Bytes), roundSize(part.Storage), share)
		}
		_ = table.Flush() // into the Builder
	}
	if s.Imbalance > 0 {
		fmt.Fprintf(b, "  the fullest shard has %.2f times the mean\n", s.Imbalance)
	}
	for _, z := range s.Zones {
		to := "the end"
		if z.To != "" {
			to = z.To
		}
		fmt.Fprintf(b, "  zone %s: sensors from %s up to %s, on %s\n", printable(z.Zone), printable(z.From), printable(to), printable(strings.Join(z.Shards, ", ")))
	}
	for _, note := range s.Notes {
		fmt.Fprintf(b, "  note: %s\n", printable(note))
	}
}

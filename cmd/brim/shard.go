package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/shard"
	"github.com/brim-telemetry/brim/internal/store"
)

// newShard returns `brim shard`, for streams on a sharded cluster:
//
//	flags ─▶ site ─▶ a router (mongos) ─┬─ init ───▶ plan ─▶ shown, or run step by step
//	                                    └─ status ─▶ key, chunks, data and zones of each stream
func newShard(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "Spread the collections of streams over the shards of a cluster, and see how they lie",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newShardInit(p), newShardStatus(p))
	return cmd
}

// shardSite says which cluster and which streams a command is about.
type shardSite struct {
	flags  *pflag.FlagSet
	output *string
	site   func(context.Context, *process) (*site, error)
}

func shardFlags(cmd *cobra.Command) *shardSite {
	s := &shardSite{flags: cmd.Flags()}
	s.output = outputFlag(cmd, "text", "json")
	s.site = siteFlags(s.flags)
	return s
}

// lookPatience is how long a cluster may take to tell of itself.
const lookPatience = time.Minute

// open finds the streams and looks at the cluster. The connection is the
// caller's to close.
func (s *shardSite) open(ctx context.Context, p *process, command string) (*shard.Cluster, []shard.Stream, *store.Connection, error) {
	site, err := s.site(ctx, p)
	if err != nil {
		return nil, nil, nil, err
	}
	streams, err := s.streams(site)
	if err != nil {
		return nil, nil, nil, err
	}
	connection, err := site.connect(command, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	cluster, err := shard.Look(ctx, connection.Database())
	if err != nil {
		return nil, nil, nil, errors.Join(err, within(connection.Close))
	}
	return cluster, streams, connection, nil
}

// streams are the one that is asked for, or all that are stored in MongoDB.
func (s *shardSite) streams(at *site) ([]shard.Stream, error) {
	chosen := at.streams
	if s.flags.Changed("stream") {
		one, err := at.stream()
		if err != nil {
			return nil, err
		}
		if one.Storage == store.Memory {
			return nil, config.Usage(fmt.Errorf("--stream: stream %s is stored in memory; there is nothing of it to spread", one.Name))
		}
		chosen = []daemon.Stream{one}
	}
	var out []shard.Stream
	for _, one := range chosen {
		if one.Storage != store.Memory {
			out = append(out, shard.Stream{Name: one.Name, Storage: one.Storage, Granularity: one.Granularity, Compressor: one.Compressor, Retention: one.Retention})
		}
	}
	if len(out) == 0 {
		return nil, config.Usage(errors.New("all streams are stored in memory; there is nothing to spread"))
	}
	return out, nil
}

// stoppable runs something until the first signal.
func stoppable(ctx context.Context, w io.Writer, run func(context.Context) error) error {
	say := func(os.Signal) { _, _ = fmt.Fprintln(w, "stopping; the same command goes on from here") }
	running, _, release := daemon.OnSignals(ctx, say, func(os.Signal) {})
	defer release()
	return run(running)
}

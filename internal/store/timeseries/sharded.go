package timeseries

import (
	"context"

	"github.com/brim-telemetry/brim/internal/store"
)

// tellSharding says how the collection lies on a sharded cluster. Any shard key
// will do: that a reading is stored once does not rest on unique _ids here. The
// wait before a look does not reach all shards of one.
func (s *Store) tellSharding(ctx context.Context, c store.Collection) error {
	const unauthorized = 13
	sharding, err := c.Sharding(ctx)
	switch {
	case store.HasCode(err, unauthorized):
		s.cfg.Logger.Warn("whether the stream's collection is spread over shards cannot be seen", "stream", s.cfg.Stream, "err", err)
		return nil
	case err != nil:
		return err
	case !sharding.Cluster:
	case !sharding.Sharded():
		s.cfg.Logger.Info("MongoDB is a sharded cluster, and the stream's collection lies on one of its shards alone; `brim shard init` spreads it", "stream", s.cfg.Stream)
	case !sharding.Key.KeepsSensorsTogether():
		s.cfg.Logger.Warn("the stream's shard key scatters the readings of a sensor: all shards are asked for each; `brim shard status` tells more",
			"stream", s.cfg.Stream, "key", sharding.Key.String())
	default:
		s.cfg.Logger.Info("the stream's collection is sharded; after an unknown outcome, a reading that its shard's majority does not show yet may be stored twice",
			"stream", s.cfg.Stream, "key", sharding.Key.String())
	}
	return nil
}

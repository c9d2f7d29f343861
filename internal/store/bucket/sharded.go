package bucket

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// A router sends what names a whole _id to one shard: it takes the fields of the
// shard key from it. From a range of _ids it takes nothing, and asks all shards,
// unless the sensor is named beside it.
//
//	{_id: {s, b, g, p}}                             one shard: updates, fences
//	{_id: {$gte: …, $lt: …}}                        all shards
//	{"_id.s": s, _id: {$gte: …, $lt: …}}            one shard: what is asked of a sensor

// checkSharding refuses a shard key by which readings could be stored twice, and
// remembers whether the collection is sharded.
func (s *Store) checkSharding(ctx context.Context, c store.Collection) error {
	sharding, err := c.Sharding(ctx)
	if err != nil {
		return err
	}
	if err := c.CheckShardKey(sharding); err != nil {
		return err
	}
	s.sharded.Store(sharding.Sharded())
	switch {
	case !sharding.Cluster:
	case !sharding.Sharded():
		s.cfg.Logger.Info("MongoDB is a sharded cluster, and the stream's collection lies on one of its shards alone; `brim shard init` spreads it", "stream", s.cfg.Stream)
	case !sharding.Key.KeepsSensorsTogether():
		s.cfg.Logger.Warn("the stream's shard key scatters the buckets of a sensor: all shards are asked for each; `brim shard status` tells more",
			"stream", s.cfg.Stream, "key", sharding.Key.String())
	default:
		s.cfg.Logger.Info("the stream's collection is sharded", "stream", s.cfg.Stream, "key", sharding.Key.String())
	}
	return nil
}

// ofSensor is a filter of documents of one sensor that a router sends to the
// shards that have them.
func (s *Store) ofSensor(sensor string, filter bson.D) bson.D {
	if !s.sharded.Load() {
		return filter
	}
	return append(bson.D{{Key: store.SensorPath, Value: sensor}}, filter...)
}

// confirm makes what was just seen stored as good as an acknowledged write. On a
// sharded collection it is asked of the shards that were looked at, by updates
// that match nothing: a write elsewhere would not wait for them.
func (s *Store) confirm(ctx context.Context, shares []*batch.Share) error {
	now := s.live.Load()
	if !s.sharded.Load() || now.WriteConcern.Members <= 1 {
		return now.WriteConcern.Confirm(ctx, s.cfg.Database)
	}
	fences := make([]mongo.WriteModel, len(shares))
	for i, share := range shares {
		at, filter := int32(0), []byte{0, 0, 0, 0}
		filter = appendID(filter, share, 0)
		// A predicate that is never true by itself would be all that is left of the
		// filter, and the shard could not be told from it.
		filter = end(bsoncore.AppendStringElement(filter, "full", "never"), at)
		fences[i] = mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "never", Value: true}}}})
	}
	if _, err := now.into.BulkWrite(ctx, fences, options.BulkWrite().SetOrdered(false)); err != nil {
		return fmt.Errorf("wait for the write concern %s: %w", now.WriteConcern, err)
	}
	return nil
}

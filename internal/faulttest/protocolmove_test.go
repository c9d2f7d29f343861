package faulttest_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/maintain"
)

// granularity is one of those that a history has.
func (h *history) granularity() time.Duration {
	all := []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour}
	return all[h.rnd.IntN(len(all))]
}

// move brings what is stored to another granularity, at once: what happens
// between a move's fence and its swap. Requests may be on their way meanwhile.
func (h *history) move() {
	ctx := context.Background()
	regroup, err := maintain.NewRegroup(maintain.RegroupConfig{
		Granularity: h.granularity(), Found: []time.Duration{time.Hour}, MaxReadings: 1 + h.rnd.IntN(largestCap), MaxBytes: 1 << 10, Faults: h.faults,
	})
	require.NoError(h.s.t, err)
	coll := h.s.db.Collection("readings")
	mine := bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: bson.D{{Key: "s", Value: h.sensor}}},
		{Key: "$lt", Value: bson.D{{Key: "s", Value: h.sensor}, {Key: "b", Value: bson.MaxKey{}}}},
	}}}
	cursor, err := coll.Find(ctx, mine, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(h.s.t, err)
	var before []bson.Raw
	require.NoError(h.s.t, cursor.All(ctx, &before))
	after, err := regroup.Reshape(before)
	require.NoError(h.s.t, err)
	require.NoError(h.s.t, regroup.Verify(before, after))
	_, err = coll.DeleteMany(ctx, mine)
	require.NoError(h.s.t, err)
	if len(after) > 0 {
		_, err = coll.InsertMany(ctx, after)
		require.NoError(h.s.t, err)
	}
}

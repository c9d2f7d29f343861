package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var viewStart = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// fillBuckets writes five-minute buckets of four readings, the last two with their
// own tags.
func fillBuckets(t *testing.T, db *mongo.Database, sensors, buckets int) {
	t.Helper()
	var docs []any
	for s := range sensors {
		for b := range buckets {
			start := viewStart.Add(time.Duration(b) * 5 * time.Minute)
			docs = append(docs, bson.D{
				{Key: "_id", Value: bson.D{{Key: "s", Value: fmt.Sprintf("s-%d", s)}, {Key: "b", Value: start}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}}},
				{Key: "sensorId", Value: fmt.Sprintf("s-%d", s)}, {Key: "bucketStart", Value: start}, {Key: "count", Value: 4},
				{Key: "tags", Value: bson.D{{Key: "site", Value: "north"}}},
				{Key: "measurements", Value: bson.A{
					bson.D{{Key: "ts", Value: start}, {Key: "t", Value: 1.5}},
					bson.D{{Key: "ts", Value: start.Add(time.Minute)}, {Key: "sensorId", Value: "a field"}, {Key: "t", Value: 2.5}},
					bson.D{{Key: "ts", Value: start.Add(2 * time.Minute)}, {Key: "t", Value: 3.5}, {Key: "sensor", Value: bson.D{{Key: "tags", Value: bson.D{{Key: "site", Value: "south"}}}}}},
					bson.D{{Key: "ts", Value: start.Add(3 * time.Minute)}, {Key: "t", Value: 4.5}, {Key: "sensor", Value: bson.D{}}},
				}},
			})
		}
	}
	_, err := db.Collection("made").InsertMany(t.Context(), docs)
	require.NoError(t, err)
}

func TestViewShowsOneReadingADocument(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	fillBuckets(t, db, 2, 3)
	_, err := db.Collection("made").InsertOne(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "s", Value: "s-0"}}}, {Key: "migrated", Value: true}})
	require.NoError(t, err)
	view := View{Database: db, Stream: "made"}
	for range 2 {
		foreign, err := view.Ensure(t.Context())
		require.NoError(t, err)
		assert.False(t, foreign)
	}
	cursor, err := db.Collection("made.flat").Find(t.Context(), bson.D{{Key: "sensorId", Value: "s-1"}})
	require.NoError(t, err)
	var got []bson.M
	require.NoError(t, cursor.All(t.Context(), &got))
	require.Len(t, got, 12, "and a tombstone shows nothing")
	assert.Equal(t, bson.M{
		"_id":      bson.D{{Key: "s", Value: "s-1"}, {Key: "b", Value: bson.NewDateTimeFromTime(viewStart)}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}},
		"sensorId": "s-1", "ts": bson.NewDateTimeFromTime(viewStart.Add(time.Minute)), "tags": bson.D{{Key: "site", Value: "north"}},
		"fields": bson.D{{Key: "sensorId", Value: "a field"}, {Key: "t", Value: 2.5}},
	}, got[1])
	assert.Equal(t, bson.D{{Key: "site", Value: "south"}}, got[2]["tags"])
	assert.NotContains(t, got[3], "tags")
	for i, v := range []float64{3.5, 4.5} {
		assert.Equal(t, bson.D{{Key: "t", Value: v}}, got[2+i]["fields"])
	}
}

// TestRangeOfTheViewIsAnIndexScan, which the documented queries rely on.
func TestRangeOfTheViewIsAnIndexScan(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	fillBuckets(t, db, 20, 50)
	_, err := View{Database: db, Stream: "made", Blocks: true}.Ensure(t.Context())
	require.NoError(t, err)
	within := bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: bson.D{{Key: "s", Value: "s-7"}, {Key: "b", Value: viewStart.Add(time.Hour)}}},
		{Key: "$lt", Value: bson.D{{Key: "s", Value: "s-7"}, {Key: "b", Value: viewStart.Add(2 * time.Hour)}}},
	}}}
	for name, command := range map[string]bson.D{
		"find": {{Key: "find", Value: "made.flat"}, {Key: "filter", Value: append(within, bson.E{Key: "fields.t", Value: bson.D{{Key: "$gt", Value: 2}}})}},
		"aggregate": {
			{Key: "aggregate", Value: "made.flat"}, {Key: "cursor", Value: bson.D{}},
			{Key: "pipeline", Value: bson.A{
				bson.D{{Key: "$match", Value: within}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$sensorId"}, {Key: "mean", Value: bson.D{{Key: "$avg", Value: "$fields.t"}}}}}},
			}},
		},
	} {
		var plan bson.Raw
		require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "executionStats"}}).Decode(&plan))
		stats := []string{"executionStats", "totalDocsExamined"}
		if _, err := plan.LookupErr(stats...); err != nil {
			stats = append([]string{"stages", "0", "$cursor"}, stats...)
		}
		assert.EqualValues(t, 12, plan.Lookup(stats...).AsInt64(), "%s: of 1,000 documents, those of the hour\n%s", name, plan)
	}
}

func TestForeignViewIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	view := View{Database: db, Stream: "made"}
	look := func() *Info {
		info, err := Collection{Database: db, Name: "made.flat"}.Lookup(t.Context())
		require.NoError(t, err)
		return info
	}
	require.NoError(t, db.CreateView(t.Context(), "made.flat", "made", mongo.Pipeline{}))
	foreign, err := view.Ensure(t.Context())
	require.NoError(t, err)
	assert.True(t, foreign)
	require.NoError(t, view.Remove(t.Context()))
	require.NotNil(t, look())
	require.NoError(t, db.Collection("made.flat").Drop(t.Context()))
	require.NoError(t, view.Remove(t.Context()), "there is none")

	// A view with an outdated pipeline is created again.
	require.NoError(t, db.CreateView(t.Context(), "made.flat", "made", viewPipeline(false)[:2]))
	foreign, err = view.Ensure(t.Context())
	require.NoError(t, err)
	assert.False(t, foreign)
	assert.True(t, look().hasPipeline(viewPipeline(false)))
	require.NoError(t, view.Remove(t.Context()))
	assert.Nil(t, look())
}

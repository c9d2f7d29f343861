package lane

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// bucketLane is a lane before a store of buckets of at most 100 readings.
func bucketLane(t *testing.T, db *mongo.Database) (*Lane, *bucket.Store, *mongo.Collection) {
	t.Helper()
	st, err := bucket.New(bucket.Config{
		Database: db, Stream: "readings", Granularity: 5 * time.Minute, MaxReadings: 100, MaxBytes: 1 << 20,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, st.Prepare(t.Context()))
	c := config(t, st, 20)
	c.Interval = time.Second
	return New(c), st, db.Collection("readings")
}

func TestCopiesAreBucketsThatCanBeAppendedTo(t *testing.T) {
	t.Parallel()
	l, st, coll := bucketLane(t, mongodtest.Database(t))
	model, err := l.Model(t.Context(), coll, Portion{Count: 60})
	require.NoError(t, err)
	n, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n, "the model is taken out")
	created, err := l.Copy(t.Context(), model, []int{0, 3, 19}, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, 3, created)

	_, err = l.Write(t.Context(), []Portion{{0, 60, 2}, {3, 60, 2}, {19, 60, 2}})
	require.NoError(t, err)
	n, err = coll.CountDocuments(t.Context(), bson.D{{Key: "count", Value: 62}, {Key: "_id.p", Value: 0}})
	require.NoError(t, err)
	assert.EqualValues(t, 3, n, "what is appended goes into the copies")
	for _, sensor := range []int{0, 3, 19} {
		k := uint64(0)
		id := l.cfg.Source.ID(sensor)
		for got, err := range st.Readings(t.Context(), telemetry.Query{Sensor: id, From: base.UnixMilli(), To: base.Add(time.Hour).UnixMilli()}) {
			require.NoError(t, err)
			assert.True(t, l.Time(k).Equal(got.Time))
			k++
		}
		assert.EqualValues(t, 62, k, id)
	}
	var document bson.Raw
	require.NoError(t, coll.FindOne(t.Context(), bson.D{{Key: "sensorId", Value: "s-20"}}).Decode(&document))
	writes, err := document.Lookup("w").Document().Elements()
	require.NoError(t, err)
	assert.Len(t, writes, 1, "the lane that made the model is the one that appends")
	assert.Positive(t, model.Bytes())
}

func TestAModelIsOneBucket(t *testing.T) {
	t.Parallel()
	for what, p := range map[string]Portion{
		"two windows": {0, 290, 20},
		"two parts":   {0, 0, 101},
	} {
		l, _, coll := bucketLane(t, mongodtest.Database(t))
		_, err := l.Model(t.Context(), coll, p)
		assert.ErrorContains(t, err, "not all of one window and part", what)
	}
}

func TestCopyingEndsInTime(t *testing.T) {
	t.Parallel()
	l, _, coll := bucketLane(t, mongodtest.Database(t))
	model, err := l.Model(t.Context(), coll, Portion{Count: 1})
	require.NoError(t, err)
	created, err := l.Copy(t.Context(), model, []int{1, 2}, time.Now())
	require.NoError(t, err)
	assert.Zero(t, created)
}

package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestStrangersAreStreamsThatNobodyConfigures(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	series := func(name, meta string) {
		require.NoError(t, db.CreateCollection(t.Context(), name,
			options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts").SetMetaField(meta))))
	}
	for _, stream := range []string{"readings", "gone"} {
		_, err := View{Database: db, Stream: stream}.Ensure(t.Context())
		require.NoError(t, err)
	}
	series("vib", "sensor")
	series("left", "sensor")
	series("theirs", "meta")
	require.NoError(t, db.CreateCollection(t.Context(), "orders"))
	require.NoError(t, db.CreateView(t.Context(), "orders.flat", "orders", mongo.Pipeline{}))
	got, err := Strangers(t.Context(), db, []string{"readings", "vib"})
	require.NoError(t, err)
	assert.Equal(t, []string{"gone", "left"}, got)
}

package maintain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestDocumentsAreCheckedBeforeTheSwitch: one that cannot be filled in would
// otherwise be found when the stream's collection is a new, empty one already.
func TestDocumentsAreCheckedBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	at := bson.NewDateTimeFromTime(storetest.Base)
	id := bson.D{{Key: "s", Value: "z"}, {Key: "b", Value: at}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}}
	for name, tt := range map[string]struct {
		document bson.D
		wants    string
	}{
		"a reading as of a time-series collection": {
			bson.D{{Key: "_id", Value: bson.ObjectID{1}}, {Key: "ts", Value: at}, {Key: "sensor", Value: bson.D{{Key: "id", Value: "a"}}}, {Key: "v", Value: 1.5}},
			`document {"$oid":"010000000000000000000000"} is none of a bucket stream`,
		},
		"a bucket without measurements": {bson.D{{Key: "_id", Value: id}}, "has no array of measurements"},
		"a measurement outside its window": {
			bson.D{{Key: "_id", Value: id}, {Key: "measurements", Value: bson.A{bson.D{{Key: "ts", Value: at + 300_000}}}}},
			"measurement 0 is outside its window",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			want := fillBuckets(t, db, 20)
			coll := db.Collection(storetest.Stream)
			_, err := coll.InsertOne(t.Context(), tt.document)
			require.NoError(t, err)
			cfg := storageChange(db, store.TimeSeries)
			_, err = ChangeStorage(t.Context(), cfg)
			require.ErrorContains(t, err, tt.wants)
			require.ErrorContains(t, err, "nothing was changed")
			assert.Empty(t, cfg.Holder.(*testHolder).asked, "no daemon was held")

			_, err = coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: tt.document[0].Value}})
			require.NoError(t, err)
			assert.Equal(t, want, contentOf(t, bucketStore(t, db)), "all is readable where it was")
			r, err := ChangeStorage(t.Context(), cfg)
			require.NoError(t, err)
			assert.EqualValues(t, 60, r.Readings)
		})
	}
}

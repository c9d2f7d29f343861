package mongodtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestMain(m *testing.M) { Main(m, NoLeaks()) }

func TestDatabaseIsEmptyAndTakesMajorityWrites(t *testing.T) {
	t.Parallel()
	db := Database(t)
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)

	_, err = db.Collection("readings").InsertOne(t.Context(), bson.D{{Key: "t", Value: 23.5}})
	require.NoError(t, err)
	count, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, count)
}

package bench

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestDatabaseWithDataIsRefused(t *testing.T) {
	t.Parallel()
	theirs := mongodtest.Database(t)
	_, err := theirs.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	_, err = Run(t.Context(), trial(func(ctx context.Context, lab *Lab) error {
		lab.Start(ctx, Setting{})
		return nil
	}), Config{Dir: t.TempDir(), URI: mongodtest.URI(t), Database: theirs.Name()})
	require.ErrorIs(t, err, errTaken)
	require.ErrorContains(t, err, theirs.Name())
	n, err := theirs.Collection("orders").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
}

// TestDatabaseNamedByTheURIIsNotUsed uses a URI that names a database, as applications do.
func TestDatabaseNamedByTheURIIsNotUsed(t *testing.T) {
	t.Parallel()
	theirs := mongodtest.Database(t)
	_, err := theirs.Collection("orders").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	_, err = Run(t.Context(), trial(func(ctx context.Context, lab *Lab) error {
		m := lab.Start(ctx, Setting{})
		assert.NotEqual(t, theirs.Name(), m.Name)
		m.Drop(ctx)
		return nil
	}), Config{Dir: t.TempDir(), URI: withDatabase(t, mongodtest.URI(t), theirs.Name())})
	require.NoError(t, err)
	n, err := theirs.Collection("orders").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
}

// TestLateWriteDoesNotRecreateTheDatabase writes until the database is gone and once more, as a
// server does with the rest of an interrupted command.
func TestLateWriteDoesNotRecreateTheDatabase(t *testing.T) {
	t.Parallel()
	client := mongodtest.Database(t).Client()
	name, late := "", make(chan error, 1)
	_, err := Run(t.Context(), trial(func(ctx context.Context, lab *Lab) error {
		m := lab.Start(ctx, Setting{})
		name = m.Name
		db := client.Database(name)
		if _, err := m.Database().Collection("first").InsertOne(ctx, bson.D{}); err != nil {
			return err
		}
		go func() { late <- writeAfterDrop(context.WithoutCancel(ctx), db) }()
		return m.Close()
	}), Config{Dir: t.TempDir(), URI: mongodtest.URI(t)})
	require.NoError(t, err)
	require.NoError(t, <-late)
	names, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
	require.NoError(t, err)
	assert.Empty(t, names)
}

func writeAfterDrop(ctx context.Context, db *mongo.Database) error {
	for {
		err := db.Collection("first").FindOne(ctx, bson.D{}).Err()
		if err == nil {
			continue
		}
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		// The insert is refused while the database is being dropped.
		if _, err := db.Collection("late").InsertOne(ctx, bson.D{}); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// withDatabase returns a URI that names a database.
func withDatabase(t *testing.T, uri, name string) string {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

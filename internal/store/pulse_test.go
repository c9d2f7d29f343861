package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestOneSlowPingIsNoSilentServer: a host without a free CPU holds up one, and a
// server that has stopped answers none.
func TestOneSlowPingIsNoSilentServer(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	client := mongodtest.DatabaseAt(t, server.URI()).Client()
	blocked := func(mode any) {
		require.NoError(t, client.Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"ping"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 3_000}}},
		}).Err())
	}
	t.Cleanup(func() { blocked("off") })
	blocked(bson.D{{Key: "times", Value: 1}})
	took, err := Ping(t.Context(), client)
	require.NoError(t, err)
	assert.Less(t, took, PingTimeout)

	blocked("alwaysOn")
	_, err = Ping(t.Context(), client)
	assert.True(t, mongo.IsTimeout(err), err)
}

// TestAServerWhoseConnectionsAreAllInUseAnswers: slow queries must not end
// themselves and all others.
func TestAServerWhoseConnectionsAreAllInUseAnswers(t *testing.T) {
	t.Parallel()
	c := dial(t, mongodtest.Start(t, mongod.Config{}).URI()+"&maxPoolSize=1", "brim")
	admin := c.AsideDatabase().Client().Database("admin")
	blocked := func(mode string) error {
		return admin.RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "waitInFindBeforeMakingBatch"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "nss", Value: "brim.c"}}},
		}).Err()
	}
	_, err := c.AsideDatabase().Collection("c").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NoError(t, blocked("alwaysOn"))
	up := c.Up()
	var query sync.WaitGroup
	query.Go(func() { assert.NoError(t, c.Database().Collection("c").FindOne(up, bson.D{}).Err()) })
	defer query.Wait()
	defer func() { assert.NoError(t, blocked("off")) }()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return c.Client().Database("brim").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err() != nil
	}, 20*time.Second, 10*time.Millisecond, "the connection is in use")

	c.noteReply(t.Context())
	assert.NoError(t, c.Available())
	assert.NoError(t, up.Err(), "the query goes on")
}

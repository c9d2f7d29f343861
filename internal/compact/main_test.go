package compact

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // most tests wait for a checkpoint, or watch a server
	mongodtest.Main(m)
}

const (
	testCollection = "readings"
	testDocuments  = 1600
	testBytes      = 16 << 10 // of each: a page holds a few
)

// filled is a collection of some 25 MB from which every fourth document was
// deleted, and whose free space is known to be free.
//
// The members named besides have it all in their files before the deletion: what
// was never written leaves nothing free.
func filled(t *testing.T, uri string, members ...*mongo.Client) *mongo.Database {
	t.Helper()
	db := mongodtest.DatabaseAt(t, uri)
	coll := db.Collection(testCollection, options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: max(1, len(members))}))
	random := rand.NewChaCha8([32]byte{7})
	var batch []any
	for i := range testDocuments {
		payload := make([]byte, testBytes)
		_, _ = random.Read(payload)
		// The order of the keys is that of neither time nor deletion.
		batch = append(batch, bson.D{{Key: "_id", Value: fmt.Sprintf("%016x", random.Uint64())}, {Key: "n", Value: i}, {Key: "b", Value: payload}})
		if len(batch) == 400 {
			_, err := coll.InsertMany(t.Context(), batch)
			require.NoError(t, err)
			batch = batch[:0]
		}
	}
	for _, client := range append(members, db.Client()) {
		checkpoint(t, client.Database(db.Name()))
	}
	_, err := coll.DeleteMany(t.Context(), bson.D{{Key: "n", Value: bson.D{{Key: "$mod", Value: bson.A{4, 0}}}}})
	require.NoError(t, err)
	return db
}

// awaitFree waits until what was deleted is free on a server, and no more becomes
// free: when the oldest moment of which it keeps history has passed, a checkpoint
// frees it.
func awaitFree(t *testing.T, db *mongo.Database, server *mongo.Client) {
	t.Helper()
	const patience = 90 * time.Second
	last := 0.0
	require.Eventually(t, func() bool {
		_, err := db.Collection("other").InsertOne(t.Context(), bson.D{})
		require.NoError(t, err)
		checkpoint(t, server.Database(db.Name()))
		var stats struct {
			Free float64 `bson:"freeStorageSize"`
		}
		err = server.Database(db.Name()).RunCommand(t.Context(), bson.D{{Key: "collStats", Value: testCollection}}).Decode(&stats)
		settled := stats.Free == last
		last = stats.Free
		return err == nil && settled && last > testDocuments/4*testBytes*0.8
	}, patience, 100*time.Millisecond)
}

func checkpoint(t *testing.T, db *mongo.Database) {
	t.Helper()
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}}).Err())
}

func directly(t *testing.T, host string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + host + "/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(soon(t)) })
	return client
}

// compactor is one of the test's collection, for which little is enough.
func compactor(t *testing.T, db *mongo.Database, uri string, change func(*Config)) *Compactor {
	t.Helper()
	config := Config{
		Client: db.Client(), URI: uri, Database: db.Name(), Collection: testCollection, FreeAtLeast: 0.05, LeastBytes: 1 << 20, Passes: 4, Progress: func(Progress) {},
	}
	if change != nil {
		change(&config)
	}
	c := New(config)
	c.measure = time.Second
	t.Cleanup(func() { _ = c.Close(soon(t)) })
	return c
}

// soon returns a context for disconnecting, which would wait for a server that is down.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func look(t *testing.T, c *Compactor) *Deployment {
	t.Helper()
	d, err := c.Inspect(t.Context())
	require.NoError(t, err)
	return d
}

// heldApp is the name of clients whose compactions never start and have to be killed, see
// holdCompactions.
const heldApp = "held"

var held sync.Once

// holdCompactions sets the fail point for that on the shared server. It stays set, because
// all tests share it.
func holdCompactions(t *testing.T, client *mongo.Client) {
	t.Helper()
	held.Do(func() {
		require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"compact"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 600_000}, {Key: "appName", Value: heldApp},
			}},
		}).Err())
	})
}

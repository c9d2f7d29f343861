package compact

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestCompactionFreesSpaceAndKeepsDocuments(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := filled(t, uri)
	awaitFree(t, db, db.Client())
	var told []Progress
	c := compactor(t, db, uri, func(c *Config) { c.Progress = func(p Progress) { told = append(told, p) } })
	d := look(t, c)
	require.Len(t, d.Members, 1)
	m := d.Members[0]
	assert.Equal(t, RolePrimary, m.Role)
	assert.NotEmpty(t, d.Set)
	assert.NotEmpty(t, m.Version)
	assert.Greater(t, m.Load.Over, time.Duration(0))
	assert.EqualValues(t, testDocuments*3/4, m.Sizes.Documents)
	assert.Positive(t, m.Sizes.IndexFile)

	todo, left, err := c.Choose(d, Selection{Force: true}) // other tests keep the server and the disk busy
	require.NoError(t, err)
	require.Empty(t, left)
	results, left, err := c.Run(t.Context(), t.Context(), d, todo, Selection{Force: true})
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, results, 1)
	r := results[0]
	assert.Greater(t, r.GivenBack, int64(testDocuments/4*testBytes/4))
	assert.Equal(t, r.Before.Files()-r.After.Files(), r.GivenBack)
	assert.Equal(t, m.Sizes.Documents, r.After.Documents)
	assert.Less(t, r.After.FreeShare(), r.Before.FreeShare())
	assert.GreaterOrEqual(t, r.FilesMore, int64(0))
	require.NotEmpty(t, r.Passes)
	assert.LessOrEqual(t, len(r.Passes), 4)
	assert.Positive(t, r.Seconds)
	assert.Nil(t, r.CaughtUp, "there is nobody to catch up with")
	assert.Empty(t, r.Ended)
	require.NotEmpty(t, told)
	assert.Equal(t, m.Host, told[len(told)-1].Member)

	n, err := db.Collection(testCollection).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, testDocuments*3/4, n)
}

func TestPassesContinueWhileTheyFreeSpace(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := filled(t, uri)
	awaitFree(t, db, db.Client())
	c := compactor(t, db, uri, func(c *Config) { c.FreeAtLeast, c.LeastBytes, c.Passes = 0, 0, 100 })
	d := look(t, c)
	results, _, err := c.Run(t.Context(), t.Context(), d, d.Members, Selection{Force: true})
	require.NoError(t, err)
	require.Len(t, results, 1)
	passes := results[0].Passes
	require.Greater(t, len(passes), 1, "every pass is worth it, and only one that gives nothing is the last")
	require.Less(t, len(passes), 100)
	for _, p := range passes[:len(passes)-1] {
		assert.GreaterOrEqual(t, p.GivenBack, int64(minGain))
	}
	assert.Less(t, passes[len(passes)-1].GivenBack, int64(minGain))
}

func TestInterruptKillsOnlyItsOwnOperation(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := filled(t, uri)
	holdCompactions(t, db.Client())
	run := func() (cancel func(), ended chan *Result, c *Compactor) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		c = compactor(t, db, uri, nil)
		c.app = heldApp
		d := look(t, c)
		ended = make(chan *Result, 1)
		go func() {
			defer close(ended)
			results, _, err := c.Run(ctx, t.Context(), d, d.Members, Selection{})
			assert.ErrorIs(t, err, ErrInterrupted)
			if assert.Len(t, results, 1) {
				ended <- results[0]
			}
		}()
		return cancel, ended, c
	}
	seen := compactor(t, db, uri, nil)
	awaitRunning := func(n int) {
		d := look(t, seen)
		require.Eventually(t, func() bool {
			found, err := seen.operations(t.Context(), d.Members[0])
			return err == nil && len(found) == n
		}, time.Minute, 20*time.Millisecond)
	}
	cancelFirst, first, _ := run()
	awaitRunning(1)
	cancelSecond, second, _ := run()
	awaitRunning(2)

	d := look(t, seen)
	assert.Contains(t, d.Members[0].Running, "has been compacting it for")
	todo, left, err := seen.Choose(d, Selection{Force: true})
	require.NoError(t, err)
	assert.Empty(t, todo)
	require.Len(t, left, 1)
	assert.Equal(t, Running, left[0].Kind)

	cancelFirst()
	if r := <-first; assert.NotNil(t, r) {
		assert.Equal(t, endedKilled, r.Ended)
	}
	awaitRunning(1)
	cancelSecond()
	if r := <-second; assert.NotNil(t, r) {
		assert.Equal(t, endedKilled, r.Ended)
	}
	awaitRunning(0)
}

func TestSecondInterruptWaitsForNothing(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := filled(t, uri)
	holdCompactions(t, db.Client())
	ctx, cancel := context.WithCancel(t.Context())
	hard, cancelHard := context.WithCancel(t.Context())
	defer cancelHard()
	c := compactor(t, db, uri, func(c *Config) { c.Progress = func(Progress) { cancelHard(); cancel() } })
	c.app = heldApp
	d := look(t, c)
	results, _, err := c.Run(ctx, hard, d, d.Members, Selection{})
	require.ErrorIs(t, err, ErrInterrupted)
	require.Len(t, results, 1)
	assert.Equal(t, endedNot, results[0].Ended)
}

func TestInterruptBeforeItBeginsChangesNothing(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := filled(t, uri)
	c := compactor(t, db, uri, nil)
	d := look(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := c.Run(ctx, t.Context(), d, d.Members, Selection{})
	require.ErrorIs(t, err, ErrInterrupted)
	_, err = c.Inspect(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestMissingCollection(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	_, err := compactor(t, mongodtest.DatabaseAt(t, uri), uri, nil).Inspect(t.Context())
	require.ErrorIs(t, err, ErrNoCollection)
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	const unreachable = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"
	client, err := mongo.Connect(options.Client().ApplyURI(unreachable))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	_, err = compactor(t, client.Database("d"), unreachable, nil).Inspect(t.Context())
	require.ErrorIs(t, err, ErrAway)
	require.ErrorContains(t, err, "connection refused")
}

func TestTimeSeriesCollectionIsCompactedOrRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	require.NoError(t, db.CreateCollection(t.Context(), testCollection, options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts").SetMetaField("s"))))
	_, err := db.Collection(testCollection).InsertOne(t.Context(), bson.D{{Key: "ts", Value: time.Now()}, {Key: "s", Value: "s-1"}})
	require.NoError(t, err)
	require.NoError(t, db.CreateCollection(t.Context(), testCollection+keptSuffix))
	c := compactor(t, db, uri, func(c *Config) { c.Collection = BucketsOf(testCollection) })
	d := look(t, c)
	assert.Positive(t, d.Members[0].Sizes.File)
	assert.Equal(t, testCollection+keptSuffix, d.Old)
	_, _, err = c.Run(t.Context(), t.Context(), d, d.Members, Selection{})
	if strings.HasPrefix(d.Members[0].Version, "6.0.") {
		require.ErrorIs(t, err, ErrTimeSeries)
		require.ErrorContains(t, err, "brim move")
		return
	}
	require.NoError(t, err)
}

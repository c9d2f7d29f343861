package faulttest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// behindProxy returns a collection both through a proxy and directly.
func behindProxy(t *testing.T) (p *faulttest.Proxy, through, direct *mongo.Collection) {
	t.Helper()
	s := newScene(t)
	s.shared()
	p, uri := s.proxy()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(patience).SetHeartbeatInterval(time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return p, client.Database(s.db.Name()).Collection("c"), s.db.Collection("c")
}

func insert(t *testing.T, c *mongo.Collection, id string) error {
	t.Helper()
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
	return err
}

func ids(t *testing.T, c *mongo.Collection) []string {
	t.Helper()
	var found []struct {
		ID string `bson:"_id"`
	}
	cursor, err := c.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	require.NoError(t, cursor.All(t.Context(), &found))
	all := make([]string, len(found))
	for i, f := range found {
		all[i] = f.ID
	}
	return all
}

func TestProxyGivesEveryFate(t *testing.T) {
	t.Parallel()
	p, through, direct := behindProxy(t)
	always := func(fate faulttest.Fate) faulttest.Faults {
		return faulttest.Faults{Decide: faulttest.EveryNth(1, fate)}
	}
	require.NoError(t, insert(t, through, "passed"))
	p.Set(always(faulttest.CutAnswer))
	require.Error(t, insert(t, through, "answer cut"))
	p.Set(always(faulttest.Drop))
	require.Error(t, insert(t, through, "dropped"))
	p.Set(always(faulttest.Hold))
	require.Error(t, insert(t, through, "held"))
	assert.Equal(t, []string{"answer cut", "passed"}, ids(t, direct))
	assert.Equal(t, 1, p.Holding())
	assert.Equal(t, 1, p.Release(rand.New(rand.NewPCG(1, 1))))
	assert.Equal(t, []string{"answer cut", "held", "passed"}, ids(t, direct))
	p.Set(faulttest.Faults{})
	require.NoError(t, insert(t, through, "passed again"))
	assert.Equal(t, 3, p.Counts().Faults())
	assert.EqualValues(t, 5, p.Counts().Writes.Load())
}

func TestProxyAnswersInTheServersPlace(t *testing.T) {
	t.Parallel()
	p, through, direct := behindProxy(t)
	for _, fate := range []faulttest.Fate{faulttest.CutAnswer, faulttest.Drop, faulttest.Hold} {
		p.Set(faulttest.Faults{
			Decide: faulttest.EveryNth(1, fate),
			Answer: func(c faulttest.Command) bson.D {
				assert.Equal(t, "insert", c.Name)
				assert.Len(t, c.Operations, 2)
				return faulttest.WriteErrors(c, 121)
			},
		})
		_, err := through.InsertMany(t.Context(), []bson.D{{{Key: "_id", Value: "a"}}, {{Key: "_id", Value: "b"}}}, options.InsertMany().SetOrdered(false))
		var bulk mongo.BulkWriteException
		require.ErrorAs(t, err, &bulk)
		require.Len(t, bulk.WriteErrors, 2)
		assert.Equal(t, 121, bulk.WriteErrors[1].Code)
	}
	assert.Equal(t, []string{"a", "b"}, ids(t, direct), "what the answer that was replaced had said")
	p.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.Drop), Answer: func(faulttest.Command) bson.D { return faulttest.CommandError(50) }})
	var failed mongo.CommandError
	require.ErrorAs(t, insert(t, through, "c"), &failed)
	assert.EqualValues(t, 50, failed.Code)
}

func TestProxyIsSlowRefusesAndCuts(t *testing.T) {
	t.Parallel()
	p, through, direct := behindProxy(t)
	require.NoError(t, insert(t, through, "at first"))
	const delay = 50 * time.Millisecond
	p.Set(faulttest.Faults{Delay: delay})
	began := time.Now()
	require.NoError(t, insert(t, through, "slowly"))
	assert.GreaterOrEqual(t, time.Since(began), delay)
	p.Set(faulttest.Faults{Refuse: true})
	p.CutAll()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := through.InsertOne(ctx, bson.D{{Key: "_id", Value: "never"}})
	require.Error(t, err)
	assert.Positive(t, p.Counts().ConnectionsCut.Load())
	p.Set(faulttest.Faults{})
	require.NoError(t, insert(t, through, "when it is back"))
	assert.Equal(t, []string{"at first", "slowly", "when it is back"}, ids(t, direct))
}

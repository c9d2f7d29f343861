package simulate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/simulate"
)

// inBubble runs a test against a model in a bubble, in which nothing happens that the
// test does not ask for.
func inBubble(t *testing.T, test func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := simulate.NewMongoDB("a.example:27017", "b.example:27017")
		t.Cleanup(func() { time.Sleep(time.Second) }) //nolint:forbidigo // fake time: what is on its way arrives
		test(t, m, connect(t, m, "client").Collection("c"))
	})
}

// increment sends an update in the background, and returns where its error will come.
func increment(t *testing.T, c *mongo.Collection) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
		done <- err
	}()
	return done
}

// next returns the one command that waits, after up to some seconds in which the driver
// finds a primary.
func next(t *testing.T, m *simulate.MongoDB) *simulate.Command {
	t.Helper()
	for range 100 {
		synctest.Wait()
		if waiting := m.Waiting(); len(waiting) > 0 {
			require.Len(t, waiting, 1)
			return waiting[0]
		}
		<-time.After(100 * time.Millisecond)
	}
	require.Fail(t, "no command arrived")
	return nil
}

func stored(m *simulate.MongoDB) (n int32) {
	for _, d := range m.Documents("brim", "c") {
		n += d.Lookup("n").Int32()
	}
	return n
}

func TestWriteIsAnsweredWhenAMajorityHasIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
		done := increment(t, c)
		cmd := next(t, m)
		assert.Equal(t, "update", cmd.Name)
		assert.Equal(t, "c", cmd.Collection)
		assert.False(t, cmd.Answerable())
		cmd.Execute()
		assert.False(t, cmd.Answerable(), "a majority lacks it")
		assert.Zero(t, stored(m))
		m.Replicate(m.Unreplicated())
		cmd.Answer()
		require.NoError(t, <-done)
		assert.EqualValues(t, 1, stored(m))
	})
}

func TestWriteWithALostAnswerIsExecutedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
		done := increment(t, c)
		cmd := next(t, m)
		cmd.Execute()
		cmd.Disconnect()
		again := next(t, m)
		again.Execute()
		m.Replicate(m.Unreplicated())
		again.Answer()
		require.NoError(t, <-done)
		assert.EqualValues(t, 1, stored(m))
	})
}

func TestElectionRollsBackWhatAMajorityLacks(t *testing.T) {
	t.Parallel()
	for _, survive := range []int{0, 10} {
		inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
			done := increment(t, c)
			cmd := next(t, m)
			cmd.Execute()
			m.StepDown(survive)
			cmd.Answer()
			again := next(t, m)
			assert.NotEqual(t, cmd.Host, again.Host, "the driver found the new primary")
			again.Execute()
			m.Replicate(m.Unreplicated())
			again.Answer()
			require.NoError(t, <-done)
			assert.EqualValues(t, 1, stored(m))
		})
	}
}

func TestFormerPrimaryConfirmsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
		done := increment(t, c)
		cmd := next(t, m)
		m.Elect(0)
		cmd.Execute()
		m.Replicate(10)
		assert.False(t, cmd.Answerable())
		m.Notice()
		cmd.Answer()
		again := next(t, m)
		again.Execute()
		m.Replicate(10)
		again.Answer()
		require.NoError(t, <-done)
		assert.EqualValues(t, 1, stored(m))
	})
}

func TestFormerPrimaryIsOverdueOnceItHasRunForTenSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, _ *mongo.Collection) {
		m.Elect(0)
		<-time.After(10 * time.Second)
		assert.False(t, m.Overdue())
		<-time.After(time.Second)
		assert.True(t, m.Overdue())
		m.Notice()
		assert.False(t, m.Overdue(), "there is one primary")

		m.Stop()
		m.Elect(0)
		<-time.After(time.Minute)
		assert.False(t, m.Overdue(), "it stands still")
		m.Continue()
		assert.False(t, m.Overdue())
		<-time.After(11 * time.Second)
		assert.True(t, m.Overdue())
	})
}

func TestCommandMayLandAfterItsConnectionBroke(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: int32(1)}})
			done <- err
		}()
		cmd := next(t, m)
		require.Error(t, <-done)
		m.Kill("client")
		assert.True(t, cmd.Gone())
		require.Equal(t, []*simulate.Command{cmd}, m.Waiting())
		cmd.Execute()
		assert.Empty(t, m.Waiting())
		m.Replicate(10)
		assert.EqualValues(t, 1, stored(m))
	})
}

func TestQueryMaySeeTwoMoments(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *simulate.MongoDB, c *mongo.Collection) {
		insert := func(ids ...int) {
			docs := bson.A{}
			for _, id := range ids {
				docs = append(docs, bson.D{{Key: "_id", Value: id}})
			}
			m.Run("brim", bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: docs}})
			m.Replicate(m.Unreplicated())
		}
		insert(2, 4)
		found := make(chan []bson.M, 1)
		go func() {
			cursor, err := c.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
			var docs []bson.M
			if err == nil {
				err = cursor.All(t.Context(), &docs)
			}
			assert.NoError(t, err)
			found <- docs
		}()
		cmd := next(t, m)
		cmd.Yield(1)
		insert(1, 3)
		cmd.Execute()
		cmd.Answer()
		assert.Equal(t, []bson.M{{"_id": int32(2)}, {"_id": int32(3)}, {"_id": int32(4)}}, <-found)
	})
}

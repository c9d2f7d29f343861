package doctor

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// An audience counts, by collection, how often sizes are requested.
type audience struct {
	mu    sync.Mutex
	asked map[string]int
}

func (a *audience) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.CommandName == "aggregate" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked[e.Command.Lookup("aggregate").StringValue()]++
	}
}

// since returns the requests since the previous call.
func (a *audience) since() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.asked
	a.asked = make(map[string]int)
	return out
}

// listened returns a new database, and an audience of its commands.
func listened(t *testing.T, name string) (*mongo.Database, *audience) {
	t.Helper()
	a := &audience{asked: make(map[string]int)}
	c := client(t, options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{Started: a.started}))
	db := c.Database(name)
	t.Cleanup(func() { require.NoError(t, db.Drop(context.Background())) })
	return db, a
}

// TestSizesAreAskedForOnceAMinute, since they cost more than everything else;
// for a collection that does not exist yet, with every sample.
func TestSizesAreAskedForOnceAMinute(t *testing.T) {
	t.Parallel()
	db, asked := listened(t, "test_sizes_once_a_minute")
	insert(t, db, "readings", 3)
	now := noon
	b := newBench(t, Config{Database: db, Now: func() time.Time { return now }, Streams: []Stream{
		{Name: "readings", Storage: store.Bucket}, {Name: "unborn", Storage: store.Bucket},
	}})
	readings := scrape.Labels{"stream": "readings"}
	for range 6 { // until 50 s after the first
		b.Sample(t.Context())
		assert.Equal(t, 3.0, b.scrape(t).Value("brim_mongodb_collection_documents", readings))
		now = now.Add(10 * time.Second)
	}
	assert.Equal(t, map[string]int{"readings": 1, "unborn": 6}, asked.since())
	b.Sample(t.Context())
	assert.Equal(t, map[string]int{"readings": 1, "unborn": 1}, asked.since())
	insert(t, db, "unborn", 5)
	b.Sample(t.Context())
	assert.Equal(t, 5.0, b.scrape(t).Value("brim_mongodb_collection_documents", scrape.Labels{"stream": "unborn"}))
	b.Sample(t.Context())
	assert.Equal(t, map[string]int{"unborn": 1}, asked.since())
}

// TestSizesThatFailAreAskedForAgain a minute later; the others are not
// affected.
func TestSizesThatFailAreAskedForAgain(t *testing.T) {
	t.Parallel()
	db, asked := listened(t, "test_sizes_fail")
	insert(t, db, "readings", 4)
	require.NoError(t, db.CreateView(t.Context(), "broken", "readings", mongo.Pipeline{})) // has no sizes
	now := noon
	b := newBench(t, Config{Database: db, Now: func() time.Time { return now }, Streams: []Stream{
		{Name: "readings", Storage: store.Bucket}, {Name: "broken", Storage: store.Bucket},
	}})
	var at []int // seconds at which the broken one was requested
	for i := range 20 {
		b.Sample(t.Context())
		counts := asked.since()
		if counts["broken"] > 0 {
			at = append(at, 10*i)
		}
		assert.Equal(t, i%6 == 0, counts["readings"] > 0, "second %d", 10*i)
		assert.Equal(t, whyNoSizes, b.seen.Load().last.collections["broken"].why)
		now = now.Add(10 * time.Second)
	}
	assert.Equal(t, []int{0, 60, 120, 180}, at)
	assert.Equal(t, 4.0, b.scrape(t).Value("brim_mongodb_collection_documents", scrape.Labels{"stream": "readings"}))
	require.NoError(t, db.Collection("broken").Drop(t.Context()))
	insert(t, db, "broken", 3)
	now = now.Add(time.Minute)
	b.Sample(t.Context())
	assert.Equal(t, 3.0, b.scrape(t).Value("brim_mongodb_collection_documents", scrape.Labels{"stream": "broken"}))
}

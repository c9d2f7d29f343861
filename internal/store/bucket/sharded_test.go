package bucket

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// traffic records the commands on the stream's collection.
type traffic struct {
	mu       sync.Mutex
	commands map[string][]bson.Raw // by name
}

func (r *traffic) started(_ context.Context, e *event.CommandStartedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on, _ := e.Command.Lookup(e.CommandName).StringValueOK(); on == storetest.Stream {
		r.commands[e.CommandName] = append(r.commands[e.CommandName], bytes.Clone(e.Command))
	}
}

// each returns the elements of the only command with that name, such as its updates.
func (r *traffic) each(t *testing.T, name, parts string) []bson.Raw {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.commands[name], 1)
	values, err := r.commands[name][0].Lookup(parts).Array().Values()
	require.NoError(t, err)
	var out []bson.Raw
	for _, v := range values {
		out = append(out, v.Document())
	}
	return out
}

// sharded returns a store that takes its collection for sharded by sensor, and
// its traffic from here on.
func sharded(t *testing.T) (*Store, *traffic) {
	t.Helper()
	sent := &traffic{commands: make(map[string][]bson.Raw)}
	client, err := mongo.Connect(options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{Started: sent.started}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	s := open(t, client.Database(mongodtest.Database(t).Name()), Config{})
	s.sharded.Store(true)
	clear(sent.commands)
	return s, sent
}

// targets reports whether a router can derive the shard from a filter, by
// MongoDB's documented rules for extracting shard keys: every field of the key
// has an equality match, by its own path or within a whole _id.
func targets(filter bson.Raw, paths ...string) bool {
	for _, path := range paths {
		if v, err := filter.LookupErr(path); err == nil {
			if v.Type == bson.TypeEmbeddedDocument {
				return false
			}
			continue
		}
		v, err := filter.LookupErr("_id", path[len("_id."):])
		if _, operator := filter.LookupErr("_id", "$gte"); err != nil || operator == nil || v.Type == bson.TypeEmbeddedDocument {
			return false
		}
	}
	return true
}

// pendingOf returns some readings in a window of the sensor.
func pendingOf(t *testing.T, sensor string, n int) *batch.Pending {
	t.Helper()
	var readings []telemetry.Reading
	for i := range n {
		readings = append(readings, storetest.Reading(sensor, time.Duration(i)*time.Second, 1.5))
	}
	return storetest.Pending(storetest.Batch(t, "session", 1, readings...), 5*time.Minute)[0]
}

func TestEveryUpdateNamesItsShard(t *testing.T) {
	t.Parallel()
	s, sent := sharded(t)
	writes := []*batch.Pending{pendingOf(t, "s-1", 3), pendingOf(t, "s-2", 2)}
	s.Write(t.Context(), writes)
	updates := sent.each(t, "update", "updates")
	require.Len(t, updates, 2)
	for i, op := range updates {
		filter := op.Lookup("q").Document()
		assert.True(t, targets(filter, "_id.s", "_id.b"), "%s", filter)
		assert.Equal(t, writes[i].Sensor, filter.Lookup("_id", "s").StringValue())
		assert.True(t, op.Lookup("upsert").Boolean())
		multi, _ := op.Lookup("multi").BooleanOK()
		assert.False(t, multi)
	}
}

func TestEveryQueryForASensorNamesItsShard(t *testing.T) {
	t.Parallel()
	s, sent := sharded(t)
	storetest.WriteAll(t, s, []*batch.Pending{pendingOf(t, "s-1", 2)})
	assert.Len(t, storetest.ReadAll(t, s, "s-1"), 2)
	_, found, err := s.Latest(t.Context(), "s-1", nil)
	require.NoError(t, err)
	assert.True(t, found)
	recovered := pendingOf(t, "s-1", 3)
	recovered.Recovered = true
	s.Write(t.Context(), []*batch.Pending{recovered})
	_, err = s.Delete(t.Context(), "s-1")
	require.NoError(t, err)

	finds := sent.commands["find"]
	require.Len(t, finds, 5, "readings, the latest one by three, the parts")
	for _, c := range finds {
		filter := c.Lookup("filter").Document()
		if either, err := filter.LookupErr("$or"); err == nil && !targets(filter, "_id.s") {
			filter = either.Array().Index(0).Document()
		}
		assert.True(t, targets(filter, "_id.s"), "%s", filter)
	}
	assert.True(t, targets(sent.commands["aggregate"][0].Lookup("pipeline").Array().Index(0).Document().Lookup("$match").Document(), "_id.s"))
	assert.True(t, targets(sent.each(t, "delete", "deletes")[0].Lookup("q").Document(), "_id.s"))
}

func TestQueriesWithoutAClusterAreUnchanged(t *testing.T) {
	t.Parallel()
	s := &Store{}
	filter := bson.D{{Key: "_id", Value: 1}}
	assert.Equal(t, filter, s.ofSensor("s-1", filter))
}

// TestFenceOnAClusterNamesItsShards and changes nothing.
func TestFenceOnAClusterNamesItsShards(t *testing.T) {
	t.Parallel()
	s, sent := sharded(t)
	storetest.WriteAll(t, s, []*batch.Pending{pendingOf(t, "s-1", 3)})
	before := documents(t, s.Database)
	require.Len(t, before, 1)
	clear(sent.commands)
	now := *s.Live.Load()
	now.WriteConcern.Members = 2 // a majority of the collection's single member is still asked for
	s.Live.Store(&now)
	s.lookUp(t.Context(), []*batch.Pending{pendingOf(t, "s-1", 3), pendingOf(t, "s-2", 1)})
	updates := sent.each(t, "update", "updates")
	require.Len(t, updates, 2)
	for _, op := range updates {
		filter := op.Lookup("q").Document()
		assert.True(t, targets(filter, "_id.s", "_id.b"), "%s", filter)
		assert.Equal(t, "never", filter.Lookup("full").StringValue())
		_, err := op.LookupErr("upsert")
		require.Error(t, err, "it makes nothing")
	}
	assert.Equal(t, before, documents(t, s.Database))
}

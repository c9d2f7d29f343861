package bucket

import (
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

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A moved stream has a reading a minute, in windows of one minute. It is exchanged
// for one with windows of five minutes as soon as the first find was answered.
type moved struct {
	db       *mongo.Database
	readings []telemetry.Reading
	store    *Store
	lists    int // how often it was asked which collection has the name
}

func newMoved(t *testing.T) *moved {
	t.Helper()
	m := &moved{db: connect(t)}
	for i := range 5 {
		m.readings = append(m.readings, storetest.Reading("a", time.Duration(i)*time.Minute, float64(i)))
	}
	old := open(t, m.db, Config{Granularity: time.Minute})
	storetest.WriteAll(t, old, storetest.Pending(storetest.Batch(t, "s1", 1, m.readings...), time.Minute))
	other := connect(t)
	storetest.WriteAll(t, open(t, other, Config{}), storetest.Pending(storetest.Batch(t, "smoved", 1, m.readings...), window))
	var copied []any
	for _, doc := range documents(t, other) {
		copied = append(copied, doc)
	}
	for _, doc := range documents(t, m.db) {
		copied = append(copied, bson.D{
			{Key: "_id", Value: doc["_id"]}, {Key: "sensorId", Value: "a"}, {Key: "bucketStart", Value: doc["bucketStart"]},
			{Key: "bytes", Value: int32(0)}, {Key: "count", Value: int32(0)}, {Key: "measurements", Value: bson.A{}},
			{Key: "w", Value: doc["w"]}, {Key: "full", Value: true}, {Key: migratedMark, Value: true},
		})
	}
	_, err := m.db.Collection(storetest.Stream+store.CopySuffix).InsertMany(t.Context(), copied)
	require.NoError(t, err)

	var once sync.Once
	client, err := mongo.Connect(options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			switch e.CommandName {
			case "find":
				once.Do(func() { m.exchange(t) })
			case "listCollections":
				m.lists++
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	m.store = open(t, client.Database(m.db.Name()), Config{Granularity: time.Minute})
	m.lists = 0
	return m
}

func (m *moved) exchange(t *testing.T) {
	t.Helper()
	rename := func(from, to string) {
		assert.NoError(t, m.db.Client().Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "renameCollection", Value: m.db.Name() + "." + from}, {Key: "to", Value: m.db.Name() + "." + to},
		}).Err())
	}
	rename(storetest.Stream, storetest.Stream+store.KeptSuffix)
	rename(storetest.Stream+store.CopySuffix, storetest.Stream)
}

// query asks for all; the reading of one minute may not be stored yet.
func (m *moved) query(minute int) telemetry.Query {
	q := spanOf("a", 0, time.Hour)
	q.Unstored = []telemetry.Unstored{{Session: "s1", Sequence: uint64(minute + 1), Granularity: time.Minute, Reading: m.readings[minute]}}
	return q
}

func (m *moved) read(t *testing.T, q telemetry.Query) (got []telemetry.Reading, err error) {
	t.Helper()
	for r, e := range m.store.Readings(t.Context(), q) {
		if e != nil {
			return got, e
		}
		got = append(got, r)
	}
	return got, nil
}

// TestReadStartsOverAfterAnExchange lets the exchange happen before anything was
// given.
func TestReadStartsOverAfterAnExchange(t *testing.T) {
	t.Parallel()
	m := newMoved(t)
	got, err := m.read(t, m.query(0))
	require.NoError(t, err)
	assert.Equal(t, m.readings, got)
	assert.Equal(t, 2, m.lists, "at the tombstone, and once more there")

	m.lists = 0
	got, err = m.read(t, m.query(2))
	require.NoError(t, err)
	assert.Equal(t, m.readings, got, "tombstones that were there before are nothing special")
	assert.Equal(t, 1, m.lists)
}

// TestReadDuringAnExchangeIsNotTruncated lets the exchange happen when a part was
// given: what is left may not be there any more.
func TestReadDuringAnExchangeIsNotTruncated(t *testing.T) {
	t.Parallel()
	limited := func(m *moved) telemetry.Query {
		q := spanOf("a", 0, time.Hour)
		q.Limit = 5
		return q
	}
	for name, query := range map[string]func(*moved) telemetry.Query{
		"a window by itself":    func(m *moved) telemetry.Query { return m.query(2) },
		"a cursor that goes on": limited,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoved(t)
			_, err := m.read(t, query(m))
			var e *telemetry.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, "stream_moved", e.Code)
			assert.Equal(t, telemetry.Unavailable, e.Kind)
			assert.Positive(t, e.RetryAfter)

			got, err := m.read(t, query(m))
			require.NoError(t, err)
			assert.Equal(t, m.readings, got, "asked again")
		})
	}
}

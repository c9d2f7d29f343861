package timeseries

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestDelayedInsertIsRefused holds inserts back in the network until their
// readings were looked up and inserted again.
func TestDelayedInsertIsRefused(t *testing.T) {
	t.Parallel()
	shared := func(t *testing.T) string { t.Helper(); return mongodtest.URI(t) }
	own := func(t *testing.T) string { t.Helper(); return mongodtest.Start(t, mongod.Config{}).URI() }
	for _, tt := range []struct {
		name   string
		server func(t *testing.T) (uri string)
		before func(pending *batch.Pending)              // the second write
		after  func(t *testing.T, admin *mongo.Database) // the second write
	}{
		{name: "by the same pending rows", server: shared},
		{name: "by rows that were set aside", server: shared, before: func(s *batch.Pending) { s.State, s.Recovered = nil, true }},
		{name: "after an election", server: own, after: stepDown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := tt.server(t)
			db := mongodtest.DatabaseAt(t, server)
			s, proxy := behindProxy(t, server, db.Name())
			writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("b", time.Second, 2)), 5*time.Minute)
			proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
				if isInsert(c) {
					return faulttest.Hold
				}
				return faulttest.Pass
			}})
			s.Write(t.Context(), writes)
			for _, pending := range writes {
				require.Equal(t, batch.Wait, pending.Verdict)
				if tt.before != nil {
					tt.before(pending)
				}
			}
			proxy.Set(faulttest.Faults{})
			storetest.WriteAll(t, s, writes)
			if tt.after != nil {
				tt.after(t, db.Client().Database("admin"))
			}
			require.Positive(t, proxy.Release(rand.New(rand.NewPCG(1, 1))))

			assert.Len(t, stored(t, s, "a"), 1)
			assert.Len(t, stored(t, s, "b"), 1)
			assert.Zero(t, testutil.ToFloat64(s.Metrics.Duplicates), "the insert had not arrived when its readings were looked for")
			assert.Empty(t, s.sessions.unanswered)
		})
	}
}

// behindProxy returns a store that reaches the server through a proxy.
func behindProxy(t *testing.T, server, database string) (*Store, *faulttest.Proxy) {
	t.Helper()
	proxy, err := faulttest.NewProxy(options.Client().ApplyURI(server).Hosts[0])
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	c, err := store.Connect(store.ConnectionConfig{
		URI: "mongodb://" + proxy.Addr() + "/?directConnection=true", Database: database, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return open(t, c.Database(), Config{WriteTimeout: time.Second}), proxy
}

func isInsert(c faulttest.Command) bool {
	return c.Name == "insert" && strings.HasPrefix(c.Body.Lookup("insert").String(), `"`+storetest.Stream)
}

// insertFaults injects a fate into the first n inserts, and counts all of them.
func insertFaults(proxy *faulttest.Proxy, n int64, fate faulttest.Fate, answer func(faulttest.Command) bson.D) (inserts *atomic.Int64) {
	inserts = new(atomic.Int64)
	proxy.Set(faulttest.Faults{Answer: answer, Decide: func(c faulttest.Command) faulttest.Fate {
		if isInsert(c) && inserts.Add(1) <= n {
			return fate
		}
		return faulttest.Pass
	}})
	return inserts
}

// TestBrokenInsertIsSentAgain breaks connections after the server executed an insert. Further
// attempts have the same number, so the server only repeats its answer.
func TestBrokenInsertIsSentAgain(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t, mongodtest.URI(t), mongodtest.Database(t).Name())
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute)
	inserts := insertFaults(proxy, 3, faulttest.CutAnswer, nil)
	s.Write(t.Context(), writes)
	assert.Equal(t, batch.Stored, writes[0].Verdict)
	assert.EqualValues(t, 4, inserts.Load())
	assert.Len(t, stored(t, s, "a"), 1)
}

// TestRefusedRowsAreKeptInOrder: a write takes two commands. The server refuses a row of the first,
// with either of two codes; a standalone server also uses the second to refuse numbers.
func TestRefusedRowsAreKeptInOrder(t *testing.T) {
	t.Parallel()
	const rows = 2000
	for _, code := range []int{112, 20} {
		s, proxy := behindProxy(t, mongodtest.URI(t), mongodtest.Database(t).Name())
		var readings []telemetry.Reading
		for i := range rows {
			r := storetest.Reading("a", time.Duration(i)*time.Millisecond, float64(i))
			r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", 1000))})
			readings = append(readings, r)
		}
		writes := storetest.Pending(storetest.Batch(t, "s1", 1, readings...), 5*time.Minute)
		sent := 0
		inserts := insertFaults(proxy, 1, faulttest.CutAnswer, func(c faulttest.Command) bson.D {
			sent = len(c.Operations)
			return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: sent - 1}, {Key: "writeErrors", Value: bson.A{bson.D{{Key: "index", Value: 5}, {Key: "code", Value: code}}}}}
		})
		s.Write(t.Context(), writes)
		assert.Equal(t, batch.Wait, writes[0].Verdict)
		assert.EqualValues(t, 1, inserts.Load())
		require.Less(t, sent, rows)
		require.Len(t, writes[0].Rows, 1+rows-sent)
		assert.EqualValues(t, 6, writes[0].Rows[0].Seq())
		assert.EqualValues(t, sent+1, writes[0].Rows[1].Seq())

		proxy.Set(faulttest.Faults{})
		storetest.WriteAll(t, s, writes)
		assert.Len(t, stored(t, s, "a"), rows)
	}
}

// TestCommandsAskForTheWriteConcern checks that inserts ask for the stream's write concern and name
// the collection by its UUID, and that a fence asks for a majority.
func TestCommandsAskForTheWriteConcern(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t, mongodtest.URI(t), mongodtest.Database(t).Name())
	for _, tt := range []struct {
		concern store.WriteConcern
		want    string
	}{
		{store.WriteConcern{}, `{"w": "majority","j": true}`},
		{store.WriteConcern{Members: 1}, `{"w": {"$numberInt":"1"},"j": true}`},
		{store.WriteConcern{Unjournaled: true}, `{"w": "majority","j": false}`},
	} {
		now := s.Live.Load().Settings
		now.WriteConcern = tt.concern
		s.Change(now)
		var inserts, fences atomic.Int64
		proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
			concern := c.Body.Lookup("writeConcern").String()
			switch {
			case isInsert(c):
				inserts.Add(1)
				assert.JSONEq(t, tt.want, concern)
				_, _, named := c.Body.Lookup("collectionUUID").BinaryOK()
				assert.True(t, named)
			case c.Name == "update":
				fences.Add(1)
				assert.JSONEq(t, `{"w": "majority","j": true}`, concern)
			}
			return faulttest.Pass
		}})
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, batch.NewSession(), 1, storetest.Reading("a", 0, 1)), 5*time.Minute))
		one, err := s.sessions.get(s.Database)
		require.NoError(t, err)
		require.NoError(t, s.fence(t.Context(), one))
		assert.EqualValues(t, 1, inserts.Load())
		assert.EqualValues(t, 1, fences.Load())
	}
}

// TestStandaloneServer: a server that refuses numbers gets only one command with a number.
func TestStandaloneServer(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Standalone: true})
	s, proxy := behindProxy(t, server.URI(), "standalone")
	inserts := insertFaults(proxy, 0, faulttest.Pass, nil)
	for i := range 2 {
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(i+1), storetest.Reading("a", 0, 1)), 5*time.Minute))
	}
	assert.Len(t, stored(t, s, "a"), 2)
	assert.EqualValues(t, 3, inserts.Load())
}

// stepDown returns when the only member of a replica set has been re-elected. It then
// knows only the session numbers in its oplog.
func stepDown(t *testing.T, admin *mongo.Database) {
	t.Helper()
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}}).Err())
	require.Eventually(t, func() bool {
		var hello struct {
			Primary bool `bson:"isWritablePrimary"`
		}
		err := admin.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Nearest())).Decode(&hello)
		return err == nil && hello.Primary
	}, time.Minute, 20*time.Millisecond)
}

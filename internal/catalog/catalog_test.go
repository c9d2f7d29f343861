package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

const stream = storetest.Stream

// database returns a fresh database with the concerns of production.
func database(t testing.TB) *mongo.Database {
	t.Helper()
	db := mongodtest.Database(t)
	c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

// open returns the catalog of a stream, as another daemon would have it.
func open(t testing.TB, db *mongo.Database, of StreamConfig) *Stream {
	t.Helper()
	c, err := New(Config{Database: db, Daemon: fmt.Sprint(rand.Uint64()), Streams: map[string]StreamConfig{stream: of}, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	return c.Stream(stream)
}

// openStore returns a prepared store.
func openStore(t testing.TB, db *mongo.Database, kind store.Storage) storetest.Store {
	t.Helper()
	cfg := store.Config{
		Database: db, Stream: stream, Granularity: 5 * time.Minute,
		MaxReadings: 1000, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	}
	var s storetest.Store
	var err error
	if kind == store.TimeSeries {
		s, err = timeseries.New(cfg)
	} else {
		s, err = bucket.New(cfg)
	}
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

// reading returns one with tags like "region=north,room=1".
func reading(sensor string, at time.Duration, tags string, fields ...string) telemetry.Reading {
	r := storetest.Reading(sensor, at, 1)
	r.Fields = nil
	for _, name := range fields {
		v := telemetry.FloatValue(1)
		if name == "state" {
			v = telemetry.TextValue("on")
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: v})
	}
	for tag := range strings.SplitSeq(tags, ",") {
		if name, value, ok := strings.Cut(tag, "="); ok {
			r.Tags = append(r.Tags, telemetry.Tag{Name: name, Value: value})
		}
	}
	return r
}

// see passes readings to Saw.
func see(t testing.TB, s *Stream, readings ...telemetry.Reading) {
	t.Helper()
	b := storetest.Batch(t, "session", 1, readings...)
	for i := range uint32(b.Len()) {
		s.Saw(b.Series(b.Row(i)), b.Shape(b.Row(i)), b.Row(i).Time)
	}
}

// text is a sensor in a line: its sets, fields and fields with strings.
func text(s telemetry.Sensor) string {
	var sets []string
	for _, set := range s.Sets {
		var tags []string
		for _, tag := range set.Tags {
			tags = append(tags, tag.Name+"="+tag.Value)
		}
		sets = append(sets, strings.Join(tags, ","))
	}
	return strings.TrimSpace(s.ID + " {" + strings.Join(sets, "; ") + "} " + strings.Join(s.Fields, " ") + " | " + strings.Join(s.Texts, " "))
}

// list returns what a query lists, a line each.
func list(t testing.TB, s *Stream, q telemetry.SensorQuery) (out []string) {
	t.Helper()
	for one, err := range s.List(t.Context(), q) {
		require.NoError(t, err)
		out = append(out, text(one))
	}
	return out
}

// matching returns a query with matchers; a name in capitals stands for the id.
func matching(t testing.TB, matchers ...string) (q telemetry.SensorQuery) {
	t.Helper()
	for _, text := range matchers {
		m, err := telemetry.ParseMatcher(text)
		require.NoError(t, err)
		if m.Name == "ID" {
			q.Sensor = append(q.Sensor, m)
		} else {
			q.Tags = append(q.Tags, m)
		}
	}
	return q
}

func TestSensorIsListedBeforeAndAfterItIsWritten(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), StreamConfig{})
	see(t, s, reading("b", 0, "region=north,room=1", "t", "state"), reading("b", 0, "region=north,room=1", "h"), reading("a", 0, "", "t"))
	want := []string{"a {} t |", "b {region=north,room=1} h t | state"}
	assert.Equal(t, want, list(t, s, telemetry.SensorQuery{}))
	assert.Equal(t, 3, s.waiting())
	require.NoError(t, s.writeSome(t.Context()))
	assert.Zero(t, s.waiting())
	assert.Equal(t, want, list(t, s, telemetry.SensorQuery{}))
	see(t, s, reading("b", time.Minute, "region=north,room=1", "t", "state"))
	assert.Zero(t, s.waiting(), "it is known")

	var doc bson.M
	require.NoError(t, s.collection.FindOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}).Decode(&doc))
	assert.Equal(t, bson.A{"region=north", "room=1"}, doc["pairs"])
}

// TestOrderOfWritesDoesNotMatter has two daemons write the same facts, in any order.
func TestOrderOfWritesDoesNotMatter(t *testing.T) {
	t.Parallel()
	db := database(t)
	daemons := []*Stream{open(t, db, StreamConfig{}), open(t, db, StreamConfig{})}
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	var facts []fact
	for i, r := range []telemetry.Reading{
		reading("a", 0, "region=north", "t"), reading("a", 48*time.Hour, "region=north", "t"), reading("a", 24*time.Hour, "region=south", "h", "state"),
		reading("a", 90*time.Hour, "", "x"), reading("a", -48*time.Hour, "region=south", "state"), reading("a", 0, "weird=$value", "y"),
	} {
		b := storetest.Batch(t, "session", uint64(i+1), r)
		e := entry{b.Series(b.Row(0)), b.Shape(b.Row(0)), b.Row(0).Time, b.Row(0).Time}
		facts = append(facts, e.fact(now))
	}
	var want []string
	for range 8 {
		_, err := daemons[0].collection.DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		for range 2 { // an update that is repeated changes nothing
			for _, i := range random.Perm(len(facts)) {
				require.NoError(t, daemons[random.IntN(2)].record(t.Context(), facts[i:i+1]))
			}
		}
		var got []string
		for one, err := range daemons[0].List(t.Context(), telemetry.SensorQuery{}) {
			require.NoError(t, err)
			for _, set := range one.Sets {
				got = append(got, fmt.Sprint(set))
			}
			slices.Sort(got)
			got = append(got, fmt.Sprint(one.Fields, one.Texts))
		}
		if want == nil {
			want = got
			assert.Len(t, want, 5)
		}
		assert.Equal(t, want, got)
	}
}

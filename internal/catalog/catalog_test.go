package catalog

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/machine"
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
	return New(Config{Database: db, Daemon: fmt.Sprint(rand.Uint64()), Streams: map[string]StreamConfig{stream: of}, Registerer: prometheus.NewRegistry()}).Stream(stream)
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
	var facts []sensorUpdate
	for i, r := range []telemetry.Reading{
		reading("a", 0, "region=north", "t"), reading("a", 48*time.Hour, "region=north", "t"), reading("a", 24*time.Hour, "region=south", "h", "state"),
		reading("a", 90*time.Hour, "", "x"), reading("a", -48*time.Hour, "region=south", "state"), reading("a", 0, "weird=$value", "y"),
	} {
		b := storetest.Batch(t, "session", uint64(i+1), r)
		e := entry{b.Series(b.Row(0)), b.Shape(b.Row(0)), b.Row(0).Time, b.Row(0).Time}
		facts = append(facts, e.sensorUpdate(now))
	}
	var want []string
	for range 8 {
		_, err := daemons[0].collection.DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		for range 2 { // an update that is repeated changes nothing
			for _, i := range random.Perm(len(facts)) {
				facts[i].fresh = random.IntN(2) == 0 // or so it seems, if another daemon adds it meanwhile
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

// TestFreshSensorsAreInsertedAsUpdatesMakeThem compares the documents.
func TestFreshSensorsAreInsertedAsUpdatesMakeThem(t *testing.T) {
	t.Parallel()
	c := open(t, database(t), StreamConfig{}).collection
	now := time.Now()
	for i, r := range []telemetry.Reading{reading("a", 0, "", "t"), reading("b", 0, "z=1,a=$value", "t", "h", "state", "b"), reading("c", 0, "a=1", "state")} {
		b := storetest.Batch(t, "session", uint64(i+1), r)
		e := entry{b.Series(b.Row(0)), b.Shape(b.Row(0)), b.Row(0).Time, b.Row(0).Time}
		f := e.sensorUpdate(now)
		id := bson.D{{Key: "_id", Value: f.sensor}}
		_, err := c.InsertOne(t.Context(), f.document(now))
		require.NoError(t, err)
		inserted, err := c.FindOneAndDelete(t.Context(), id).Raw()
		require.NoError(t, err)
		_, err = c.BulkWrite(t.Context(), []mongo.WriteModel{f.update(now)})
		require.NoError(t, err)
		updated, err := c.FindOne(t.Context(), id).Raw()
		require.NoError(t, err)
		assert.JSONEq(t, updated.String(), inserted.String())
	}
}

func TestSensorsAreFoundByTagsAndIDs(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), StreamConfig{})
	all := []telemetry.Reading{
		reading("a/1", 0, "region=north,room=1", "t"), reading("a/2", 0, "region=south,room=1", "t"), reading("a/3", 0, "room=2", "t"),
		reading("b/é", 0, "region=north", "t"), reading("moved", 0, "region=north,room=9", "t"), reading("moved", time.Hour, "region=south,room=3", "t"),
	}
	see(t, s, all[:3]...)
	require.NoError(t, s.writeSome(t.Context()))
	see(t, s, all[3:]...) // these are not written
	for round, what := range []string{"partly written", "written"} {
		for _, tt := range []struct {
			want     string
			matchers []string
		}{
			{"a/1 a/2 a/3 b/é moved", nil},
			{"a/1 b/é moved", []string{"region=north"}},
			{"a/2 a/3 moved", []string{"region!=north"}},
			{"a/3", []string{"region="}},
			{"a/1 a/2 b/é moved", []string{"region=~north|south"}},
			{"a/1 a/2 b/é moved", []string{"region=~.+"}},
			{"a/2 moved", []string{"region=~s.*"}},
			{"a/3", []string{"region!~.+"}},
			{"a/1", []string{"region=north", "room=1"}},
			{"", []string{"region=north", "room=3"}}, // it had these at different times
			{"a/2 a/3", []string{"ID=~a/[23]"}},
			{"a/2", []string{"ID=~a/2|b/3", "region!=north"}},
			{"moved", []string{"ID=moved"}},
			{"b/é", []string{"ID=~b/.*"}},
		} {
			var got []string
			for one, err := range s.List(t.Context(), matching(t, tt.matchers...)) {
				require.NoError(t, err)
				got = append(got, one.ID)
			}
			assert.Equal(t, tt.want, strings.Join(got, " "), "%s: %v", what, tt.matchers)
		}
		for _, q := range []telemetry.SensorQuery{{Prefix: "a/", After: "a/1"}, {Prefix: "a/", After: "a/1", Limit: 1}} {
			assert.Equal(t, []string{"a/2 {region=south,room=1} t |", "a/3 {room=2} t |"}, list(t, s, q), what)
		}
		assert.Equal(t, []string{"b/é {region=north} t |"}, list(t, s, telemetry.SensorQuery{Prefix: "b/\xc3"}), what)
		if round == 0 {
			require.NoError(t, s.writeSome(t.Context()))
		}
	}
	assert.Equal(t, []string{"moved {region=north,room=9; region=south,room=3} t |"}, list(t, s, telemetry.SensorQuery{Prefix: "m"}), "the newest tags come last")
}

// check compares once with what is stored.
func check(t testing.TB, s *Stream) {
	t.Helper()
	require.NoError(t, s.checkOnce(t.Context(), time.Now()))
	require.NoError(t, s.Complete())
}

func TestCatalogIsBuiltFromStoredReadings(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Storage{store.Bucket, store.TimeSeries} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			from := openStore(t, db, kind)
			var readings []telemetry.Reading
			const sensors = checkPageSize + 10 // more than one step
			for i := range sensors {
				readings = append(readings, reading(fmt.Sprintf("s-%04d", i), 0, "region=north", "t"))
			}
			readings = append(readings, reading("s-0007", 24*time.Hour, "region=south", "h", "state"))
			storetest.WriteAll(t, from, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), 5*time.Minute))

			s := open(t, db, StreamConfig{Source: from})
			require.ErrorContains(t, s.Complete(), "is being built")
			check(t, s)
			got := list(t, s, telemetry.SensorQuery{})
			assert.Len(t, got, sensors)
			assert.Equal(t, "s-0006 {region=north} t |", got[6])
			assert.Equal(t, "s-0007 {region=north; region=south} h t | state", got[7])

			other := open(t, db, StreamConfig{Source: from})
			_, err := other.readState(t.Context())
			require.NoError(t, err)
			require.NoError(t, other.Complete(), "another daemon need not build it")

			require.NoError(t, s.collection.Drop(t.Context()))
			check(t, s)
			assert.Equal(t, got, list(t, s, telemetry.SensorQuery{}), "it was dropped")
		})
	}
}

func TestRebuildRestoresSensorsThatHaveReadings(t *testing.T) {
	t.Parallel()
	db := database(t)
	from := openStore(t, db, store.Bucket)
	storetest.WriteAll(t, from, storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "", "t"), reading("b", 0, "", "t")), 5*time.Minute))
	s := open(t, db, StreamConfig{Source: from})
	check(t, s)
	other := open(t, db, StreamConfig{Source: from})
	require.NoError(t, s.Delete(t.Context(), "a"))
	s.Rebuild()
	require.ErrorContains(t, s.Complete(), "is being built")

	// While it is rebuilt, so say other daemons, and a second call is not lost.
	s.Source = stepping{from, func() {
		_, err := other.readState(t.Context())
		require.NoError(t, err)
		assert.ErrorContains(t, other.Complete(), "is being built")
		s.Rebuild()
	}}
	require.NoError(t, s.checkOnce(t.Context(), time.Now()))
	require.ErrorContains(t, s.Complete(), "is being built")
	s.Source = from
	check(t, s)
	assert.Equal(t, []string{"a {} t |", "b {} t |"}, list(t, s, telemetry.SensorQuery{}))
}

// TestCheckThatWasTakenOverCompletesNothing has one that was taken over or whose catalog was dropped
// while it ran.
func TestCheckThatWasTakenOverCompletesNothing(t *testing.T) {
	t.Parallel()
	for name, interfere := range map[string]func(*Stream) error{
		"taken over": func(s *Stream) error {
			_, err := s.collection.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: ""}}, bson.D{{Key: "$set", Value: bson.D{{Key: "by", Value: "other"}}}})
			return err
		},
		"dropped": func(s *Stream) error { return s.collection.Drop(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			from := openStore(t, db, store.Bucket)
			s := open(t, db, StreamConfig{Source: from})
			s.Source = stepping{from, func() { assert.NoError(t, interfere(s)) }}
			require.NoError(t, s.checkOnce(t.Context(), time.Now()))
			require.ErrorContains(t, s.Complete(), "is being built")
		})
	}
}

// TestStoppedCheckIsContinuedAtOnce stops a daemon while it builds the catalog.
func TestStoppedCheckIsContinuedAtOnce(t *testing.T) {
	t.Parallel()
	db := database(t)
	from := openStore(t, db, store.Bucket)
	storetest.WriteAll(t, from, storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "", "t")), 5*time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	s := open(t, db, StreamConfig{Source: stepping{from, cancel}})
	s.check(ctx)
	require.ErrorContains(t, s.Complete(), "is being built")
	other := open(t, db, StreamConfig{Source: from})
	check(t, other)
	assert.Equal(t, []string{"a {} t |"}, list(t, other, telemetry.SensorQuery{}))
}

// stepping is a source that calls a function before it lists sensors.
type stepping struct {
	Source
	before func()
}

func (s stepping) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	s.before()
	return s.Source.Sensors(ctx, q)
}

func TestCheckRemovesSensorsWithoutReadings(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := open(t, db, StreamConfig{Source: openStore(t, db, store.Bucket)})
	check(t, s)
	see(t, s, reading("gone", 0, "", "t"), reading("new", 0, "", "t"))
	require.NoError(t, s.writeSome(t.Context()))
	_, err := s.collection.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "gone"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "written", Value: time.Now().Add(-2 * removeAfter)}}}})
	require.NoError(t, err)
	require.NoError(t, s.checkOnce(t.Context(), time.Now()))
	assert.Equal(t, []string{"new {} t |"}, list(t, s, telemetry.SensorQuery{}))

	set := storetest.Pending(storetest.Batch(t, "s1", 1, reading("gone", 0, "", "t"), reading("new", 0, "", "t")), 5*time.Minute)
	s.Wrap(after(func([]*batch.Pending) {})).Write(t.Context(), set)
	assert.Equal(t, []string{"gone {} t |", "new {} t |"}, list(t, s, telemetry.SensorQuery{}), "its bucket was set aside for more than a day")
}

// after is a store that calls a function in each write.
type after func(writes []*batch.Pending)

func (f after) Write(_ context.Context, writes []*batch.Pending) { f(writes) }

func TestSensorIsInTheCatalogBeforeItsReadingsAreStored(t *testing.T) {
	t.Parallel()
	db := database(t)
	s, other := open(t, db, StreamConfig{}), open(t, db, StreamConfig{})
	wrote := 0
	w := s.Wrap(after(func([]*batch.Pending) {
		wrote++
		assert.Equal(t, []string{"a {region=north; region=south} h t |", "b {} t |"}, list(t, other, telemetry.SensorQuery{}), "as another daemon sees it")
	}))
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "region=north", "t"), reading("a", time.Second, "region=south", "t", "h"), reading("b", 0, "", "t")), 5*time.Minute)
	w.Write(t.Context(), writes)
	w.Write(t.Context(), writes)
	assert.Equal(t, 2, wrote)
	assert.Empty(t, s.missing(writes))
	late := storetest.Pending(storetest.Batch(t, "s1", 9, reading("a", 72*time.Hour, "region=north", "t"), reading("b", -72*time.Hour, "", "t")), 5*time.Minute)
	assert.Len(t, s.missing(late), 2, "the span does not cover them")

	having := func(field string) telemetry.SensorQuery { return telemetry.SensorQuery{Fields: []string{field}} }
	assert.Equal(t, []string{"a {region=north; region=south} h t |"}, list(t, other, having("h")))
	assert.Empty(t, list(t, other, having("x")))
	see(t, other, reading("b", 0, "room=1", "x"), reading("c", 0, "", "x"))
	assert.Equal(t, []string{"b {; room=1} t x |", "c {} x |"}, list(t, other, having("x")), "not written yet")
}

func TestReadingsAreStoredIfTheCatalogCannotBeWritten(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := open(t, db, StreamConfig{})
	name := store.SensorsName(stream)
	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "create", Value: name}, {Key: "viewOn", Value: "x"}, {Key: "pipeline", Value: bson.A{}}}).Err())
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "", "t")), 5*time.Minute)
	wrote := 0
	w := s.Wrap(after(func([]*batch.Pending) { wrote++ }))
	w.Write(t.Context(), writes)
	w.Write(t.Context(), writes)
	assert.Equal(t, 2, wrote)
	assert.Equal(t, 1, s.waiting(), "it is written later")
	require.NoError(t, db.Collection(name).Drop(t.Context()))
	require.NoError(t, s.writeSome(t.Context()))
	assert.Equal(t, []string{"a {} t |"}, list(t, s, telemetry.SensorQuery{}))
}

func TestCatalogIsBuiltAgainAfterEntriesOfStoredReadingsWereDropped(t *testing.T) {
	t.Parallel()
	db := database(t)
	from := openStore(t, db, store.Bucket)
	s := open(t, db, StreamConfig{Source: from})
	check(t, s)
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "", "t"), reading("b", 0, "", "t")), 5*time.Minute)
	missing := s.missing(writes)
	storetest.WriteAll(t, from, writes)
	for i := range uint64(maxUnwritten) {
		s.note(i, entry{})
	}
	s.writeThroughAfter.Store(math.MaxInt64) // MongoDB has refused entries
	s.enter(t.Context(), missing)
	require.ErrorContains(t, s.Complete(), "is being built")

	clear(s.unwritten)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.write(ctx) })
	require.Eventually(t, s.rebuildPending.Load, time.Minute, 10*time.Millisecond)
	cancel()
	running.Wait()
	check(t, s)
	assert.Equal(t, []string{"a {} t |", "b {} t |"}, list(t, s, telemetry.SensorQuery{}))
}

func TestDeletedSensorEntersAgain(t *testing.T) {
	t.Parallel()
	db := database(t)
	daemons := []*Stream{open(t, db, StreamConfig{}), open(t, db, StreamConfig{})}
	one := storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "", "t")), 5*time.Minute)
	for _, s := range daemons {
		s.Wrap(after(func([]*batch.Pending) {})).Write(t.Context(), one)
		assert.Empty(t, s.missing(one))
	}
	require.NoError(t, daemons[0].Delete(t.Context(), "a"))
	assert.Empty(t, list(t, daemons[1], telemetry.SensorQuery{}))
	assert.Len(t, daemons[0].missing(one), 1)
	assert.Empty(t, daemons[1].missing(one), "it does not know yet")
	for _, forget := range [][]string{{"a"}, nil} {
		daemons[1].Forget(forget...)
		assert.Len(t, daemons[1].missing(one), 1)
		daemons[1].Wrap(after(func([]*batch.Pending) {})).Write(t.Context(), one)
		assert.Empty(t, daemons[1].missing(one))
		assert.Equal(t, []string{"a {} t |"}, list(t, daemons[0], telemetry.SensorQuery{}))
	}
}

func TestNothingIsWrittenAgainAfterARestart(t *testing.T) {
	t.Parallel()
	db := database(t)
	first := open(t, db, StreamConfig{})
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, reading("a", 0, "region=north", "t", "state"), reading("b", 0, "", "t")), 5*time.Minute)
	discard := after(func([]*batch.Pending) {})
	first.Wrap(discard).Write(t.Context(), writes)
	again := open(t, db, StreamConfig{})
	again.Wrap(discard).Write(t.Context(), writes)
	assert.Empty(t, again.missing(writes))
	for s, want := range map[*Stream]float64{first: 2, again: 0} {
		assert.InDelta(t, want, testutil.ToFloat64(s.catalog.metrics.written.WithLabelValues(stream)), 0)
	}
}

func TestSetsOfASensorAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), StreamConfig{})
	for i := range maxSets + 5 {
		see(t, s, reading("a", time.Duration(i)*time.Second, fmt.Sprintf("n=%d", i), "t"))
		require.NoError(t, s.writeSome(t.Context()))
	}
	for one, err := range s.List(t.Context(), telemetry.SensorQuery{}) {
		require.NoError(t, err)
		require.Len(t, one.Sets, maxSets)
		assert.Equal(t, "5", one.Sets[0].Tags[0].Value)
		assert.Equal(t, fmt.Sprint(maxSets+4), one.Tags()[0].Value)
	}
}

func TestUnwrittenEntriesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), StreamConfig{})
	series := storetest.Batch(t, "s1", 1, reading("a", 0, "", "t")).SeriesAt(0)
	for i := range uint64(maxUnwritten) {
		s.note(i, entry{series: series})
	}
	assert.False(t, s.Overflowed())
	s.note(maxUnwritten, entry{series: series})
	assert.True(t, s.Overflowed())
	assert.Equal(t, maxUnwritten, s.waiting())
}

func TestKnownIsBounded(t *testing.T) {
	t.Parallel()
	k := newKnown(64 * 100)
	var last uint64
	for i := range uint64(100_000) {
		last = i * 0x9E3779B97F4A7C15
		k.put(last, written{1, 2})
	}
	entries := 0
	for i := range k.shards {
		entries += len(k.shards[i].young) + len(k.shards[i].old)
	}
	assert.LessOrEqual(t, entries, 64*100)
	assert.True(t, k.covers(last, minute, minute))
}

// TestRunWritesWhatWasSeen runs a catalog as a daemon does.
func TestRunWritesWhatWasSeen(t *testing.T) {
	t.Parallel()
	db := database(t)
	ready := make(chan struct{})
	s, other := open(t, db, StreamConfig{Source: openStore(t, db, store.Bucket), Ready: ready}), open(t, db, StreamConfig{})
	close(ready)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.catalog.Run(ctx) })
	defer running.Wait()
	defer cancel()
	see(t, s, reading("a", 0, "region=north", "t"))
	require.Eventually(t, func() bool {
		return len(list(t, other, telemetry.SensorQuery{})) == 1 && s.Complete() == nil
	}, time.Minute, 10*time.Millisecond)
}

// BenchmarkBefore measures what the catalog costs an update of 60 readings of a sensor
// that is in it.
func BenchmarkBefore(b *testing.B) {
	var s Stream
	s.known = newKnown(1000)
	readings := make([]telemetry.Reading, 60)
	for i := range readings {
		readings[i] = reading("cpu,hostname=host_1,region=eu", time.Duration(i)*time.Second, "hostname=host_1,region=eu", "a", "b", "c", "d")
	}
	writes := storetest.Pending(storetest.Batch(b, "s1", 1, readings...), time.Hour)
	for key, e := range s.missing(writes) {
		s.known.put(key, e.sensorUpdate(time.Now()).span)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.missing(writes) != nil {
			b.Fatal("it is known")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*60), "ns/reading")
}

// BenchmarkNew measures the CPU time that a new sensor costs, here and in MongoDB.
func BenchmarkNew(b *testing.B) {
	s, own, mongod := open(b, database(b), StreamConfig{}), os.Getpid(), mongodtest.Shared(b).Pid()
	require.NoError(b, s.prepare(b.Context()))
	cpu := func(pid int) time.Duration {
		used, err := machine.CPU(pid)
		require.NoError(b, err)
		return used
	}
	n := 0
	before, mongodBefore := cpu(own), cpu(mongod)
	for b.Loop() {
		var readings []telemetry.Reading
		for range bulkSize {
			n++
			readings = append(readings, reading(fmt.Sprintf("cpu,hostname=host_%d,region=eu", n), 0, fmt.Sprintf("hostname=host_%d,region=eu", n), "a", "b", "c", "d"))
		}
		if err := s.bulk(b.Context(), s.missing(storetest.Pending(storetest.Batch(b, "s1", 1, readings...), time.Hour))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(own)-before).Microseconds())/float64(n), "brim-µs/sensor")
	b.ReportMetric(float64((cpu(mongod)-mongodBefore).Microseconds())/float64(n), "mongod-µs/sensor")
}

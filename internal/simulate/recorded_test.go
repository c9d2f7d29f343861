package simulate

import (
	"bytes"
	"context"
	"fmt"
	"math"
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
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// exchanged is a command of a store, and the model's reply.
type exchanged struct {
	message
	reply bson.Raw
}

// TestStoresAreAnsweredAsByMongoDB has the stores write to the model and read from it,
// and sends the same commands to a real mongod.
func TestStoresAreAnsweredAsByMongoDB(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Storage{store.Bucket, store.TimeSeries} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6) {
				database := mongodtest.Database(t).Name()
				recorded := recordStores(t, kind, database, rand.New(rand.NewPCG(seed, 0)))
				r := replay{reference: dialReference(t), uuids: map[string]string{}, cursors: map[int64]int64{}, series: kind == store.TimeSeries}
				for i, e := range recorded {
					ours, theirs := r.exchange(t, e)
					if !assert.Equal(t, ours, theirs, "seed %d, command %d of %d: %v", seed, i, len(recorded), &e.message) {
						return
					}
				}
			}
		})
	}
}

// recordStores returns what two stores of one collection exchange with the model.
func recordStores(t *testing.T, kind store.Storage, database string, r *rand.Rand) (out []exchanged) {
	t.Helper()
	m := NewMongoDB("a.example:27017")
	m.Immediately()
	m.observe = func(msg *message, reply bson.D) {
		if !slices.Contains([]string{"hello", "isMaster", "ping", "endSessions", "killCursors", "buildInfo", "replSetGetConfig"}, msg.name()) {
			out = append(out, exchanged{*msg, marshal(reply)})
		}
	}
	client, err := mongo.Connect(options.Client().ApplyURI(m.URI()).SetDialer(m.Dialer("a")))
	require.NoError(t, err)
	journaled := true
	db := client.Database(database, options.Database().SetReadConcern(readconcern.Majority()).SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	w := workload{Rand: r, t: t, kind: kind, db: db}
	w.run()
	require.NoError(t, client.Disconnect(context.Background()))
	m.Close()
	return out
}

type workload struct {
	*rand.Rand

	t    *testing.T
	kind store.Storage
	db   *mongo.Database
	seq  uint64
	ms   int64
}

func (w *workload) open() storetest.Store {
	cfg := store.Config{
		Database: w.db, Stream: storetest.Stream, Granularity: 5 * time.Minute, View: w.IntN(2) == 0, Retention: time.Duration(w.IntN(2)) * 50 * 365 * 24 * time.Hour,
		MaxReadings: 3 + w.IntN(20), MaxBytes: 1024 << w.IntN(4), Registerer: prometheus.NewRegistry(),
	}
	var s storetest.Store
	var err error
	if w.kind == store.TimeSeries {
		s, err = timeseries.New(cfg)
	} else {
		s, err = bucket.New(cfg)
	}
	require.NoError(w.t, err)
	require.NoError(w.t, s.Prepare(w.t.Context()))
	return s
}

func (w *workload) run() {
	claims := claim.New(claim.Config{Database: w.db, Sessions: func() []string { return []string{"s1", "s2"} }, OnLost: func(string) error { return nil }})
	require.NoError(w.t, claims.Ensure(w.t.Context()))
	stores := []storetest.Store{w.open(), w.open()}
	for range 12 {
		n := w.IntN(2)
		s, b := stores[n], w.batch(fmt.Sprintf("s%d", n+1))
		storetest.WriteAll(w.t, s, storetest.Pending(b, 5*time.Minute))
		if w.IntN(2) == 0 {
			again := storetest.Pending(b, 5*time.Minute)
			for _, p := range again {
				p.Recovered = true
			}
			storetest.WriteAll(w.t, s, again)
		}
		if w.IntN(3) == 0 {
			w.read(s)
		}
	}
	_, err := stores[0].Delete(w.t.Context(), "b")
	require.NoError(w.t, err)
	w.read(stores[0])
	claims.Close(w.t.Context())
}

// batch draws readings. No two are of the same time: MongoDB would return those of a
// time series in any order.
func (w *workload) batch(session string) *batch.Batch {
	var readings []telemetry.Reading
	for range 1 + w.IntN(8) {
		w.ms += 1 + int64(w.IntN(40_000))
		r := storetest.Reading([]string{"a", "b", "é"}[w.IntN(3)], time.Duration(w.ms)*time.Millisecond, w.NormFloat64())
		if w.IntN(2) == 0 {
			r.Fields = append(r.Fields, telemetry.Field{Name: []string{"i", "10", "9"}[w.IntN(3)], Value: []telemetry.Value{
				telemetry.IntValue(w.Int64()), telemetry.IntValue(3), telemetry.FloatValue(3), telemetry.FloatValue(math.Copysign(0, -1)), telemetry.TextValue("text"), telemetry.BoolValue(true),
			}[w.IntN(6)]})
		}
		if w.IntN(3) == 0 {
			r.Tags = []telemetry.Tag{{Name: "site", Value: []string{"north", "south"}[w.IntN(2)]}}
		}
		readings = append(readings, r)
	}
	b := storetest.Batch(w.t, session, w.seq+1, readings...)
	w.seq += uint64(len(readings))
	return b
}

func (w *workload) read(s storetest.Store) {
	q := telemetry.Query{Sensor: "a", From: storetest.Base.UnixMilli(), To: storetest.Base.UnixMilli() + w.ms, Limit: w.IntN(2) * 5}
	for _, err := range s.Readings(w.t.Context(), q) {
		require.NoError(w.t, err)
	}
	for _, err := range s.Summary(w.t.Context(), telemetry.SummaryQuery{Query: q, Every: 60_000}) {
		require.NoError(w.t, err)
	}
	for _, err := range s.Sensors(w.t.Context(), telemetry.SensorQuery{}) {
		require.NoError(w.t, err)
	}
	_, _, err := s.Latest(w.t.Context(), "a", nil)
	require.NoError(w.t, err)
}

// replay sends commands to a real mongod.
type replay struct {
	*reference

	uuids   map[string]string // of the model's collections, as MongoDB chose them
	cursors map[int64]int64   // likewise
	series  bool
}

// exchange sends a command with MongoDB's own numbers and without waiting for its disk,
// and returns the two replies as texts.
func (r *replay) exchange(t *testing.T, e exchanged) (ours, theirs string) {
	t.Helper()
	m := e.message
	m.body = bson.Raw(rebuild(document(m.body), func(key string, v value) value {
		switch {
		case key == "writeConcern":
			return value{Type: bsoncore.TypeEmbeddedDocument, Data: []byte(marshal(bson.D{{Key: "w", Value: 1}}))}
		case key == "readConcern": // the majority of one lags behind
			return value{}
		case key == "collectionUUID":
			_, id := v.Binary()
			return value{Type: bsoncore.TypeBinary, Data: bsoncore.AppendBinary(nil, 4, []byte(r.uuids[string(id)]))}
		case key == "getMore":
			return int64Value(r.cursors[v.Int64()])
		case key == "maxTimeMS", key == "lsid" && missing(at(m.body, "txnNumber")):
			return value{}
		}
		return v
	}))
	reply, err := r.run(&m)
	require.NoError(t, err)
	if id, ok := reply.Lookup("cursor", "id").Int64OK(); ok {
		r.cursors[e.reply.Lookup("cursor", "id").Int64()] = id
	}
	if m.name() == "listCollections" {
		r.learn(e.reply, reply)
	}
	return r.text(&m, e.reply), r.text(&m, reply)
}

// learn notes which collections are the same.
func (r *replay) learn(ours, theirs bson.Raw) {
	for _, a := range elements(at(ours, "cursor", "firstBatch").Data) {
		for _, b := range elements(at(theirs, "cursor", "firstBatch").Data) {
			id := at(a.Value().Data, "info", "uuid")
			if compare(at(a.Value().Data, "name"), at(b.Value().Data, "name")) == 0 && !missing(id) {
				_, ourID := id.Binary()
				_, theirID := at(b.Value().Data, "info", "uuid").Binary()
				r.uuids[string(ourID)] = string(theirID)
			}
		}
	}
}

// text shows a reply without what may differ.
func (r *replay) text(m *message, reply bson.Raw) string {
	command := bson.D{{Key: m.name(), Value: ""}}
	out := normalized(reply, command)
	for i, e := range out {
		// Of time series 6.0.5 counts refused documents as well, and buckets that it removed.
		if e.Key == "n" && r.series {
			out[i].Value = 0
		}
		docs, ok := e.Value.(bson.A)
		if e.Key != "documents" || !ok {
			continue
		}
		var texts []string
		for _, d := range docs {
			texts = append(texts, r.document(m, document(d.(bson.RawValue).Value)))
		}
		if m.body.Lookup("sort").Type == 0 {
			slices.Sort(texts)
		}
		out[i].Value = "\n" + strings.Join(texts, "\n")
	}
	text, err := bson.MarshalExtJSON(out, true, false)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "\\n", "\n")
}

// document shows one. A time series does not keep the order of its fields.
func (r *replay) document(m *message, d document) string {
	hidden := [][]string{{"renewed"}, {"since"}}
	if m.name() == "listCollections" && strings.HasPrefix(textOf(at(d, "name")), "system.buckets.") {
		hidden = append(hidden, []string{"options"})
	}
	d = without(d, hidden)
	if r.series {
		d = byName(d)
	}
	return bson.Raw(rebuild(d, func(key string, v value) value {
		if key == "options" {
			return value{Type: v.Type, Data: byName(v.Data)}
		}
		return v
	})).String()
}

func byName(d document) document {
	of := elements(d)
	slices.SortFunc(of, func(a, b bsoncore.Element) int { return bytes.Compare(a.KeyBytes(), b.KeyBytes()) })
	out := []byte{0, 0, 0, 0}
	for _, e := range of {
		out = append(out, e...)
	}
	return finish(out)
}

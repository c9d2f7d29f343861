package bucket

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const endOfTime = 253_402_300_800_000

// sealAll seals all unsealed parts of the sensor, and returns how many.
func sealAll(t require.TestingT, s *Store, sensor string) (sealed int) {
	ctx, r := context.Background(), s.NewSealer()
	for doc, err := range s.Unsealed(ctx, sensor, 0, endOfTime, 0) {
		require.NoError(t, err)
		one, err := r.Seal(slices.Clone(doc), time.Now())
		require.NoError(t, err)
		n, err := s.ApplySeals(ctx, []Seal{one})
		require.NoError(t, err)
		sealed += n
	}
	return sealed
}

// sealing is a store that seals everything after each write.
type sealing struct{ *Store }

func (s sealing) Write(ctx context.Context, writes []*batch.Pending) {
	s.Store.Write(ctx, writes)
	r := s.NewSealer()
	for _, pending := range writes {
		for doc, err := range s.Unsealed(context.Background(), pending.Sensor, 0, endOfTime, 0) {
			if err != nil {
				panic(err)
			}
			one, err := r.Seal(doc, storetest.Base)
			if err != nil {
				panic(err)
			}
			// Another writer may have appended meanwhile.
			if _, err := s.ApplySeals(context.Background(), []Seal{one}); err != nil {
				panic(err)
			}
		}
	}
}

// mixed are a sensor's readings with values of several kinds, out of order, with tags.
func mixed(from, to int) (out []telemetry.Reading) {
	for i := from; i < to; i++ {
		r := storetest.Reading("a", time.Duration(i*37%60)*time.Second, float64(i)/4)
		switch i % 4 {
		case 1:
			r.Fields = append(r.Fields, telemetry.Field{Name: "n", Value: telemetry.IntValue(int64(i) << 50)})
		case 2:
			r.Fields[0].Value = telemetry.IntValue(int64(i))
			r.Tags = []telemetry.Tag{{Name: "site", Value: "north"}}
		case 3:
			r.Fields = []telemetry.Field{{Name: "state", Value: telemetry.TextValue("on")}, {Name: "ok", Value: telemetry.BoolValue(i%8 == 3)}}
		}
		out = append(out, r)
	}
	return out
}

func TestSealedPartHasTheSameReadings(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"documents": {}, "columns": {Format: store.Columns}, "both, compressed": {Format: store.Columns, CanReadColumns: alternating(), MaxReadingsPerUpdate: 7}, "with view": {View: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			s := open(t, db, cfg)
			summary := func() (out []telemetry.Summary) {
				for one, err := range s.Summary(t.Context(), telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "a", To: endOfTime}, Every: time.Hour.Milliseconds()}) {
					require.NoError(t, err)
					out = append(out, one)
				}
				return out
			}
			readings := mixed(0, 50)
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
			before, sums := storetest.ReadAll(t, s, "a"), summary()
			newest, _, err := s.Latest(t.Context(), "a", nil)
			require.NoError(t, err)

			require.Len(t, documents(t, db), sealAll(t, s, "a"))
			assert.Zero(t, sealAll(t, s, "a"), "nothing is left")
			for _, d := range documents(t, db) {
				assert.Len(t, d["blocks"], 1)
				assert.NotContains(t, d, "measurements")
			}
			assert.Equal(t, before, storetest.ReadAll(t, s, "a"))
			assert.Equal(t, sums, summary())
			after, _, err := s.Latest(t.Context(), "a", nil)
			require.NoError(t, err)
			assert.Equal(t, newest, after)

			again := storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window)
			for _, pending := range again {
				pending.Recovered = true
			}
			storetest.WriteAll(t, s, again)
			assert.Len(t, storetest.ReadAll(t, s, "a"), 50, "the guard outlives sealing")
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 51, mixed(50, 60)...), window))
			all := storetest.ReadAll(t, s, "a")
			assert.Len(t, all, 60)
			sums = summary()
			require.Positive(t, sealAll(t, s, "a"))
			assert.Equal(t, all, storetest.ReadAll(t, s, "a"))
			assert.Equal(t, sums, summary())
		})
	}
}

func TestSealMatchesNothingIfThePartChanged(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, mixed(0, 5)...), window))
	r := s.NewSealer()
	var seals []Seal
	for doc, err := range s.Unsealed(t.Context(), "a", 0, endOfTime, 0) {
		require.NoError(t, err)
		one, err := r.Seal(doc, storetest.Base)
		require.NoError(t, err)
		seals = append(seals, one)
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s2", 1, mixed(5, 6)...), window))
	n, err := s.ApplySeals(t.Context(), seals)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 6)
	assert.Equal(t, 1, sealAll(t, s, "a"))
}

func TestOnlyWindowsThatHaveEndedAreUnsealed(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	start := storetest.Base.UnixMilli()
	var readings []telemetry.Reading
	for i := range 4 {
		readings = append(readings, storetest.Reading("a", time.Duration(i)*window, 1))
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
	ended := start + 2*window.Milliseconds()
	for from, want := range map[int64]int{0: 2, start: 2, start + 1: 1} {
		n := 0
		for doc, err := range s.Unsealed(t.Context(), "a", from, ended, 0) {
			require.NoError(t, err)
			require.NoError(t, doc.Validate())
			n++
		}
		assert.Equal(t, want, n, from)
	}
}

// TestLateReadingWhoseReplyWasLost is recorded when a lookup finds it.
func TestLateReadingWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	late := storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1))
	storetest.WriteAll(t, s, storetest.Pending(late, s.Granularity))
	s.TakeLate(endOfTime) // as if nothing had been recorded
	again := storetest.Pending(late, s.Granularity)
	again[0].Recovered = true
	storetest.WriteAll(t, s, again)
	sensors, _ := s.TakeLate(endOfTime)
	assert.Contains(t, sensors, "a")
}

func TestPartThatIsNotWhatItSaysIsNotSealed(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{Format: store.Columns})
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, mixed(0, 5)...), window))
	collection := db.Collection(storetest.Stream)
	for change, want := range map[string]string{
		`{"$set": {"count": 4}}`:      "more readings than its document counts",
		`{"$set": {"count": 6}}`:      "has 5 readings, and its count is 6",
		`{"$set": {"blocks": ["x"]}}`: "is not binary",
		`{"$set": {"blocks": [{"$binary": {"base64": "AQAAAAAAAAAA", "subType": "00"}}]}}`: "checksum",
		`{"$set": {"count": "x"}}`: "its count is",
	} {
		var update bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(change), false, &update))
		doc, err := collection.FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		_, err = collection.UpdateOne(t.Context(), bson.D{}, update)
		require.NoError(t, err)
		changed, err := collection.FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		_, err = s.NewSealer().Seal(changed, storetest.Base)
		require.ErrorContains(t, err, want)
		_, err = collection.ReplaceOne(t.Context(), bson.D{}, doc)
		require.NoError(t, err)
	}
	require.Equal(t, 1, sealAll(t, s, "a"))
}

// TestViewShowsReadingsInBlocks as documents, appended and sealed ones.
func TestViewShowsReadingsInBlocks(t *testing.T) {
	t.Parallel()
	db := connect(t)
	flat := func() (out []telemetry.Reading) {
		cursor, err := db.Collection(store.ViewName(storetest.Stream)).Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var docs []struct {
			TS     time.Time     `bson:"ts"`
			Fields bson.Raw      `bson:"fields"`
			Tags   bson.RawValue `bson:"tags"`
		}
		require.NoError(t, cursor.All(t.Context(), &docs))
		for _, d := range docs {
			decoder := store.Decoder{Sensor: "a"}
			r, err := decoder.Reading(d.Fields, store.TagsOf(d.Tags))
			require.NoError(t, err)
			r.Time = d.TS.UTC()
			out = append(out, r)
		}
		return out
	}
	s := open(t, db, Config{Format: store.Columns, View: true})
	readings := mixed(0, 40)
	readings[0].Fields = append(readings[0].Fields, telemetry.Field{Name: "__proto__", Value: telemetry.IntValue(1)})
	readings[1].Tags = []telemetry.Tag{{Name: "__proto__", Value: "x"}}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings[:20]...), window))
	documents := open(t, db, Config{View: true})
	storetest.WriteAll(t, documents, storetest.Pending(storetest.Batch(t, "s2", 1, readings[20:]...), window))
	assert.Equal(t, readings, flat())
	sorted := storetest.ReadAll(t, s, "a")
	require.Equal(t, 1, sealAll(t, s, "a"))
	assert.Equal(t, sorted, flat())
}

// TestOrderOfReadingsStaysWhenTheFormatChanges, since a client may be between two pages.
func TestOrderOfReadingsStaysWhenTheFormatChanges(t *testing.T) {
	t.Parallel()
	db := connect(t)
	columns, documents := open(t, db, Config{Format: store.Columns}), open(t, db, Config{})
	var want []telemetry.Reading
	for i, s := range []*Store{documents, columns, columns, documents, columns, documents} {
		r := storetest.Reading("a", 0, float64(i)) // all at the same time
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(1+i), r), window))
		want = append(want, r)
		require.Equal(t, want, storetest.ReadAll(t, s, "a"))
	}
	require.Equal(t, 3, sealAll(t, columns, "a"))
	assert.Equal(t, want, storetest.ReadAll(t, columns, "a"))
}

// TestBlockHasRoomForTheFieldsOfAnUpdate: if there are more fields than a block may have,
// several are used.
func TestBlockHasRoomForTheFieldsOfAnUpdate(t *testing.T) {
	t.Parallel()
	var readings []telemetry.Reading
	for i := range block.MaxColumns/telemetry.MaxFields + 10 {
		r := telemetry.Reading{Sensor: "a", Time: storetest.Base}
		for f := range telemetry.MaxFields {
			r.Fields = append(r.Fields, telemetry.Field{Name: fmt.Sprintf("f%d_%d", i, f), Value: telemetry.BoolValue(true)})
		}
		readings = append(readings, r)
	}
	s := unconnected(Settings{Format: store.Columns, MaxReadings: 20_000, MaxBytes: maxPartBytes})
	pending := storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window)[0]
	var enc encoder
	for sent := 0; len(pending.Rows) > 0; sent++ {
		require.Less(t, sent, 4)
		op, ok := s.cut(pending, &part{})
		require.True(t, ok)
		_, err := enc.update(nil, &op)
		require.NoError(t, err)
		pending.Drop(len(op.rows))
	}
}

// TestReadingsWithDifferentFieldsFitIntoBlocks, even if all are written and sealed together.
func TestReadingsWithDifferentFieldsFitIntoBlocks(t *testing.T) {
	t.Parallel()
	const n = 12_000
	s := open(t, connect(t), Config{Format: store.Columns, MaxReadings: 20_000, MaxBytes: 2 << 20})
	var readings []telemetry.Reading
	for i := range n {
		r := storetest.Reading("a", time.Duration(i*7%n)*time.Millisecond, 1)
		r.Fields[0].Name = fmt.Sprint("f", i)
		readings = append(readings, r)
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
	assert.Len(t, storetest.ReadAll(t, s, "a"), n)
	require.Equal(t, 1, sealAll(t, s, "a"))
	assert.Len(t, storetest.ReadAll(t, s, "a"), n)
}

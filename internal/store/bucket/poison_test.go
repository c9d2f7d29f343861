package bucket

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestSpoiledPartIsLeftBehind: no update can be applied to a part, so its
// readings go to the next part, and none is given up.
func TestSpoiledPartIsLeftBehind(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	first := storetest.Reading("a", 0, 1)
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, first), window))
	_, err := db.Collection(storetest.Stream).UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "measurements", Value: "spoiled"}}}})
	require.NoError(t, err)
	var readings []telemetry.Reading
	for i := range 9 {
		readings = append(readings, storetest.Reading("a", time.Duration(i+1)*time.Second, float64(i)))
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 2, readings...), window))
	docs := documents(t, db)
	require.Greater(t, len(docs), 1)
	assert.Equal(t, true, docs[0]["full"], "the spoiled part is closed")
	total := 0
	for _, d := range docs[1:] {
		m, ok := d["measurements"].(bson.A)
		require.True(t, ok)
		total += len(m)
	}
	assert.Equal(t, 9, total)
}

// TestOnePoisonReadingIsFoundAmongMany: its field name cannot be addressed by a
// path; validation would never accept it.
func TestOnePoisonReadingIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	var readings []telemetry.Reading
	for i := range 20 {
		readings = append(readings, storetest.Reading("a", time.Duration(i)*time.Second, float64(i)))
	}
	b := storetest.Batch(t, "s1", 1, readings...)
	poisoned := storetest.Batch(t, "s1", 14, storetest.Reading("a", 13*time.Second, 13))
	shape := poisoned.Shape(poisoned.Row(0))
	shape.Fields[0].Name = "a..b"
	writes := storetest.Pending(b, window)
	writes[0].Rows[13] = batch.Ref{Batch: poisoned, Index: 0}
	var buried []uint64
	for len(writes[0].Rows) > 0 {
		s.Write(context.Background(), writes)
		require.NotEqual(t, batch.Wait, writes[0].Verdict, "%v", writes[0].Err)
		if writes[0].Verdict == batch.Poison {
			buried = append(buried, writes[0].Rows[0].Seq())
			writes[0].Drop(1)
		}
	}
	assert.Equal(t, []uint64{14}, buried)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 19)
}

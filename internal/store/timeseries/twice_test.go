package timeseries

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestReadingsComeOnceWhileABucketGrows inserts a reading between two batches of an answer. The
// insert moves MongoDB's last bucket in the index, so the server returns it again.
func TestReadingsComeOnceWhileABucketGrows(t *testing.T) {
	t.Parallel()
	const perBucket = 60
	// A busy server yields after each bucket. This one always does.
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"internalDocumentSourceCursorBatchSizeBytes": "1"}})
	prepare := func(t *testing.T) (s *Store, grow func(), query telemetry.Query) {
		t.Helper()
		s = open(t, mongodtest.DatabaseAt(t, server.URI()), Config{})
		var readings []telemetry.Reading
		for hour := 0; hour < 6; hour += 2 {
			for i := range perBucket {
				readings = append(readings, storetest.Reading("a", time.Duration(hour)*time.Hour+time.Duration(i)*time.Second, float64(len(readings))))
			}
		}
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), 5*time.Minute))
		grow = func() {
			next := storetest.Reading("a", 4*time.Hour+perBucket*time.Second, 0)
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s2", 1, next), 5*time.Minute))
		}
		return s, grow, telemetry.Query{Sensor: "a", From: storetest.Base.UnixMilli(), To: storetest.Base.Add(4*time.Hour + perBucket*time.Second).UnixMilli(), Expected: 1}
	}
	t.Run("readings", func(t *testing.T) {
		t.Parallel()
		s, grow, query := prepare(t)
		n := 0
		for r, err := range s.Readings(t.Context(), query) {
			require.NoError(t, err)
			if n == perBucket {
				grow()
			}
			require.EqualValues(t, n, r.Fields[0].Value.Float())
			n++
		}
		assert.Equal(t, 3*perBucket, n)
	})
	t.Run("summary", func(t *testing.T) {
		t.Parallel()
		s, grow, query := prepare(t)
		var counts []int64
		for step, err := range s.Summary(t.Context(), telemetry.SummaryQuery{Query: query, Every: time.Hour.Milliseconds()}) {
			require.NoError(t, err)
			if counts == nil {
				grow()
			}
			counts = append(counts, step.Count)
		}
		assert.Equal(t, []int64{perBucket, perBucket, perBucket}, counts)
	})
}

package bucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// repeated are readings with few different times, values and tags, so that many are identical.
func repeated(sensor string, n int, random *rand.Rand) (out []telemetry.Reading) {
	for range n {
		r := storetest.Reading(sensor, time.Duration(random.IntN(20))*10*time.Second, float64(random.IntN(2)))
		switch random.IntN(4) {
		case 0:
			r.Fields[0].Value = telemetry.IntValue(int64(random.IntN(2)))
		case 1:
			r.Fields = append(r.Fields, telemetry.Field{Name: "a", Value: telemetry.TextValue("x")})
		case 2:
			r.Fields = append([]telemetry.Field{{Name: "a", Value: telemetry.TextValue("x")}}, r.Fields...)
		}
		if random.IntN(3) == 0 {
			r.Tags = []telemetry.Tag{{Name: "site", Value: "north"}}
		}
		out = append(out, r)
	}
	return out
}

func distinct(ctx context.Context, t *testing.T, s *Store, q telemetry.Query) (out []telemetry.Reading) {
	t.Helper()
	for r, err := range store.DeduplicatedReadings(ctx, q, s.Readings) {
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// TestDuplicatesAreTheSameBeforeAndAfterSealing, whatever the part and format of the readings,
// and the pages of an answer.
func TestDuplicatesAreTheSameBeforeAndAfterSealing(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{Format: store.Columns, CanReadColumns: alternating(), MaxReadings: 20, Duplicates: store.DropIdentical})
	dropped := 0
	for seed := range uint64(4) {
		sensor, random := fmt.Sprint("s", seed), rand.New(rand.NewPCG(seed, 1))
		write := func(from uint64, n int) {
			for some := range slices.Chunk(repeated(sensor, n, random), 4) { // so that parts have both formats
				storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "session", from, some...), window))
				from += 4
			}
		}
		query := telemetry.Query{Sensor: sensor, To: endOfTime}
		steps := telemetry.SummaryQuery{Query: query, Every: time.Minute.Milliseconds()}
		summary := func() (out []telemetry.Summary) {
			for one, err := range store.Summarize(steps, store.DeduplicatedReadings(t.Context(), steps.Query, s.Readings), nil) {
				require.NoError(t, err)
				out = append(out, one)
			}
			return out
		}
		from, written := 1+seed*1000, 40
		write(from, written)
		for range 2 {
			before, sums := distinct(t.Context(), t, s, query), summary()
			assert.Less(t, len(before), written)
			assert.Positive(t, sealAll(t, s, sensor))
			assert.Zero(t, sealAll(t, s, sensor), "nothing is left")
			assert.Equal(t, before, distinct(t.Context(), t, s, query))
			assert.Equal(t, sums, summary())
			assert.Equal(t, before, inPages(t, s, query, 1+random.IntN(4)))
			dropped += written - len(storetest.ReadAll(t, s, sensor))
			from += 100
			written = len(storetest.ReadAll(t, s, sensor)) + 10
			write(from, 10) // late
		}
	}
	assert.Positive(t, dropped, "sealing drops them")
	n, err := db.Collection(storetest.Stream).CountDocuments(t.Context(), bson.D{{Key: "sealed", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(t, err)
	assert.Positive(t, n)
}

// inPages pages through an answer like a client: from a time on, without the readings of
// that time already seen.
func inPages(t *testing.T, s *Store, q telemetry.Query, limit int) (out []telemetry.Reading) {
	t.Helper()
	for skip := 0; ; {
		ask := q
		ask.Limit = limit + skip + 1
		page := distinct(t.Context(), t, s, ask)
		page = page[min(skip, len(page)):]
		if len(page) <= limit {
			return append(out, page...)
		}
		page = page[:limit]
		out = append(out, page...)
		last := page[limit-1].Time
		q.From, skip = last.UnixMilli(), 0
		for _, r := range out {
			if r.Time.Equal(last) {
				skip++
			}
		}
	}
}

package granularity

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/bench/shape"
)

func TestBucketsStayWithinFivePercent(t *testing.T) {
	t.Parallel()
	for _, n := range []*numbers{numbersOf(true), numbersOf(false)} {
		for _, residents := range n.appends.residents {
			for _, k := range n.appends.perUpdate {
				c := n.fit(stockConfig{residents: residents, perUpdate: k}, 9, n.bulk)
				most := make(map[int]int)
				f := filled(c, func(p shape.Portion) {
					assert.Equal(t, uint64(residents+most[p.Sensor]), p.First, "each reading once") //nolint:gosec // counts
					most[p.Sensor] += p.Count
				})
				(&stock{stockConfig: c, fleet: f}).bulk(t.Context(), c.appends)
				for _, grew := range most {
					assert.True(t, grew == k || float64(grew) <= grown*float64(residents), "%d held, %d an append: grew by %d", residents, k, grew)
				}
				assert.GreaterOrEqual(t, c.appends, 9*fewestAppends)
				assert.LessOrEqual(t, c.buckets()*(residents+k)*70, max(n.stockBytes, 9*fewestAppends*(residents+k)*70))
			}
		}
	}
}

// recorder is a writer that passes on its portions.
type recorder func(shape.Portion)

func (r recorder) Write(_ context.Context, portions []shape.Portion) int {
	for _, p := range portions {
		r(p)
	}
	return len(portions)
}

// filled returns a fleet just after filling, with writes passed to a function.
func filled(c stockConfig, write recorder) *shape.Fleet {
	f := shape.NewFleet(shape.Order(c.buckets()), []shape.Writer{write}, c.perUpdate, 1)
	for i := range f.Workers[0].Next {
		f.Workers[0].Next[i] = uint64(c.residents) //nolint:gosec // counts
	}
	return f
}

func TestWindowHasRoomForAllReadings(t *testing.T) {
	t.Parallel()
	for _, c := range []stockConfig{{residents: 3600, perUpdate: 1}, {residents: 3600, perUpdate: 60}, {residents: 1, perUpdate: 60}, {residents: 719, perUpdate: 1}} {
		s := stock{stockConfig: c}
		last := time.Duration(c.residents+c.each()*c.perUpdate-1) * s.interval()
		assert.Less(t, last, time.Hour)
		assert.LessOrEqual(t, s.interval(), publishedInterval)
		assert.Positive(t, s.interval())
	}
}

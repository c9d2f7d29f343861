package granularity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/bench/lane"
)

func TestBucketsStayWithinFivePercent(t *testing.T) {
	t.Parallel()
	for _, n := range []*numbers{numbersOf(true), numbersOf(false)} {
		for _, residents := range n.appends.residents {
			for _, k := range n.appends.perUpdate {
				c := n.fit(stockConfig{residents: residents, perUpdate: k}, 9, n.bulk)
				s := stock{stockConfig: c, count: c.buckets()}
				most := make(map[int]int)
				for s.appended < c.appends {
					for _, p := range s.next(together) {
						assert.Equal(t, uint64(residents+most[p.Sensor]), p.First, "each reading once") //nolint:gosec // counts
						most[p.Sensor] += p.Count
					}
				}
				for _, grew := range most {
					assert.True(t, grew == k || float64(grew) <= grown*float64(residents), "%d held, %d an append: grew by %d", residents, k, grew)
				}
				assert.GreaterOrEqual(t, c.appends, 9*fewestAppends)
				assert.LessOrEqual(t, c.buckets()*(residents+k)*70, max(n.stockBytes, 9*fewestAppends*(residents+k)*70))
			}
		}
	}
}

func TestACommandHasABucketOnce(t *testing.T) {
	t.Parallel()
	s := stock{stockConfig: stockConfig{residents: 100, perUpdate: 2}, count: 3}
	assert.Equal(t, []lane.Portion{{Sensor: 0, First: 100, Count: 2}, {Sensor: 1, First: 100, Count: 2}}, s.next(2))
	assert.InDelta(t, 100, s.held(), 1e-9)
	assert.Equal(t, []lane.Portion{{Sensor: 2, First: 100, Count: 2}}, s.next(2), "the next round is in the next command")
	assert.Equal(t, []lane.Portion{{Sensor: 0, First: 102, Count: 2}, {Sensor: 1, First: 102, Count: 2}}, s.next(2))
	assert.InDelta(t, 102, s.held(), 1e-9)
}

func TestAWindowHasRoomForAllReadings(t *testing.T) {
	t.Parallel()
	for _, c := range []stockConfig{{residents: 3600, perUpdate: 1}, {residents: 3600, perUpdate: 60}, {residents: 1, perUpdate: 60}, {residents: 719, perUpdate: 1}} {
		s := stock{stockConfig: c}
		last := time.Duration(c.residents+c.each()*c.perUpdate-1) * s.interval()
		assert.Less(t, last, time.Hour)
		assert.LessOrEqual(t, s.interval(), publishedInterval)
		assert.Positive(t, s.interval())
	}
}

package speed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestDocumentsAreThoseOfAStep(t *testing.T) {
	t.Parallel()
	hosts := newHosts(5)
	p := documentPage(hosts)
	s := newStretch(moved, 0)
	for number := range int64(variants + 1) {
		p.turn(s, number)
		for i, document := range p.documents {
			d := document.(bson.D)
			assert.Equal(t, moved.Add(time.Duration(number)*interval), d[0].Value)
			assert.Equal(t, hosts[i].name, d[1].Value)
			assert.Equal(t, hosts[i].values[number%variants][0], d[2].Value)
			assert.Len(t, d, 2+fieldsOf)
		}
	}
}

func TestGroupedPagesHaveEveryReadingOnceInWholeGroups(t *testing.T) {
	t.Parallel()
	const n = 24 // two blocks in three calls
	hosts := newHosts(n)
	pages := []*page{groupedPage(hosts), groupedPage(hosts)} // of two writers
	s := newStretch(moved, 0)
	seen := map[string]map[time.Time]bool{}
	for number := range int64(3) {
		p := pages[number%2]
		p.turn(s, number)
		require.Len(t, p.documents, groupedOf)
		for i, document := range p.documents {
			group := number*groupsOf + int64(i/together)
			h := &hosts[group%n]
			got := document.(bson.D)
			require.Equal(t, sensorOf(h), got[1].Value)
			at := got[0].Value.(time.Time)
			require.Equal(t, s.stepTime(group/n*together+int64(i%together)), at)
			require.Equal(t, h.values[i%together%variants][0], got[2].Value)
			require.Len(t, got, 2+fieldsOf)
			if seen[h.key] == nil {
				seen[h.key] = map[time.Time]bool{}
			}
			seen[h.key][at] = true
		}
	}
	require.Len(t, seen, n)
	for _, times := range seen {
		assert.Len(t, times, 2*together)
	}
}

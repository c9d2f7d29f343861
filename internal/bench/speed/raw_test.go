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
	p := rawSides(hosts)[rawDocuments].newPage()
	for number := range int64(variants + 1) {
		p.turn(number, moved)
		require.Len(t, p.documents, len(hosts))
		for i, document := range p.documents {
			d := document.(bson.D)
			assert.Equal(t, moved.Add(time.Duration(number)*interval), d[0].Value)
			assert.Equal(t, hosts[i].tags[0].Value, d[1].Value)
			assert.Equal(t, hosts[i].fields[number%variants][0].Value.Int(), d[2].Value)
			assert.Len(t, d, 2+fieldsOf)
		}
	}
}

func TestGroupedPagesHaveEveryReadingOnceInWholeGroups(t *testing.T) {
	t.Parallel()
	const n, groupsOf = 24, 16 // two blocks in three calls
	hosts := newHosts(n)
	side := rawSides(hosts)[rawSeries]
	pages := []*page{side.newPage(), side.newPage()} // of two writers
	seen := map[string]map[time.Time]bool{}
	for number := range int64(3) {
		p := pages[number%2]
		p.turn(number, moved)
		require.Len(t, p.documents, groupsOf*together)
		for i, document := range p.documents {
			group := number*groupsOf + int64(i/together)
			h := &hosts[group%n]
			got := document.(bson.D)
			require.Equal(t, side.sensor(h), got[1])
			at := got[0].Value.(time.Time)
			require.Equal(t, moved.Add(time.Duration(group/n*together+int64(i%together))*interval), at)
			require.Equal(t, h.fields[i%together%variants][0].Value.Int(), got[2].Value)
			require.Len(t, got, 2+fieldsOf)
			if seen[h.id] == nil {
				seen[h.id] = map[time.Time]bool{}
			}
			seen[h.id][at] = true
		}
	}
	require.Len(t, seen, n)
	for _, times := range seen {
		assert.Len(t, times, 2*together)
	}
}

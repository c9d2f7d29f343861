package speed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func decoded(t *testing.T, document any) bson.M {
	t.Helper()
	text, err := bson.Marshal(document)
	require.NoError(t, err)
	var m bson.M
	require.NoError(t, bson.Unmarshal(text, &m))
	return m
}

func TestEncodedDocumentsAreTheOthersWithAnID(t *testing.T) {
	t.Parallel()
	hosts := newHosts(5)
	plain := documentPage(hosts)
	encoded, err := encodedPage(hosts)
	require.NoError(t, err)
	s := newStretch(moved, 0)
	ids := map[any]bool{}
	for number := range int64(variants + 1) {
		plain.turn(s, number)
		encoded.turn(s, number)
		for i := range plain.documents {
			want, got := decoded(t, plain.documents[i]), decoded(t, encoded.documents[i])
			ids[got["_id"]] = true
			delete(got, "_id")
			assert.Equal(t, want, got)
			assert.Equal(t, hosts[i].name, got["sensorId"])
			assert.Equal(t, bson.NewDateTimeFromTime(moved.Add(time.Duration(number)*interval)), got["ts"])
			assert.Len(t, got, 2+fieldsOf)
		}
	}
	assert.Len(t, ids, 5*(variants+1))
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

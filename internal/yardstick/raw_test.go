package main

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
	f := newFleet(5)
	plain := documentPage(f.hosts)
	encoded, err := encodedPage(f.hosts)
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
			assert.Equal(t, f.hosts[i].name, got["sensorId"])
			assert.Equal(t, bson.NewDateTimeFromTime(moved.Add(time.Duration(number)*interval)), got["ts"])
			assert.Len(t, got, 2+fieldsOf)
		}
	}
	assert.Len(t, ids, 5*(variants+1))
}

func TestGroupedReadingsAreThoseOfAllStepsSixtyOfASensorTogether(t *testing.T) {
	t.Parallel()
	const hosts = 3
	seen := map[[2]int64]bool{}
	for i := range int64(2 * hosts * together) {
		host, step := grouped(i, hosts)
		assert.Equal(t, i/together%hosts, host)
		seen[[2]int64{host, step}] = true
	}
	assert.Len(t, seen, 2*hosts*together)
	for host := range int64(hosts) {
		for step := range int64(2 * together) {
			assert.Contains(t, seen, [2]int64{host, step})
		}
	}
}

func TestGroupedPagesGoOnWhereTheOneBeforeEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(hostsOf)
	p := groupedPage(f.hosts)
	s := newStretch(moved, 0)
	for number := range int64(2) {
		p.turn(s, number)
		require.Len(t, p.documents, linesOf)
		for i, document := range p.documents {
			host, step := grouped(number*linesOf+int64(i), hostsOf)
			got := document.(bson.D)
			require.Equal(t, s.stepTime(step), got[0].Value)
			require.Equal(t, f.hosts[host].key, got[1].Value.(bson.D)[0].Value)
			require.Equal(t, f.hosts[host].values[step%variants][0], got[2].Value)
			require.Len(t, got, 2+fieldsOf)
		}
	}
}

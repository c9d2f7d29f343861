package bucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestAnyOrderCountsOnce writes, seals, rolls up, expires, replays and deletes in any order, and
// applies some rollups long after they were computed: answers always have each reading once.
func TestAnyOrderCountsOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			a := anyOrder{rolls: newRolls(t, retention()), random: rand.New(rand.NewPCG(seed, 1)), expired: make(map[int64]bool), used: make(map[time.Duration]bool)}
			for range 60 {
				a.act()
				require.Equal(t, a.want, a.count(), "%v", a.story)
			}
		})
	}
}

type anyOrder struct {
	*rolls

	random  *rand.Rand
	want    int64
	used    map[time.Duration]bool
	expired map[int64]bool // steps with expired parts, by number
	sent    []replayed
	made    [3][]RollupUpdate
	story   []string
}

// replayed is what one update sent.
type replayed struct {
	first   uint64
	reading telemetry.Reading
}

func (a *anyOrder) act() {
	minute := time.Duration(a.random.IntN(30)) * time.Minute
	did := func(format string, args ...any) { a.story = append(a.story, fmt.Sprintf(format, args...)) }
	switch n := a.random.IntN(20); {
	case n < 8: // a late reading in a step with expired parts may be refused, so it goes into a new part
		at := minute + time.Duration(a.random.IntN(60))*time.Second
		if a.used[at] || a.expired[int64(at/step)] && a.usedMinute(minute) {
			return
		}
		did("write %v", at)
		a.used[at] = true
		a.want++
		a.sent = append(a.sent, replayed{a.next, storetest.Reading("a", at, 1)})
		a.write(map[time.Duration]float64{at: 1})
	case n < 11:
		did("seal")
		sealAll(a.t, a.store, "a")
	case n < 13:
		at := a.random.IntN(len(a.made))
		a.made[at] = a.rolls.made()
		did("make %d: %d", at, len(a.made[at]))
	case n < 15:
		at := a.random.IntN(len(a.made))
		did("apply %d", at)
		a.apply(a.made[at])
	case n < 17:
		did("expire before %v: %d", minute, a.expireSettled(minute))
	case n < 19 && len(a.sent) > 0:
		one := a.sent[a.random.IntN(len(a.sent))]
		did("replay %v", one.reading.Time.Sub(storetest.Base))
		writes := storetest.Pending(storetest.Batch(a.t, "s1", one.first, one.reading), a.store.Granularity)
		writes[0].Recovered = true
		storetest.WriteAll(a.t, a.store, writes)
	case n == 19 && a.random.IntN(3) == 0:
		did("delete")
		_, err := a.store.Delete(a.t.Context(), "a")
		require.NoError(a.t, err)
		a.want, a.used, a.expired, a.sent = 0, make(map[time.Duration]bool), make(map[int64]bool), nil
	}
}

// expireSettled removes expirable parts, except from steps with parts that are sealed but not
// marked: in production those are marked much earlier, see expiryMargin.
func (a *anyOrder) expireSettled(before time.Duration) (n int64) {
	a.t.Helper()
	collection := a.db.Collection(storetest.Stream)
	cursor, err := collection.Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	var docs []bson.Raw
	require.NoError(a.t, cursor.All(a.t.Context(), &docs))
	late := make(map[int64]bool)
	stepOf := func(doc bson.Raw) int64 {
		start, err := startOf(doc)
		require.NoError(a.t, err)
		return store.WindowStart(start, step)
	}
	marked := func(doc bson.Raw) bool {
		is, _ := doc.Lookup("sealed", "rolled").BooleanOK()
		return is
	}
	for _, doc := range docs {
		if !marked(doc) && firstSealed(doc) < math.MaxInt64 { // a computed rollup may count it
			late[stepOf(doc)] = true
		}
	}
	for _, doc := range docs {
		start, _ := startOf(doc)
		if marked(doc) && !late[stepOf(doc)] && start < storetest.Base.Add(before).UnixMilli() {
			a.expired[(start-storetest.Base.UnixMilli())/step.Milliseconds()] = true
			_, err := collection.DeleteOne(a.t.Context(), bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
			require.NoError(a.t, err)
			n++
		}
	}
	return n
}

func (a *anyOrder) usedMinute(minute time.Duration) bool {
	for at := range a.used {
		if at.Truncate(time.Minute) == minute {
			return true
		}
	}
	return false
}

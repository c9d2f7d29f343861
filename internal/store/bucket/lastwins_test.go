package bucket

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// arrived are readings with few different times and some of a few fields.
func arrived(sensor string, n int, random *rand.Rand) (out []telemetry.Reading) {
	for i := range n {
		r := storetest.Reading(sensor, time.Duration(random.IntN(12))*10*time.Second, 0)
		r.Fields = nil
		for _, name := range []string{"t", "h", "p"} {
			if random.IntN(2) == 0 {
				r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(random.IntN(1000)))})
			}
		}
		if len(r.Fields) == 0 {
			r.Fields = []telemetry.Field{{Name: "n", Value: telemetry.IntValue(int64(i))}}
		}
		if random.IntN(3) == 0 {
			r.Tags = []telemetry.Tag{{Name: "site", Value: fmt.Sprint(random.IntN(3))}}
		}
		out = append(out, r)
	}
	return out
}

// wins is a simple implementation: each reading, in order of arrival, overwrites earlier ones.
func wins(all []telemetry.Unstored) map[int64]map[string]telemetry.Value {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b telemetry.Unstored) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Sequence, b.Sequence))
	})
	out := make(map[int64]map[string]telemetry.Value)
	for _, u := range all {
		at := u.Reading.Time.UnixMilli()
		if out[at] == nil {
			out[at] = make(map[string]telemetry.Value)
		}
		for _, f := range u.Reading.Fields {
			out[at][f.Name] = f.Value
		}
		out[at]["tags"] = telemetry.TextValue(fmt.Sprint(u.Reading.Tags))
	}
	return out
}

// TestLastWins: readings are stored out of order of arrival, some wait, and sealing happens
// at any time. The answer always follows the rule, applied to all.
func TestLastWins(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{Format: store.Columns, MaxReadings: 20, Duplicates: store.LastWins})
	dropped := int64(0)
	for seed := range uint64(6) {
		sensor, random := fmt.Sprint("s", seed), rand.New(rand.NewPCG(seed, 2))
		var acknowledged, waiting []telemetry.Unstored
		query := telemetry.Query{Sensor: sensor, To: endOfTime, LastWins: true}
		answer := func(q telemetry.Query) (out []telemetry.Reading) {
			for r, err := range s.Readings(t.Context(), q) {
				require.NoError(t, err)
				out = append(out, r)
			}
			return out
		}
		check := func() (out []telemetry.Reading) {
			query.Unstored = waiting
			out = answer(query)
			want := wins(acknowledged)
			require.Len(t, out, len(want))
			for _, r := range out {
				got := map[string]telemetry.Value{"tags": telemetry.TextValue(fmt.Sprint(r.Tags))}
				for _, f := range r.Fields {
					got[f.Name] = f.Value
				}
				require.Equal(t, want[r.Time.UnixMilli()], got)
			}
			return out
		}
		next := map[string]uint64{"a": 1, "b": 1, "c": 1}
		for range 12 {
			session := []string{"a", "b", "c"}[random.IntN(3)]
			b := storetest.Batch(t, session, next[session], arrived(sensor, 1+random.IntN(6), random)...)
			next[session] += uint64(b.Len())
			b.Received = storetest.Base.Add(time.Duration(random.IntN(20)) * time.Millisecond)
			pending := storetest.Pending(b, window)
			for _, p := range pending {
				for _, r := range p.Rows {
					acknowledged = append(acknowledged, telemetry.Unstored{
						Session: session, Sequence: r.Seq(), Arrival: r.Arrival(), Granularity: window, Reading: r.Batch.Reading(r.Index),
					})
				}
			}
			all := acknowledged[len(acknowledged)-b.Len():]
			waiting = slices.Concat(waiting, all) // some were stored meanwhile
			check()
			storetest.WriteAll(t, s, pending)
			before := check()
			if random.IntN(2) == 0 {
				waiting = nil
				count := len(storetest.ReadAll(t, s, sensor))
				sealAll(t, s, sensor)
				dropped += int64(count - len(storetest.ReadAll(t, s, sensor)))
				require.Equal(t, before, check(), "sealing changes nothing, not even the order of fields")
			}
		}
		all := check()
		page := query
		for i := range all {
			page.Limit = 1 + random.IntN(3)
			page.From = all[i].Time.UnixMilli()
			require.Equal(t, all[i:min(i+page.Limit, len(all))], answer(page))
		}
		some := query
		some.Fields = []string{"h"}
		for i, r := range answer(some) {
			h := slices.DeleteFunc(slices.Clone(all[i].Fields), func(f telemetry.Field) bool { return f.Name != "h" })
			if len(h) > 0 || len(r.Fields) > 0 {
				require.Equal(t, h, slices.DeleteFunc(r.Fields, func(f telemetry.Field) bool { return f.Name != "h" }))
			}
		}
	}
	assert.Positive(t, dropped, "sealing drops what was overwritten")
}

package bucket

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const step = 10 * time.Minute

// rolls is a stream with ten-minute rollups over one-minute windows.
type rolls struct {
	t     *testing.T
	db    *mongo.Database
	store *Store
	next  uint64
}

func newRolls(t *testing.T, cfg Config) *rolls {
	t.Helper()
	if cfg.Granularity == 0 {
		cfg.Granularity = time.Minute
	}
	cfg.Rollup = step
	r := &rolls{t: t, db: connect(t), next: 1}
	r.store = open(t, r.db, cfg)
	return r
}

// write stores readings of sensor a at times relative to storetest.Base, and returns their batch.
func (r *rolls) write(values map[time.Duration]float64) []telemetry.Reading {
	r.t.Helper()
	var readings []telemetry.Reading
	for at, v := range values {
		readings = append(readings, storetest.Reading("a", at, v))
	}
	slices.SortFunc(readings, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
	r.writeAll(readings)
	return readings
}

func (r *rolls) writeAll(readings []telemetry.Reading) {
	r.t.Helper()
	storetest.WriteAll(r.t, r.store, storetest.Pending(storetest.Batch(r.t, "s1", r.next, readings...), r.store.Granularity))
	r.next += uint64(len(readings))
}

// made returns the updates that bring the rollups up to date.
func (r *rolls) made() (out []RollupUpdate) {
	r.t.Helper()
	for roll, err := range r.store.RollupUpdates(r.t.Context(), "a", 0, endOfTime) {
		require.NoError(r.t, err)
		out = append(out, roll)
	}
	return out
}

func (r *rolls) apply(of []RollupUpdate) (changed int) {
	r.t.Helper()
	changed, err := r.store.ApplyRollups(r.t.Context(), of)
	require.NoError(r.t, err)
	return changed
}

// roll seals, and updates the rollups.
func (r *rolls) roll() []RollupUpdate {
	r.t.Helper()
	sealAll(r.t, r.store, "a")
	of := r.made()
	require.Zero(r.t, r.apply(of))
	return of
}

// expire removes expirable parts whose windows start before a time, as MongoDB does.
func (r *rolls) expire(before time.Duration) int64 {
	r.t.Helper()
	var indexes []bson.M
	cursor, err := r.db.Collection(storetest.Stream).Indexes().List(r.t.Context())
	require.NoError(r.t, err)
	require.NoError(r.t, cursor.All(r.t.Context(), &indexes))
	filter := bson.D{{Key: "bucketStart", Value: bson.D{{Key: "$lt", Value: storetest.Base.Add(before)}}}}
	if partial, ok := indexes[len(indexes)-1]["partialFilterExpression"].(bson.D); ok {
		filter = append(filter, partial...)
	}
	deleted, err := r.db.Collection(storetest.Stream).DeleteMany(r.t.Context(), filter)
	require.NoError(r.t, err)
	return deleted.DeletedCount
}

// steps returns the stored steps.
func (r *rolls) steps() (out []*rollupStep) {
	r.t.Helper()
	days, deletions, err := r.store.rollupDays(r.t.Context(), "a", 0, endOfTime)
	require.NoError(r.t, err)
	for _, day := range days {
		if day.deletions == deletions {
			for _, at := range slices.Sorted(func(yield func(int64) bool) {
				for at := range day.steps {
					if !yield(at) {
						return
					}
				}
			}) {
				out = append(out, day.steps[at])
			}
		}
	}
	return out
}

// summary returns the answer for all time.
func (r *rolls) summary(every time.Duration) (out []telemetry.Summary) {
	r.t.Helper()
	for one, err := range r.store.Summary(r.t.Context(), telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "a", To: endOfTime}, Every: every.Milliseconds()}) {
		require.NoError(r.t, err)
		out = append(out, one)
	}
	return out
}

// count returns how many readings the answer counts.
func (r *rolls) count() (n int64) {
	r.t.Helper()
	for _, one := range r.summary(0) {
		n += one.Count
	}
	return n
}

// retention makes parts expirable, but so late that MongoDB itself expires
// nothing during a test.
func retention() Config { return Config{Retention: 10 * 365 * 24 * time.Hour} }

func TestRollupsAnswerWhenReadingsHaveExpired(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"documents": {}, "columns": {Format: store.Columns}, "long windows": {Format: store.Columns, Granularity: 24 * time.Hour}, "windows of an hour": {Granularity: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Retention = time.Hour
			r := newRolls(t, cfg)
			var readings []telemetry.Reading
			for i := range 400 {
				one := storetest.Reading("a", time.Duration(i)*13*time.Second, float64(i*i%97)/4)
				switch i % 5 {
				case 1:
					one.Fields = append(one.Fields, telemetry.Field{Name: "n", Value: telemetry.IntValue(int64(i) << 50)})
				case 2:
					one.Fields = []telemetry.Field{{Name: "state", Value: telemetry.TextValue("on")}}
				case 3:
					one.Fields[0].Value = telemetry.IntValue(int64(i))
				}
				readings = append(readings, one)
			}
			r.writeAll(readings)
			hours, days, all := r.summary(time.Hour), r.summary(24*time.Hour), r.summary(0)
			r.roll()
			assert.Empty(t, r.made(), "nothing is left")
			check := func() {
				t.Helper()
				storetest.SameSummaries(t, hours, r.summary(time.Hour))
				storetest.SameSummaries(t, days, r.summary(24*time.Hour))
				storetest.SameSummaries(t, all, r.summary(0))
			}
			check()
			r.expire(30 * time.Minute) // some
			check()
			r.expire(1000 * time.Hour)
			assert.Empty(t, documents(t, r.db))
			check()

			first := r.steps()[0]
			assert.Equal(t, int64(47), first.count)
			at := slices.IndexFunc(first.fields, func(f telemetry.FieldSummary) bool { return f.Name == readings[0].Fields[0].Name })
			assert.Equal(t, readings[0].Fields[0].Value, first.fields[at].First)
			assert.Equal(t, readings[46].Fields[0].Value, first.fields[at].Last)
			assert.Equal(t, []int64{readings[0].Time.UnixMilli(), readings[46].Time.UnixMilli()}, []int64{first.first, first.last})
		})
	}
}

// TestReplayAfterExpiryIsNotCountedAgain: failure mode 1.
func TestReplayAfterExpiryIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	values := map[time.Duration]float64{0: 1, time.Second: 2, 2 * time.Second: 3}
	readings := r.write(values)
	r.roll()
	require.EqualValues(t, 1, r.expire(time.Hour))
	before := r.steps()
	for _, replayed := range [][]telemetry.Reading{readings[:1], readings, append(slices.Clone(readings), storetest.Reading("a", 3*time.Second, 9))} {
		r.writeAll(replayed)
		rolls := r.roll()
		require.Len(t, rolls, 1)
		assert.EqualValues(t, len(replayed), rolls[0].Replayed)
		assert.Equal(t, before, r.steps())
		assert.EqualValues(t, 3, r.count())
		require.EqualValues(t, 1, r.expire(time.Hour), "it expires again")
	}
}

// TestPartsExpireOneByOne: failure mode 2. The rest of a step never replaces the step.
func TestPartsExpireOneByOne(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2, 2 * time.Minute: 3})
	r.roll()
	for n := range 3 {
		require.EqualValues(t, 1, r.expire(time.Duration(n+1)*time.Minute))
		// A new part appears in the step, and an existing one grows.
		r.write(map[time.Duration]float64{time.Duration(5+n) * time.Minute: 10})
		assert.EqualValues(t, 3+n+1, r.count(), "a part that the step does not count yet is read")
		r.roll()
		assert.EqualValues(t, 3+n+1, r.count())
	}
	r.write(map[time.Duration]float64{5*time.Minute + time.Second: 100})
	rolls := r.roll()
	require.Len(t, rolls, 1)
	assert.EqualValues(t, 1, rolls[0].Refused)
	assert.EqualValues(t, 6, r.count())
	assert.EqualValues(t, 2, r.expire(time.Hour), "the part with a reading that is not counted does not expire")
	assert.InDelta(t, 10, r.steps()[0].fields[0].Max.Float(), 0)
	assert.InDelta(t, 36, r.steps()[0].fields[0].Sum, 0)
}

// TestTwoSealersAtOnce: failure mode 3. If two compute the same step, the one with less data writes
// nothing.
func TestTwoSealersAtOnce(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1})
	sealAll(t, r.store, "a")
	slow := r.made()
	r.write(map[time.Duration]float64{time.Minute: 2})
	sealAll(t, r.store, "a")
	quick, same := r.made(), r.made()
	require.Zero(t, r.apply(quick))
	assert.Equal(t, 1, r.apply(slow), "it began without the second part")
	assert.Equal(t, 1, r.apply(same))
	assert.EqualValues(t, 2, r.steps()[0].count)

	// The same for an existing step.
	r.write(map[time.Duration]float64{2 * time.Minute: 3})
	sealAll(t, r.store, "a")
	slow = r.made()
	r.write(map[time.Duration]float64{3 * time.Minute: 4})
	sealAll(t, r.store, "a")
	require.Zero(t, r.apply(r.made()))
	assert.Equal(t, 1, r.apply(slow))
	assert.EqualValues(t, 4, r.steps()[0].count)
	late, _ := r.store.TakeLate(0)
	assert.Contains(t, late, "a", "the next pass looks at it again")
	assert.Empty(t, r.made())
	r.expire(time.Hour)
	assert.EqualValues(t, 4, r.count())
}

// TestCrashBetweenSealAndRollup: failure mode 4, including a crash between the rollup and its mark.
func TestCrashBetweenSealAndRollup(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2})
	assert.Zero(t, r.expire(time.Hour), "not sealed")
	sealAll(t, r.store, "a")
	assert.Zero(t, r.expire(time.Hour), "not counted")
	rolls := r.made()
	for i := range rolls {
		rolls[i].marks = nil
	}
	r.apply(rolls)
	assert.Zero(t, r.expire(time.Hour), "not marked")
	assert.EqualValues(t, 2, r.count())
	rolls = r.roll()
	require.Len(t, rolls, 1)
	assert.Zero(t, rolls[0].Steps, "it is written already")
	assert.EqualValues(t, 2, r.expire(time.Hour))
	assert.EqualValues(t, 2, r.count())
}

// TestLateReadingAfterTheRollup: failure mode 5. It is counted before its part may expire.
func TestLateReadingAfterTheRollup(t *testing.T) {
	t.Parallel()
	for _, format := range []store.Format{store.Documents, store.Columns} {
		cfg := retention()
		cfg.Format = format
		r := newRolls(t, cfg)
		r.write(map[time.Duration]float64{0: 1, time.Minute: 2})
		r.roll()
		r.write(map[time.Duration]float64{time.Second: 5})
		assert.EqualValues(t, 3, r.count())
		assert.EqualValues(t, 1, r.expire(time.Hour), "the other part")
		r.write(map[time.Duration]float64{time.Minute: 2}) // written again
		r.write(map[time.Duration]float64{2 * time.Minute: 7})

		// Until the part is sealed again, its step waits.
		for doc, err := range r.store.Unsealed(t.Context(), "a", 0, endOfTime, 0) {
			require.NoError(t, err)
			if start, _ := startOf(doc); start == storetest.Base.UnixMilli()+2*time.Minute.Milliseconds() {
				seal, err := r.store.NewSealer().Seal(slices.Clone(doc), time.Now())
				require.NoError(t, err)
				_, err = r.store.ApplySeals(t.Context(), []Seal{seal})
				require.NoError(t, err)
			}
		}
		r.apply(r.made())
		assert.EqualValues(t, 2, r.steps()[0].count)
	}
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2})
	r.roll()
	r.write(map[time.Duration]float64{time.Second: 5})
	r.roll()
	assert.EqualValues(t, 3, r.steps()[0].count)
	assert.EqualValues(t, 2, r.expire(time.Hour))
	assert.EqualValues(t, 3, r.count())
}

func TestDeletedSensorsRollupsStayDeleted(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2})
	sealAll(t, r.store, "a")
	running := r.made()
	n, err := r.store.Delete(t.Context(), "a")
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	deletion, err := r.store.rollups().FindOne(t.Context(), bson.D{{Key: "_id", Value: deletionKey("a")}}).Raw()
	require.NoError(t, err)
	assert.True(t, deletion.Lookup("day").IsZero(), "it would expire, and later days refer to it")
	r.apply(running) // computed before the write
	assert.Zero(t, r.count())
	assert.Empty(t, r.steps())

	r.write(map[time.Duration]float64{2 * time.Minute: 3, 3 * time.Minute: 4, 4 * time.Minute: 5})
	r.roll()
	r.expire(time.Hour)
	assert.EqualValues(t, 3, r.count(), "what comes after the deletion is counted")
	r.write(map[time.Duration]float64{5 * time.Minute: 6})
	sealAll(t, r.store, "a")
	running = r.made()
	_, err = r.store.Delete(t.Context(), "a")
	require.NoError(t, err)
	assert.Zero(t, r.count())
	r.apply(running)
	assert.Zero(t, r.count())
	r.write(map[time.Duration]float64{6 * time.Minute: 6})
	r.roll()
	assert.EqualValues(t, 1, r.count())
}

// TestRollupsCountByTheRuleOnDuplicates, even across parts, which sealing does not compare.
func TestRollupsCountByTheRuleOnDuplicates(t *testing.T) {
	t.Parallel()
	for rule, want := range map[store.Duplicates]float64{store.Keep: 1 + 1 + 2 + 3, store.DropIdentical: 1 + 2 + 3, store.LastWins: 2 + 3} {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			r := newRolls(t, Config{Retention: time.Hour, Format: store.Columns, MaxReadings: 2, Duplicates: rule})
			for _, v := range []float64{1, 1, 2} {
				r.write(map[time.Duration]float64{0: v})
			}
			r.write(map[time.Duration]float64{time.Second: 3})
			r.roll()
			require.Len(t, documents(t, r.db), 2)
			assert.InDelta(t, want, r.steps()[0].fields[0].Sum, 0)
			q := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "a", To: endOfTime}}
			q.Readings = r.store.Readings // hides the overlay of rollups
			check := func() {
				for one, err := range r.store.Summary(t.Context(), q) {
					require.NoError(t, err)
					assert.InDelta(t, want, one.Fields[0].Sum, 0)
				}
			}
			check()
			r.expire(time.Hour)
			check()
			// A later value for a counted time, in an existing part.
			if rule == store.LastWins {
				r = newRolls(t, Config{Retention: time.Hour, Format: store.Columns, Duplicates: rule})
				r.write(map[time.Duration]float64{0: 1, time.Second: 3})
				r.roll()
				r.write(map[time.Duration]float64{0: 7})
				r.roll()
				assert.InDelta(t, 10, r.steps()[0].fields[0].Sum, 0)
				assert.EqualValues(t, 2, r.steps()[0].count)
			}
		})
	}
}

// TestRuleThatDropsDuplicatesAfterTheRollup: sealing a part again leaves fewer readings than its
// step counts.
func TestRuleThatDropsDuplicatesAfterTheRollup(t *testing.T) {
	t.Parallel()
	for _, rule := range []store.Duplicates{store.DropIdentical, store.LastWins} {
		for _, expired := range []bool{false, true} {
			cfg := retention()
			cfg.Format, cfg.Rollup, cfg.Granularity = store.Columns, step, time.Minute
			r := newRolls(t, cfg)
			r.write(map[time.Duration]float64{0: 1})
			for range 4 {
				r.write(map[time.Duration]float64{time.Minute: 2})
			}
			r.roll()
			require.EqualValues(t, 5, r.steps()[0].count)
			if expired {
				require.EqualValues(t, 1, r.expire(time.Minute))
			}
			cfg.Duplicates = rule
			r.store = open(t, r.db, cfg)
			r.write(map[time.Duration]float64{time.Minute + time.Second: 5})
			rolls := r.roll()
			require.Len(t, rolls, 1)
			if expired {
				assert.EqualValues(t, 1, rolls[0].Refused)
				assert.EqualValues(t, 5, r.count())
				continue
			}
			assert.Zero(t, rolls[0].Refused)
			assert.EqualValues(t, 3, r.steps()[0].count)
			assert.EqualValues(t, 2, r.expire(time.Hour))
			assert.EqualValues(t, 3, r.count())
		}
	}
}

// TestLateReadingsInAStepWithExpiredParts appear in answers without duplicates before they are
// counted.
func TestLateReadingsInAStepWithExpiredParts(t *testing.T) {
	t.Parallel()
	r := newRolls(t, Config{Retention: time.Hour, Format: store.Columns, Duplicates: store.DropIdentical})
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2, 2 * time.Minute: 3})
	r.roll()
	require.EqualValues(t, 1, r.expire(time.Minute))
	r.write(map[time.Duration]float64{5 * time.Minute: 10})
	q := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "a", To: endOfTime}, Readings: r.store.Readings}
	check := func() {
		t.Helper()
		for one, err := range r.store.Summary(t.Context(), q) {
			require.NoError(t, err)
			assert.EqualValues(t, 4, one.Count)
		}
	}
	check()
	r.roll()
	check()
}

// TestStepsThatCannotBeUsed overlap several steps of the answer.
func TestStepsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, 6 * time.Minute: 2, 11 * time.Minute: 3})
	r.roll()
	r.expire(time.Hour)
	counts := func(every time.Duration) (n int64) {
		for _, one := range r.summary(every) {
			n += one.Count
		}
		return n
	}
	assert.EqualValues(t, 3, counts(step))
	assert.EqualValues(t, 1, counts(5*time.Minute))
}

// TestOnlyCountedPartsExpire: with rollups, the TTL index is partial.
func TestOnlyCountedPartsExpire(t *testing.T) {
	t.Parallel()
	db := connect(t)
	index := func() (out struct {
		After   int64  `bson:"expireAfterSeconds"`
		Partial bson.D `bson:"partialFilterExpression"`
	}) {
		cursor, err := db.Collection(storetest.Stream).Indexes().List(t.Context())
		require.NoError(t, err)
		for cursor.Next(t.Context()) {
			if cursor.Current.Lookup("name").StringValue() != "_id_" {
				require.NoError(t, cursor.Decode(&out))
			}
		}
		return out
	}
	open(t, db, Config{Retention: time.Hour})
	assert.Empty(t, index().Partial)
	for range 2 {
		open(t, db, Config{Retention: time.Hour, Rollup: step, RollupRetention: 48 * time.Hour})
		assert.Equal(t, bson.D{{Key: "sealed.rolled", Value: true}}, index().Partial)
		assert.EqualValues(t, (time.Hour + step + expiryMargin + 5*time.Minute).Seconds(), index().After)
	}
	after, _, err := store.Collection{Database: db, Name: store.RollupName(storetest.Stream)}.Expiry(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 72*time.Hour, after)
	open(t, db, Config{Retention: time.Hour})
	assert.Empty(t, index().Partial)
	assert.EqualValues(t, (time.Hour + 5*time.Minute).Seconds(), index().After)

	_, err = db.Collection(store.RollupName(storetest.Stream)).InsertOne(t.Context(), bson.D{{Key: "every", Value: int32(60)}})
	require.NoError(t, err)
	s, err := New(Config{Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute, MaxReadings: 10, MaxBytes: 1 << 20, Rollup: step, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	var mismatch *store.MismatchError
	require.ErrorAs(t, s.Prepare(context.Background()), &mismatch)
	assert.Contains(t, mismatch.Error(), "steps of 1m0s")
}

func TestGoneStepsAreThoseWithExpiredParts(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2, 11 * time.Minute: 3})
	r.roll()
	gone := func() (out []telemetry.Summary) {
		for one, err := range r.store.Summary(t.Context(), telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}, Gone: true}) {
			require.NoError(t, err)
			out = append(out, one)
		}
		return out
	}
	assert.Empty(t, gone())
	r.expire(time.Minute)
	require.Len(t, gone(), 1)
	one := gone()[0]
	assert.EqualValues(t, 2, one.Count)
	assert.Equal(t, []int64{storetest.Base.UnixMilli(), storetest.Base.UnixMilli() + 60_000}, []int64{one.First, one.Last})
	assert.Equal(t, []float64{1, 2}, []float64{one.Fields[0].First.Float(), one.Fields[0].Last.Float()})
	r.expire(time.Hour)
	assert.Len(t, gone(), 2)
}

// TestSensorWithRollupsAloneIsListed until it is deleted.
func TestSensorWithRollupsAloneIsListed(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1, time.Minute: 2})
	r.writeAll([]telemetry.Reading{storetest.Reading("b", 0, 1)})
	listed := func() (out []telemetry.SensorSeen) {
		for one, err := range r.store.Sensors(t.Context(), telemetry.SensorQuery{}) {
			require.NoError(t, err)
			out = append(out, one)
		}
		return out
	}
	want := []telemetry.SensorSeen{{Sensor: "a", Newest: storetest.Base.Add(time.Minute).UnixMilli()}, {Sensor: "b", Newest: storetest.Base.UnixMilli()}}
	r.roll()
	assert.Equal(t, want, listed())
	require.EqualValues(t, 2, r.expire(time.Hour))
	assert.Equal(t, want, listed())
	_, err := r.store.Delete(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, want[1:], listed())
}

// A day's readings are not in memory all at once, unless one part has them all.
func TestADayIsCountedInRuns(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	for every, want := range map[time.Duration][][]int64{
		time.Hour:        {{0}, {hour}, {5 * hour}},
		30 * time.Minute: {{0, hour / 2}, {hour}, {5 * hour}},
		90 * time.Minute: {{0}, {9 * hour / 2}}, // runs of three hours
		24 * time.Hour:   {{0}},
	} {
		s := &Store{Base: &store.Base{Config: store.Config{Rollup: every}}}
		day := &uncountedDay{steps: make(map[int64]bool)}
		for _, run := range want {
			for _, step := range run {
				day.steps[step] = true
			}
		}
		assert.Equal(t, want, s.runs(day), every)
		day.whole = true
		assert.Len(t, s.runs(day), 1, every)
	}
}

// A day's first run inserts its rollup with the number of deletions; later ones add to it.
func TestADayIsCountedInRunsAfterADeletion(t *testing.T) {
	t.Parallel()
	r := newRolls(t, retention())
	r.write(map[time.Duration]float64{0: 1})
	_, err := r.store.Delete(t.Context(), "a")
	require.NoError(t, err)
	r.write(map[time.Duration]float64{time.Minute: 2, 3 * time.Hour: 3, 5 * time.Hour: 4})
	assert.Len(t, r.roll(), 3)
	assert.Len(t, r.steps(), 3)
}

// TestReadingsInBetweenAreNeitherFirstNorLast of a step that they are added to.
func TestReadingsInBetweenAreNeitherFirstNorLast(t *testing.T) {
	t.Parallel()
	of := func(times ...int64) *rollupStep {
		out := &rollupStep{}
		for _, at := range times {
			r := storetest.Reading("a", 0, float64(at))
			r.Time = time.UnixMilli(at)
			out.add(&r)
		}
		return out
	}
	for _, both := range [][2]*rollupStep{{of(10, 40), of(20, 30)}, {of(20, 30), of(10, 40)}, {of(10, 30), of(20, 40)}, {of(20, 40), of(10, 30)}} {
		got := both[0].with(both[1])
		assert.Equal(t, []int64{4, 10, 40}, []int64{got.count, got.first, got.last})
		assert.Equal(t, []float64{10, 40}, []float64{got.fields[0].First.Float(), got.fields[0].Last.Float()})
	}
}

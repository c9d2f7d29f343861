package faulttest_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestHOL1 blocks writes to some buckets, with more readings than a lane can hold:
// other buckets must not be delayed.
//
// No other tests run concurrently, since times are compared; in the short form the
// four cases run concurrently.
func TestHOL1(t *testing.T) {
	for name, b := range map[string]stuckBuckets{
		"one bucket": {sensors: 1, step: time.Millisecond, granularity: "1h"},
		// Neither of the two fills most of the lane.
		"two buckets": {sensors: 2, step: time.Millisecond, granularity: "1h", healthy: 16},
		// A sensor whose writes are refused backfills hundreds of windows.
		"many windows": {sensors: 1, step: 200 * time.Millisecond, granularity: "1m", healthy: 16},
		// An open transaction locks a document: writes to it get no answer.
		"a locked document": {sensors: 1, step: time.Millisecond, granularity: "1h", locked: true},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t)
			timed(t, b.run)
		})
	}
}

// stuckBuckets are buckets that cannot be written.
type stuckBuckets struct {
	sensors     int // the first ones
	step        time.Duration
	granularity string
	locked      bool // by a transaction; otherwise refused by a validator
	healthy     int  // other sensors; 0: 200
}

func (b stuckBuckets) run(s *scene) (slow string) {
	s.shared()
	// With one lane, all buckets share it with the stuck ones.
	d := s.daemon("", "--flush-interval", "20ms", "--lanes", "1", "--queue-max-bytes", "2MiB", "--granularity", b.granularity)
	stuck := make(bson.A, b.sensors)
	for i := range stuck {
		stuck[i] = fmt.Sprint("s-", i)
	}
	flood := faulttest.ProducerConfig{Batch: 500, Sensors: b.sensors, Step: b.step, Rate: form(10_000.0, 5000)}
	if b.locked { // slow enough that a part is open most of the time, to be locked
		flood.Batch, flood.Rate = 50, 500
	}
	early := full() || b.locked // the part to lock must be there
	if early {
		s.produce(d, 2, flood)
	}
	others := s.produce(d, 32, faulttest.ProducerConfig{
		Batch: 2, FirstSensor: int64(b.sensors), Sensors: cmp.Or(b.healthy, 200), Step: time.Millisecond, Rate: 200, Ack: "stored", Timed: true,
	})
	const slowest = 0.01
	before := usual(others, form(time.Second, 20*time.Second), slowest)
	most := max(5*before, time.Second)
	if !full() || b.locked || b.healthy > 0 { // hung writes, and hundreds of windows, take time to isolate
		most = max(most, form(3500*time.Millisecond, 3*time.Second))
	}
	heal := b.keep(s, stuck)
	if !early {
		s.produce(d, 2, flood)
	}
	wait(max(form(6*time.Second, time.Minute), 2*most)) // longer than the limit
	heal()
	s.finish("HOL-1", 1)
	during := faulttest.Slowest(others.Counts.Took(), slowest) // includes readings that could not be stored earlier
	s.t.Logf("99 %% of the other sensors' readings were stored within %v before, within %v beside the stuck buckets", before, during)
	if during > most {
		return fmt.Sprintf("readings of other sensors took %v, before %v", during, before)
	}
	return ""
}

// usual returns the time within which almost all of the producers' readings are
// stored, over a period and for a minimum number of them.
func usual(p *faulttest.Producers, while time.Duration, slowest float64) time.Duration {
	const enough = 100
	var took []time.Duration
	for began := time.Now(); time.Since(began) < patience && (time.Since(began) < while || len(took) < enough); {
		wait(20 * time.Millisecond)
		took = append(took, p.Counts.Took()...)
	}
	return faulttest.Slowest(took, slowest)
}

// keep blocks writes to the buckets of some sensors until heal is called.
func (b stuckBuckets) keep(s *scene, sensors bson.A) (heal func()) {
	s.t.Helper()
	if !b.locked {
		s.validate(bson.D{{Key: "sensorId", Value: bson.D{{Key: "$nin", Value: sensors}}}})
		return func() { s.validate(bson.D{}) }
	}
	ctx := context.Background()
	session, err := s.db.Client().StartSession()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { session.EndSession(ctx) })
	require.NoError(s.t, session.StartTransaction())
	locks := mongo.NewSessionContext(ctx, session)
	// Lock the open part; closed ones are not written. The lock is refused during a
	// write.
	require.Eventually(s.t, func() bool {
		result, err := s.db.Collection("readings").UpdateMany(locks,
			bson.D{{Key: "sensorId", Value: bson.D{{Key: "$in", Value: sensors}}}, {Key: "full", Value: bson.D{{Key: "$ne", Value: true}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "note", Value: 1}}}})
		if err == nil && result.MatchedCount > 0 {
			return true
		}
		_ = session.AbortTransaction(ctx)
		require.NoError(s.t, session.StartTransaction())
		return false
	}, patience, 20*time.Millisecond)
	return func() { require.NoError(s.t, session.AbortTransaction(ctx)) }
}

// validate makes the collection refuse documents that do not match the expression.
func (s *scene) validate(expression bson.D) {
	s.t.Helper()
	err := s.db.RunCommand(context.Background(), bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: expression}}).Err()
	require.NoError(s.t, err)
}

package faulttest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestSCALE1 runs four daemons behind a balancer, on one replica set of three.
// A daemon is killed for ever, and so is the primary, in either order; the
// daemon's journal is replayed by a command while the other three write the same
// buckets. Of another daemon's journal a copy is replayed beside it, by mistake; then
// it is killed, its journal moved, and a new daemon goes on with it.
func TestSCALE1(t *testing.T) {
	faultTest{name: "SCALE-1", run: scaledOut, sabotages: []sabotage{
		{name: "adoption", run: func(s *scene) outcome { return adoption(s, false) }},
		{off: []fault.Protection{fault.Look}, run: func(s *scene) outcome { return adoption(s, true) }},
		{off: []fault.Protection{fault.Lock}, run: func(s *scene) outcome { return adoption(s, true) }},
		{name: "sticky-keys", run: scatteredKeys},
	}}.test(t)
}

// The places behind the balancer: daemons of the first two are replaced by ones
// with empty journals, those of the others by ones that go on with their journals,
// which clients with Idempotency-Keys need.
const (
	places = 4
	keyed  = 2 // the first place whose clients send keys
)

func scaledOut(s *scene) outcome {
	set := s.replicaSet(time.Second)
	s.check.MaxReadings = 20
	b := s.balancer(places, "", smallParts...)
	s.crowd(b)
	adopted, faults := uint64(0), 0
	for round := range form(s, 1, 8) {
		wait(form(s, time.Second, 3*time.Second))
		dead := round % keyed
		primary := set.Primary()
		primaryFirst := round%2 == 0
		if primaryFirst {
			primary.Kill()
			wait(form(s, 300*time.Millisecond, rand.N(time.Second)))
		}
		lost := b.lose(dead)
		if !primaryFirst {
			wait(rand.N(time.Second))
			primary.Kill()
		}
		faults += 2
		if full() { // the adoption dies as well
			faults += s.killAdoption(lost, rand.N(2*time.Second))
		}
		adopting := s.adopt(lost)
		wait(form(s, 300*time.Millisecond, time.Second))
		primary.Restart(s.t)
		set.AwaitHealthy()
		adopted += adopting.done().Stored
		assert.Zero(s.t, s.adopt(lost).done().Stored, "all of it was stored by the first")
		if full() {
			b.fill(dead, s.daemon("", smallParts...))
		}
		next := keyed + round%(places-keyed)
		s.adoptCopy(b.at(next))
		b.fill(next, s.successor(b.lose(next)))
		faults += 2
	}
	assert.Positive(s.t, adopted, "the lost daemons had stored everything")
	wait(form(s, 500*time.Millisecond, 2*time.Second))
	out := s.finish(faults)
	s.sharedBuckets()
	return out
}

// crowd makes the producers of four daemons: some go to a daemon each, some
// anywhere with readings of the same sensors, some wait for MongoDB, and some
// repeat their requests with the same keys.
func (s *scene) crowd(b *balancer) {
	at := func(route string, n int, cfg faulttest.ProducerConfig) {
		s.produce(&daemon{HTTP: b.URL + route}, n, cfg)
	}
	at("/any", 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20, Rate: form(s, 1000.0, 4000)})
	at("/any", 2, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Rate: form(s, 200.0, 400), Ack: "stored"})
	for _, sensor := range []string{"s-100", "s-101", "s-102", "s-103", "s-104", "s-105"} {
		at("/hash/"+sensor, 1, faulttest.ProducerConfig{Batch: 2, FirstSensor: 100 + int64(len(s.producers)), Rate: 100})
	}
	at("/keep/2", 2, faulttest.ProducerConfig{Batch: 5, Sensors: 20, Rate: 200, Keys: true, Repeat: 0.3})
	at("/keep/3", 2, faulttest.ProducerConfig{Batch: 5, Sensors: 20, Rate: 200, Keys: true, Repeat: 0.3})
}

// sharedBuckets holds that daemons wrote the same buckets: their sessions stand
// side by side in the guard.
func (s *scene) sharedBuckets() {
	s.t.Helper()
	shared, err := s.db.Collection("readings").CountDocuments(context.Background(), bson.D{{Key: "$expr", Value: bson.D{
		{Key: "$gt", Value: bson.A{bson.D{{Key: "$size", Value: bson.D{{Key: "$objectToArray", Value: "$w"}}}}, 1}},
	}}})
	require.NoError(s.t, err)
	assert.Positive(s.t, shared, "documents that several daemons wrote")
}

// scatteredKeys lets the balancer send a repeated request to any daemon.
func scatteredKeys(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	b := s.balancer(2, "", smallParts...)
	s.produce(&daemon{HTTP: b.URL + "/any"}, 2, faulttest.ProducerConfig{Batch: 5, Rate: 500, Keys: true, Repeat: 0.3})
	wait(time.Second)
	return s.finish(1)
}

// adoption loses one of two daemons while answers of MongoDB are lost, so that
// its journal holds readings that are stored and ones that are not.
func adoption(s *scene, adopt bool) outcome {
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	b := s.balancer(2, uri, smallParts...)
	s.produce(&daemon{HTTP: b.URL + "/any"}, 4, faulttest.ProducerConfig{Batch: 10, Rate: 2000})
	wait(300 * time.Millisecond)
	beside := s.adoptBeside(b.at(0))
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.5, faulttest.CutAnswer)})
	wait(500 * time.Millisecond)
	lost := b.lose(0)
	proxy.Set(faulttest.Faults{})
	if adopt {
		s.adoptFrom(lost, uri).done()
	}
	out := s.finish(1)
	out.broken = append(out.broken, beside...)
	return out
}

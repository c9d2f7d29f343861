package faulttest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestTS1LostAnswers is MONGO-1 with a time-series stream, which no guard can
// protect: Brim looks readings up before it resends them.
func TestTS1LostAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.timeSeries = true
	proxy, uri := s.proxy()
	d := s.daemon(uri, "--storage", "timeseries", "--flush-interval", "20ms")
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.Drop)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(600.0, 2000)})
	s.produce(d, 2, faulttest.ProducerConfig{Ack: "stored"})
	wait(form(3*time.Second, time.Minute))
	proxy.Set(faulttest.Faults{})
	s.finish("TS-1", proxy.Counts().Faults())
}

// TestTS1Delayed holds inserts back in the network, including the driver's own
// retries, until their readings have been inserted again.
func TestTS1Delayed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.timeSeries = true
	proxy, _ := s.proxy()
	d := s.daemon("mongodb://"+proxy.Addr()+"/?directConnection=true", "--storage", "timeseries", "--flush-interval", "20ms")
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(200.0, 1000)})
	rnd := rand.New(rand.NewPCG(1, 1))
	for range form(1, 6) {
		wait(500 * time.Millisecond)
		proxy.Set(faulttest.Faults{Decide: func(faulttest.Command) faulttest.Fate {
			wait(form(100*time.Millisecond, 0)) // the driver retries at once, on a new connection
			return faulttest.Hold
		}})
		wait(writeTimeout + time.Second)
		proxy.Set(faulttest.Faults{})
		s.flush(d)
		proxy.Release(rnd)
	}
	s.finish("TS-1", proxy.Counts().Faults())
}

// TestTS1Paused stops mongod for longer than the daemon waits: the abandoned
// insert and the lookup of its outcome are in its sockets together. Their order is
// random, so a fail point fixes it.
func TestTS1Paused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.timeSeries = true
	server := mongodtest.Start(t, mongod.Config{})
	s.mongo(server.URI())
	const lateness = 2 * time.Second
	late := func() {
		require.NoError(t, s.db.Client().Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"insert"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: lateness.Milliseconds()}}},
		}).Err())
	}
	d := s.daemon(s.uri+"&minPoolSize=20", "--storage", "timeseries", "--lanes", "1")
	produce := func() {
		p := s.produce(d, 4, faulttest.ProducerConfig{Batch: 100, Sensors: 100, Rate: 2000})
		wait(time.Second)
		p.Stop()
	}
	pauses := form(1, 6)
	for range pauses {
		produce()
		s.flush(d) // no connection is in use
		late()
		longPause(t, server, produce)
		s.flush(d)
		wait(lateness) // until it has begun
	}
	s.finish("TS-1", pauses)
}

// TestTS1Crashes is CRASH-1 with a time-series stream.
func TestTS1Crashes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.timeSeries = true
	s.finish("TS-1", s.kills("--storage", "timeseries", "--flush-interval", "20ms"))
}

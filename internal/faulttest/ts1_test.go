package faulttest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestTS1LostAnswers is MONGO-1 on a time-series stream, which no guard can
// protect: Brim looks readings up before it sends them again.
func TestTS1LostAnswers(t *testing.T) {
	faultTest{
		name: "TS-1", sabotages: []sabotage{without(fault.SeriesLook)},
		run: func(s *scene) outcome {
			s.shared()
			s.check.TimeSeries = true
			proxy, uri := s.proxy()
			d := s.daemon(uri, "--storage", "timeseries", "--flush-interval", "20ms")
			proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.Drop)})
			s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 600.0, 2000)})
			s.produce(d, 2, faulttest.ProducerConfig{Ack: "stored"})
			s.run(3*time.Second, time.Minute)
			proxy.Set(faulttest.Faults{})
			return s.finish(proxy.Counts().Faults())
		},
	}.test(t)
}

// TestTS1Delayed holds inserts back in the network, the driver's own retries too,
// and lets them arrive when their readings have been inserted again.
func TestTS1Delayed(t *testing.T) {
	faultTest{
		name: "TS-1", sabotages: []sabotage{without(fault.SeriesOrder)},
		run: func(s *scene) outcome {
			s.shared()
			s.check.TimeSeries = true
			proxy, _ := s.proxy()
			d := s.daemon("mongodb://"+proxy.Addr()+"/?directConnection=true", "--storage", "timeseries", "--flush-interval", "20ms")
			s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 200.0, 1000)})
			rnd := rand.New(rand.NewPCG(1, 1))
			for range rounds(s, 1, 6) {
				wait(500 * time.Millisecond)
				proxy.Set(faulttest.Faults{Decide: func(faulttest.Command) faulttest.Fate {
					wait(form(s, 100*time.Millisecond, 0)) // the driver repeats it at once, on a new connection
					return faulttest.Hold
				}})
				wait(writeTimeout + time.Second)
				proxy.Set(faulttest.Faults{})
				s.flush(d)
				proxy.Release(rnd)
			}
			return s.finish(proxy.Counts().Faults())
		},
	}.test(t)
}

// TestTS1Paused stops mongod for longer than the daemon waits: the insert that was
// given up and the lookup of its outcome are in its sockets together. Which of
// them begins first is a matter of chance, so a fail point helps.
func TestTS1Paused(t *testing.T) {
	faultTest{
		name: "TS-1", ownServer: true, sabotages: []sabotage{without(fault.SeriesOrder)},
		run: func(s *scene) outcome {
			s.check.TimeSeries = true
			s.own()
			const lateness = 2 * time.Second
			late := func() {
				require.NoError(s.t, s.db.Client().Database("admin").RunCommand(context.Background(), bson.D{
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
			pauses := rounds(s, 1, 6)
			for range pauses {
				produce()
				s.flush(d) // no connection is in use
				late()
				s.longPause(produce)
				s.flush(d)
				wait(lateness) // until it has begun
			}
			return s.finish(pauses)
		},
	}.test(t)
}

// TestTS1Crashes is CRASH-1 on a time-series stream.
func TestTS1Crashes(t *testing.T) {
	faultTest{
		name: "TS-1", sabotages: []sabotage{without(fault.SeriesLook)},
		run: func(s *scene) outcome {
			s.shared()
			s.check.TimeSeries = true
			return crashes(s, "--storage", "timeseries", "--flush-interval", "20ms")
		},
	}.test(t)
}

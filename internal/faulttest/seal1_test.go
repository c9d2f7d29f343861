package faulttest_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestSEAL1 seals windows while readings for them still arrive: event time is in the past, so all
// of them have ended. A daemon writes, in both formats; some of its updates get no answer, and
// some arrive only after their part was sealed. A second daemon only seals, and crashes at each
// step. In the end both seal at the same time, and the writer is also killed.
func TestSEAL1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	proxy, uri := s.proxy()
	flags := append([]string{"--seal-after", "0", "--bucket-format", "columns"}, largeParts...)
	writer := s.daemon(uri, flags...)
	sealer := s.daemon("", flags...)
	s.produce(writer, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(300.0, 1000), Late: 10 * time.Minute})
	s.produce(writer, 1, faulttest.ProducerConfig{Batch: 2, Rate: 50, Ack: "stored"})
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.2, faulttest.CutAnswer, faulttest.Hold)})
	kills := 0
	for range form(1, 5) {
		for _, point := range sealPoints {
			s.seal(sealer)
			kills += s.crashSealing(sealer, point)
			proxy.Release(rand.New(rand.NewPCG(1, uint64(kills)))) // after their parts were sealed
		}
	}
	for i := range form(2, 10) {
		sealed := make(chan struct{})
		go func() {
			defer close(sealed)
			for range passes {
				s.seal(sealer)
			}
		}()
		for range passes {
			s.seal(writer)
		}
		<-sealed
		writer.kill()
		writer.start([]string{"--bucket-format", []string{"documents", "columns"}[i%2]}...).ready()
		kills++
	}
	s.stopProducers()
	faults := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	proxy.Release(rand.New(rand.NewPCG(2, 0)))
	s.flush(writer)
	s.seal(sealer)
	s.allSealed()
	s.finish("SEAL-1", kills+faults)
}

// passes is how often a daemon seals before the writer is killed.
const passes = 10

// sealPoints are the steps of sealing at which a daemon that does nothing else crashes.
var sealPoints = form(
	[]string{"update@readings.before", "update@readings.after"},
	[]string{"find@readings.before:5", "find@readings.after:5", "update@readings.before", "update@readings.after", "update@readings.before:2", "update@readings.after:2"},
)

// crashSealing restarts the daemon, and makes it crash while it seals. It returns 1 if it
// did, and 0 if it sealed everything without reaching the point.
func (s *scene) crashSealing(d *daemon, point string) (crashed int) {
	s.t.Helper()
	d.kill()
	d.Crash = point
	d.start().awaitReady() // unless it crashes before
	s.seal(d)
	if d.ended() {
		crashed = 1
	}
	d.kill()
	d.Crash = ""
	d.start().ready()
	return crashed
}

// seal makes a daemon seal all ended windows, and returns when it is done or has crashed.
func (s *scene) seal(d *daemon) {
	s.t.Helper()
	var begun struct{ Pass int64 }
	assert.True(s.t, d.await(func() bool {
		code, body, err := d.ask(http.MethodPost, "/seal?stream=readings")
		return err == nil && code == http.StatusOK && json.Unmarshal([]byte(body), &begun) == nil && begun.Pass > 0
	}) || d.ended(), "the daemon does not begin to seal")
	assert.True(s.t, d.await(func() bool {
		var status struct {
			Streams []struct {
				Sealing struct {
					Pass    int64
					Running bool
				}
			}
		}
		code, body, err := d.ask(http.MethodGet, "/status")
		if err != nil || code != http.StatusOK || json.Unmarshal([]byte(body), &status) != nil || len(status.Streams) == 0 {
			return false
		}
		now := status.Streams[0].Sealing
		return now.Pass > begun.Pass || now.Pass == begun.Pass && !now.Running
	}) || d.ended(), "the daemon does not finish sealing")
}

// allSealed fails unless there are parts and all are sealed.
func (s *scene) allSealed() {
	s.t.Helper()
	count := func(filter bson.D) int64 {
		n, err := s.db.Collection("readings").CountDocuments(context.Background(), filter)
		require.NoError(s.t, err)
		return n
	}
	holds := bson.E{Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}}
	assert.Positive(s.t, count(bson.D{holds}))
	assert.Zero(s.t, count(bson.D{holds, {Key: "$expr", Value: bson.D{{Key: "$ne", Value: bson.A{"$count", "$sealed.n"}}}}}), "parts that are not sealed")
}

package faulttest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// TestDROP1Buckets drops the collection, or the database, while a daemon keeps
// writing to the same buckets. What was stored is lost with it. Everything
// attempted afterwards is stored once, in a collection like the first.
func TestDROP1Buckets(t *testing.T) {
	faultTest{
		name: "DROP-1", sabotages: []sabotage{without(fault.Target), without(fault.Forget)},
		run: func(s *scene) outcome {
			return drops(s, append(smallParts[:len(smallParts):len(smallParts)], "--compressor", "zstd")...)
		},
	}.test(t)
}

// TestDROP1TimeSeries is the same with a time-series stream, which an insert in
// the gap would make an ordinary collection.
func TestDROP1TimeSeries(t *testing.T) {
	faultTest{
		name: "DROP-1", sabotages: []sabotage{without(fault.Target)},
		run: func(s *scene) outcome {
			s.check.TimeSeries = true
			return drops(s, "--storage", "timeseries")
		},
	}.test(t)
}

func drops(s *scene, flags ...string) outcome {
	s.shared()
	d := s.daemon("", append(flags, "--retention", "20000h", "--flush-interval", "20ms")...)
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 5, Sensors: 5, Rate: 500, Step: 5 * time.Millisecond})
	s.produce(d, 2, faulttest.ProducerConfig{Sensors: 5, Ack: "stored", Step: 5 * time.Millisecond})
	s.someStored()
	before := s.collections()
	faults := rounds(s, 4, 40)
	for i := range faults {
		s.someStored()
		if i%2 == 0 {
			require.NoError(s.t, s.db.Collection(s.check.Stream).Drop(context.Background()))
		} else {
			require.NoError(s.t, s.db.Drop(context.Background()))
		}
		s.log.Forgive()
	}
	wait(time.Second)
	if s.sabotaged && s.check.TimeSeries && strings.Contains(s.collections(), s.check.Stream+":collection") {
		d.kill() // it cannot store readings in an ordinary collection
	}
	out := s.finish(faults)
	if after := s.collections(); after != before {
		s.t.Logf("before: %s\nafter: %s", before, after)
		out.broken = append(out.broken, "the collections are not as they were")
	}
	return out
}

// someStored waits until the stream's collection holds something.
func (s *scene) someStored() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.db.Collection(s.check.Stream).FindOne(context.Background(), bson.D{}).Err() == nil
	}, patience, 5*time.Millisecond)
	wait(200 * time.Millisecond) // so that parts fill up
}

// collections describes those of the stream, with their indexes.
func (s *scene) collections() string {
	s.t.Helper()
	ctx := context.Background()
	found, err := s.db.ListCollectionSpecifications(ctx, bson.D{})
	require.NoError(s.t, err)
	all := make(map[string]string) // printed in the order of the names
	for _, f := range found {
		if f.Name == "system.views" || f.Name == claim.Collection { // it returns within seconds
			continue
		}
		all[f.Name] = fmt.Sprint(f.Type, " ", f.Options)
		if f.Type == "view" {
			continue
		}
		indexes, err := s.db.Collection(f.Name).Indexes().ListSpecifications(ctx)
		require.NoError(s.t, err)
		for _, index := range indexes {
			all[f.Name] += fmt.Sprint(" ", index.Name, index.KeysDocument)
			if index.ExpireAfterSeconds != nil {
				all[f.Name] += fmt.Sprint(" for ", *index.ExpireAfterSeconds)
			}
		}
	}
	return fmt.Sprint(all)
}

package faulttest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// TestDROP1Buckets drops the collection, or the database, while a daemon writes
// to the same buckets. Stored readings are lost with it. Everything attempted
// afterwards is stored once, in a collection like the first.
func TestDROP1Buckets(t *testing.T) {
	t.Parallel()
	newScene(t).drops(append(smallParts[:len(smallParts):len(smallParts)], "--compressor", "zstd")...)
}

// TestDROP1TimeSeries does the same with a time-series stream, where an insert
// in between would create a regular collection.
func TestDROP1TimeSeries(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.timeSeries = true
	s.drops("--storage", "timeseries")
}

func (s *scene) drops(flags ...string) {
	s.t.Helper()
	s.shared()
	d := s.daemon("", append(flags, "--retention", "20000h", "--flush-interval", "20ms")...)
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 5, Sensors: 5, Rate: 500, Step: 5 * time.Millisecond})
	s.produce(d, 2, faulttest.ProducerConfig{Sensors: 5, Ack: "stored", Step: 5 * time.Millisecond})
	s.someStored()
	before := s.collections()
	drops := form(4, 40)
	for i := range drops {
		s.someStored()
		if i%2 == 0 {
			require.NoError(s.t, s.db.Collection(s.check.Stream).Drop(context.Background()))
		} else {
			require.NoError(s.t, s.db.Drop(context.Background()))
		}
		s.log.Forgive()
	}
	wait(time.Second)
	s.finish("DROP-1", drops)
	assert.Equal(s.t, before, s.collections(), "the collections are not as they were")
}

// someStored waits until the stream's collection has documents.
func (s *scene) someStored() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.db.Collection(s.check.Stream).FindOne(context.Background(), bson.D{}).Err() == nil
	}, patience, 5*time.Millisecond)
	wait(200 * time.Millisecond) // lets parts fill up
}

// collections describes the stream's collections and their indexes.
func (s *scene) collections() string {
	s.t.Helper()
	ctx := context.Background()
	found, err := s.db.ListCollectionSpecifications(ctx, bson.D{})
	require.NoError(s.t, err)
	all := make(map[string]string) // printed in name order
	for _, f := range found {
		if f.Name == "system.views" || f.Name == claim.Collection || f.Name == store.SensorsName(s.check.Stream) { // recreated within seconds
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

package catalog

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/brim-telemetry/brim/internal/batch"
)

// known caches which combinations of a sensor, its tags and its fields are written, and with what
// time range. It has two generations: when the young one has half of the entries, the old one is
// dropped. A dropped entry is written again.
type known struct {
	maxEntries int // entries of a shard's generation
	shards     [64]knownShard
	// salts are mixed into the keys of sensors that were forgotten, so that their entries are not
	// found any more. Usually nil.
	salts atomic.Pointer[map[uint64]uint64]
	epoch atomic.Uint64 // the same for all sensors
	salt  sync.Mutex    // held while salts change
}

type knownShard struct {
	mu         sync.RWMutex
	young, old map[uint64]written
}

// written is a time range in minutes since 1970: from <= t < to.
type written struct{ from, to uint32 }

const minute = 60_000 // milliseconds

func newKnown(maxEntries int) *known { return &known{maxEntries: max(1, maxEntries/2/64)} }

// key returns the cache key of a series and a shape.
func (k *known) key(series *batch.Series, shape *batch.Shape) uint64 {
	key := series.Identity()*0x9E3779B97F4A7C15 ^ shape.Identity() ^ k.epoch.Load()
	if salts := k.salts.Load(); salts != nil {
		key ^= (*salts)[series.Hash]
	}
	return key
}

func (k *known) shard(key uint64) *knownShard { return &k.shards[key>>58] }

// covers reports whether an entry is written with a time range that includes both times.
func (k *known) covers(key uint64, first, last int64) bool {
	s := k.shard(key)
	s.mu.RLock()
	w, ok := s.young[key]
	old := false
	if !ok {
		w, old = s.old[key]
	}
	s.mu.RUnlock()
	if old {
		k.put(key, w)
	}
	return (ok || old) && first >= int64(w.from)*minute && last < int64(w.to)*minute
}

// put records that an entry is written. Its time range only grows.
func (k *known) put(key uint64, w written) {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.young[key]
	if !ok {
		before, ok = s.old[key]
	}
	if ok {
		w = written{min(w.from, before.from), max(w.to, before.to)}
	}
	if len(s.young) >= k.maxEntries {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = make(map[uint64]written)
	}
	s.young[key] = w
}

// maxSalts bounds the sensors that are forgotten individually; beyond that, all are forgotten.
const maxSalts = 100_000

// forget makes covers return false for sensors, by their batch.SeriesHash.
func (k *known) forget(sensors []uint64) {
	k.salt.Lock()
	defer k.salt.Unlock()
	salts := make(map[uint64]uint64)
	if before := k.salts.Load(); before != nil {
		salts = maps.Clone(*before)
	}
	if len(salts)+len(sensors) > maxSalts {
		k.forgetAll()
		return
	}
	for _, hash := range sensors {
		salts[hash] = salts[hash]*0x9E3779B97F4A7C15 + hash | 1
	}
	k.salts.Store(&salts)
}

// forgetAll makes covers return false for all sensors.
func (k *known) forgetAll() {
	k.epoch.Add(0x9E3779B97F4A7C15)
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		s.young, s.old = nil, nil
		s.mu.Unlock()
	}
	k.salts.Store(nil)
}

// minutes returns a time in milliseconds as minutes, rounded down.
func minutes(ms int64) uint32 { return uint32(min(max(0, ms/minute), math.MaxUint32)) }

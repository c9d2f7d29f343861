package batch

import (
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// An Interner remembers series and shapes from request to request, so that a
// sensor that is known costs a look instead of its decoding, and all batches
// share one copy. What was not in use for long is forgotten: it holds two
// generations, and when the younger has half of the bytes, the older goes.
//
// Any number of goroutines may use it.
type Interner struct {
	most   int64 // bytes of a shard's generation
	shards [internShards]shard

	builders sync.Pool // of *Builder
}

const (
	internShards = 16
	// defaultInterned holds some 40,000 sensors of line protocol with ten tags, or
	// 150,000 with a short name and no tags.
	defaultInterned = 64 << 20
	// knownBytes is what an entry takes besides what it is about.
	knownBytes = 96
)

type shard struct {
	mu         sync.RWMutex
	young, old map[uint64]*known
	bytes      int64 // of young
}

// known is what a key stands for.
type known struct {
	key    string
	kind   keyKind
	series *Series
	shape  *Shape
	bytes  int64
}

// keyKind tells keys apart that may have the same bytes.
type keyKind uint8

const (
	keySeries keyKind = iota // encoded series, tags as they came
	keyShape                 // Shape.key
	keyAlias
	keyPacked // Series.packed
)

// NewInterner returns an interner that holds so many bytes at most; 0: 64 MiB.
func NewInterner(bytes int64) *Interner {
	if bytes == 0 {
		bytes = defaultInterned
	}
	return &Interner{most: max(1, bytes/2/internShards)}
}

// Builder returns a builder for the readings of a request that arrived at
// received. It goes back when it has made its batch.
func (n *Interner) Builder(received time.Time) *Builder {
	b, ok := n.builders.Get().(*Builder)
	if !ok {
		b = newBuilder(n)
		b.pooled = true
	}
	b.reset(received)
	return b
}

// Alias returns the series that SetAlias was called with for the same key; nil
// if that is not known any more.
func (n *Interner) Alias(key []byte) *Series {
	if e := n.find(keyAlias, key); e != nil {
		return e.series
	}
	return nil
}

// SetAlias remembers that a series can be had without decoding it. The key is
// what a decoder makes of it: whatever the outcome depends on, behind a byte
// that tells its decoder from others.
func (n *Interner) SetAlias(key []byte, s *Series) {
	n.add(&known{key: string(key), kind: keyAlias, series: s, bytes: keyed(key, s)})
}

// unpacked returns the series that was packed so, and what was made for it.
func (n *Interner) unpacked(packed []byte) (s *Series, made int, err error) {
	if e := n.find(keyPacked, packed); e != nil {
		return e.series, 0, nil
	}
	if s, err = unpackSeries(string(packed)); err != nil {
		return nil, 0, err
	}
	if before := n.find(keySeries, []byte(s.encoded)); before != nil {
		s = before.series
	} else {
		n.setSeries(s.encoded, s)
		made = s.memory()
	}
	n.add(&known{key: s.packed, kind: keyPacked, series: s, bytes: keyed("", s)})
	return s, made, nil
}

// seriesOf returns the series with this key; nil if it is not known.
func (n *Interner) seriesOf(key []byte) *Series {
	if e := n.find(keySeries, key); e != nil {
		return e.series
	}
	return nil
}

// setSeries remembers a series under its own encoded form or another one.
func (n *Interner) setSeries(key string, s *Series) {
	n.add(&known{key: key, kind: keySeries, series: s, bytes: keyed(key, s)})
}

// keyed is what an entry takes with the series that it keeps, which others may
// keep as well: any of them may be the last.
func keyed[K string | []byte](key K, s *Series) int64 {
	return knownBytes + int64(len(key)+s.memory())
}

// shapeOf returns the shape with this key; nil if it is not known.
func (n *Interner) shapeOf(key []byte) *Shape {
	if e := n.find(keyShape, key); e != nil {
		return e.shape
	}
	return nil
}

func (n *Interner) setShape(s *Shape) {
	n.add(&known{key: s.key, kind: keyShape, shape: s, bytes: knownBytes + int64(s.memory())})
}

func (n *Interner) find(kind keyKind, key []byte) *known {
	hash := xxhash.Sum64(key) + uint64(kind)
	s := &n.shards[hash>>60]
	s.mu.RLock()
	e, young := s.young[hash]
	if !young {
		e = s.old[hash]
	}
	s.mu.RUnlock()
	if e == nil || e.kind != kind || e.key != string(key) {
		return nil
	}
	if !young {
		n.put(s, hash, e)
	}
	return e
}

// add remembers e. Of two keys with the same hash the later one is known.
func (n *Interner) add(e *known) {
	hash := xxhash.Sum64String(e.key) + uint64(e.kind)
	n.put(&n.shards[hash>>60], hash, e)
}

func (n *Interner) put(s *shard, hash uint64, e *known) {
	if e.bytes > n.most/16 {
		return // one sensor with hundreds of long tags is not worth many others
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+e.bytes > n.most {
		s.old, s.young, s.bytes = s.young, nil, 0
	}
	if s.young == nil {
		s.young = make(map[uint64]*known)
	}
	if before := s.young[hash]; before != nil {
		s.bytes -= before.bytes
	}
	s.young[hash] = e
	s.bytes += e.bytes
}

package maintain

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
)

// RegroupConfig says which granularity documents are to have.
type RegroupConfig struct {
	Granularity time.Duration   // the new one
	Found       []time.Duration // that documents have now, as far as is known
	MaxReadings int             // in a part, 1 to 1,000,000
	MaxBytes    int             // estimated BSON bytes of the readings in a part, 1 KiB to 2 MiB
}

// Regroup is the Reshaper that moves readings into documents of another
// granularity:
//
//	10:00 1m ─ part 0, part 1 ┐                    ┌▶ 10:00 5m ─ part 0 … full, part n
//	10:01 1m ─ part 0         ├─ readings by time ─┤
//	10:04 1m ─ part 0         ┘                    └▶ 10:00 1m ─ part 0, part 1   tombstones:
//	                                                  10:01 1m ─ part 0           no readings,
//	                                                  10:04 1m ─ part 0           w as it was, full
//
// Daemons write meanwhile, and do not know. After the swap their next update
// of a bucket may be one that the old collection has already, its answer lost;
// it may be new; it may be a request that sat in a socket; or it is read from a
// journal after a crash. All of them are still written to buckets of the old
// granularity, since a record is replayed under that which it was journaled
// with. What a daemon may rely on there is this:
//
//   - The readings of one session that a bucket holds are a prefix of those it
//     was sent, and the largest w of the session in any of its parts says how far
//     the prefix goes.
//   - A part that is full takes no update, whenever that arrives.
//   - Part p+1 is written only after p was seen full.
//
// A tombstone stands under the _id of each document whose readings went
// elsewhere, with its w, and full. So all three still hold of the bucket: an update
// of any of the parts that were there finds its _id taken and its filter not
// matching, which the server says (E11000); the daemon then looks at all parts,
// drops what w says is stored, and goes on in the first part that is not full: the
// one behind the tombstones. A part that only a delayed request would create is
// not stored yet, and is created, with the guard of its session, behind the
// tombstones. Nothing is lost, since all that w stands for was moved, and
// nothing is stored twice, since w is carried along wherever a request could
// look for it. w is not carried to where the readings went: "all up to w is
// stored" is said of the one bucket.
//
// In documents of the new granularity sessions may write already: those of
// daemons that were started with it. Their parts keep numbers, readings and w.
// Readings that come from other granularities follow in parts of higher
// numbers, whose w names no session, and the open part before them becomes full: a
// session that still has it in mind finds out as above, and goes on in the last.
//
// A document that an old daemon wrote behind tombstones is moved by the next
// migration, and leaves one more tombstone. Back again, readings become parts
// behind the tombstones of their bucket: numbers stay dense, and w is where it
// always was.
//
// What is stored in a bucket is forgotten when its tombstones are removed, by
// DropTombstones or by the retention. Until then all readings accepted under
// the old granularity must be stored.
type Regroup struct {
	cfg   RegroupConfig
	parts Parts
	grain int32 // seconds
	span  time.Duration
}

// NewRegroup checks cfg.
func NewRegroup(cfg RegroupConfig) (*Regroup, error) {
	span := cfg.Granularity
	for _, g := range append([]time.Duration{cfg.Granularity}, cfg.Found...) {
		if err := store.CheckGranularity(g, store.Documents); err != nil {
			return nil, err
		}
		span = leastMultiple(span, g)
	}
	if cfg.MaxReadings < 1 || cfg.MaxReadings > 1_000_000 {
		return nil, fmt.Errorf("bucket-max-readings %d is out of range; allowed: 1 to 1000000", cfg.MaxReadings)
	}
	if cfg.MaxBytes < 1<<10 || cfg.MaxBytes > 2<<20 {
		return nil, fmt.Errorf("bucket-max-bytes %d is out of range; allowed: 1KiB to 2MiB", cfg.MaxBytes)
	}
	return &Regroup{
		cfg: cfg, grain: int32(cfg.Granularity / time.Second), span: span,
		parts: Parts{Granularity: cfg.Granularity, MaxReadings: cfg.MaxReadings, MaxBytes: cfg.MaxBytes},
	}, nil
}

// leastMultiple returns the least common multiple. Of lengths that divide an
// hour it divides an hour.
func leastMultiple(a, b time.Duration) time.Duration {
	x, y := int64(a), int64(b)
	for y != 0 {
		x, y = y, x%y
	}
	return time.Duration(int64(a) / x * int64(b))
}

// A SpanError says that a document has a granularity that was not known of: its
// window may reach beyond the group. The move is to start over with a Regroup
// that knows of it.
type SpanError struct {
	ID          string // of the document
	Granularity time.Duration
	Span        time.Duration // of groups
}

// Error implements error.
func (e *SpanError) Error() string {
	return fmt.Sprintf("document %s has a granularity of %s, which came while groups of %s were moved: start the copy over", e.ID, e.Granularity, e.Span)
}

// Span implements Reshaper.
func (r *Regroup) Span() time.Duration { return r.span }

// Reshape implements Reshaper. The error may be a *SpanError.
func (r *Regroup) Reshape(group []bson.Raw) ([]bson.Raw, error) {
	g := regrouping{regroup: r, native: make(map[int64][]oldPart), moved: make(map[int64][]Measurement)}
	for _, raw := range group {
		p, err := r.read(raw)
		if err != nil {
			return nil, err
		}
		if err := g.take(p); err != nil {
			return nil, err
		}
	}
	if err := g.merge(); err != nil {
		return nil, err
	}
	slices.SortFunc(g.out, func(a, b newDocument) int { return a.id.compare(b.id) })
	out := make([]bson.Raw, len(g.out))
	for i, d := range g.out {
		out[i] = d.raw
	}
	return out, nil
}

func (r *Regroup) read(raw bson.Raw) (oldPart, error) {
	p, err := readPart(raw)
	if err != nil {
		return p, err
	}
	g := time.Duration(p.id.grain) * time.Second
	if err := store.CheckGranularity(g, store.Documents); err != nil {
		return p, fmt.Errorf("document %v is none of a bucket stream: %w", p.id, err)
	}
	if r.span%g != 0 {
		return p, &SpanError{ID: p.id.String(), Granularity: g, Span: r.span}
	}
	return p, nil
}

// regrouping is the work on one group.
type regrouping struct {
	regroup *Regroup
	sensor  string
	native  map[int64][]oldPart     // of the new granularity already, by window
	moved   map[int64][]Measurement // of other granularities, by the window they come to
	out     []newDocument
}

type newDocument struct {
	id  partID
	raw bson.Raw
}

// take keeps a document, or takes its readings and leaves a tombstone.
func (g *regrouping) take(p oldPart) error {
	g.sensor = p.id.sensor
	if p.id.grain == g.regroup.grain {
		g.native[p.id.start] = append(g.native[p.id.start], p)
		return nil
	}
	if p.tombstone {
		g.out = append(g.out, newDocument{p.id, p.raw})
		return nil
	}
	readings, err := p.readings()
	if err != nil {
		return err
	}
	for _, m := range readings {
		start := store.WindowStart(m.Time, g.regroup.cfg.Granularity)
		g.moved[start] = append(g.moved[start], m)
	}
	g.out = append(g.out, newDocument{p.id, tombstone(p)})
	return nil
}

// merge makes parts of the readings that were taken, behind those that their
// windows have.
func (g *regrouping) merge() error {
	for start, readings := range g.moved {
		next := int32(0)
		for i, p := range g.native[start] {
			g.native[start][i].raw = p.closed()
			next = max(next, p.id.number+1)
		}
		parts, err := g.regroup.parts.Make(g.sensor, start, next, readings)
		if err != nil {
			return err
		}
		for i, raw := range parts {
			g.out = append(g.out, newDocument{partID{g.sensor, start, g.regroup.grain, next + int32(i)}, raw})
		}
	}
	for _, parts := range g.native {
		for _, p := range parts {
			g.out = append(g.out, newDocument{p.id, p.raw})
		}
	}
	return nil
}

// tombstone returns what stands under the part's _id when its readings are
// elsewhere.
func tombstone(p oldPart) bson.Raw {
	doc := bsoncore.NewDocumentBuilder().
		AppendDocument("_id", p.id.document()).
		AppendDateTime("bucketStart", p.id.start).
		AppendInt32("bytes", 0).
		AppendInt32("count", 0).
		AppendArray("measurements", bsoncore.NewArrayBuilder().Build()).
		AppendString("sensorId", p.id.sensor)
	if p.guard != nil {
		doc.AppendDocument("w", bsoncore.Document(p.guard))
	}
	return bson.Raw(doc.AppendBoolean("full", true).AppendBoolean(migratedKey, true).Build())
}

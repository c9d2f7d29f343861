package bucket

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// part is what is known of the part that a bucket's next update goes to. It is
// kept in the State of the bucket's share, from write to write. The database
// checks every cap by itself; a part that is not known exactly only means that
// an update may be cut too large and has to be cut again.
type part struct {
	number   int32
	count    int64 // readings known to be inside
	bytes    int64
	tags     *[]telemetry.Tag // of the part; nil while not known
	limit    int              // readings per update while a poison reading is searched for; 0: none
	mustLook bool             // before the next update, because the last one was refused
	applied  uint64           // a lookup showed this sequence of the share's session, perhaps in an earlier part
	of       int64            // generation of the collection that all this is about; 0: none yet
}

// partOf returns the share's part.
func partOf(share *batch.Share) *part {
	if p, ok := share.State.(*part); ok {
		return p
	}
	p := &part{mustLook: share.Recovered}
	share.State = p
	return p
}

// forget discards what is known of the shares' parts in an earlier collection: in
// this one they may be absent or different.
func (s *Store) forget(shares []*batch.Share, to *store.Prepared) {
	for _, share := range shares {
		p := partOf(share)
		if p.of == to.Generation {
			continue
		}
		if p.of != 0 && !s.cfg.Faults.Off(fault.Forget) {
			*p = part{mustLook: true}
		}
		p.of = to.Generation
	}
}

// next moves on to the part after the present one, which is closed.
func (p *part) next() { p.number, p.count, p.bytes, p.tags = p.number+1, 0, 0, nil }

// A reading stands in the array as an element, type and key of up to four
// digits, whose document has a length, ts and a terminator beside its fields.
const (
	element  = 1 + 5
	frame    = 4 + (1 + 3 + 8) + 1
	overhead = element + frame
)

// weight estimates the bytes of a reading inside a part, without tags of its own.
func weight(r batch.Ref) int64 { return int64(r.Row().Size) + overhead }

// tagsOf returns the tags that a reading was sent with.
func tagsOf(r batch.Ref) *[]telemetry.Tag { return &r.Batch.Series(r.Row()).Tags }

// Weight estimates the bytes of a reading inside a part, which it stands in as
// document. It is what a Store counts for the same reading.
func Weight(document bson.Raw) int64 { return int64(len(document)) + element }

// operation is one guarded update.
//
// The tags of a part are in its document once, and only a reading that was sent
// with other tags, or with none, has its own beside its fields. So an operation is
// made for a part with certain tags: those that a lookup or a write has shown, or
// else those of the first row. The latter is a guess, which is wrong if an earlier
// process created the part with other tags, or another daemon is creating it, and
// even the former is wrong if the part was deleted and created again. Therefore
// the filter demands these tags, and an upsert that creates the part takes them
// from the filter. Readings 1 and 2 are of site north, 3 is of site south:
//
//	part    operation              result
//	none    north: 1, 2, 3 south   north: 1, 2, 3 south
//	north   north: 1, 2, 3 south   north: …, 1, 2, 3 south
//	south   north: 1, 2, 3 south   E11000, the lookup shows south, then:
//	south   south: 1 north, 2 north, 3
//
// However late an operation arrives, it is applied to a part with the tags that it
// was made for, or not at all, and no operation changes the tags of a part.
type operation struct {
	share  *batch.Share
	part   *part
	number int32 // of the part, at the time of sending
	rows   []batch.Ref
	bytes  int64
	fills  bool // the part is closed by this very update

	tags *[]telemetry.Tag // that the part must have; nil for an operation without rows
	own  int              // rows with other tags

	bulk   *bulk // that carries it
	newest int64 // time of its rows; known once it is encoded

	maxReadings, maxBytes int64
}

// ownTags returns the tags that a row keeps beside its fields, nil if it has those
// of the part.
func (op *operation) ownTags(r batch.Ref) *[]telemetry.Tag {
	if tags := tagsOf(r); !store.SameTags(*tags, *op.tags) {
		return tags
	}
	return nil
}

// cut decides how many of the share's rows go into its present part: as many
// as fit, false if not even the first does. A reading that is larger than an
// empty part goes alone.
func (s *Store) cut(share *batch.Share, p *part) (operation, bool) {
	now := s.live.Load()
	op := operation{
		share: share, part: p, number: p.number,
		maxReadings: int64(now.MaxReadings), maxBytes: int64(now.MaxBytes),
		tags: p.tags,
	}
	if op.tags == nil && len(share.Rows) > 0 {
		op.tags = tagsOf(share.Rows[0])
	}
	most := op.maxReadings - p.count
	if n := int64(now.MaxReadingsPerUpdate); n > 0 {
		most = min(most, n)
	}
	if p.limit > 0 {
		most = min(most, int64(p.limit))
	}
	most = min(most, int64(len(share.Rows)))
	var n, largest int64
	for ; n < most; n++ {
		w, own := weight(share.Rows[n]), 0
		if tags := op.ownTags(share.Rows[n]); tags != nil && !s.cfg.Faults.Off(fault.OwnTags) {
			w, own = w+store.OwnTagsSize(*tags), 1
		}
		if op.bytes+w > op.maxBytes-p.bytes && (n > 0 || p.count > 0) {
			break
		}
		op.bytes, op.own = op.bytes+w, op.own+own
		largest = max(largest, w)
	}
	if n == 0 {
		return op, false
	}
	op.rows = share.Rows[:n:n]
	// Closing the part together with its last update saves a command. Whether
	// the next reading fits by bytes is a guess; closing too early is harmless.
	op.fills = p.count+n >= op.maxReadings || p.bytes+op.bytes+largest > op.maxBytes
	return op, true
}

// stored is what the database holds of one part.
type stored struct {
	ID struct {
		Sensor string        `bson:"s"`
		Start  bson.DateTime `bson:"b"`
		Grain  int32         `bson:"g"`
		Part   int32         `bson:"p"`
	} `bson:"_id"`
	Count  int64            `bson:"count"`
	Bytes  int64            `bson:"bytes"`
	Full   bool             `bson:"full"`
	Tags   bson.RawValue    `bson:"tags"`
	Writes map[string]int64 `bson:"w"`
}

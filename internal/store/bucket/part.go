package bucket

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
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
	tags     uint64 // hash of the tags that the part was created with, 0 while not known
	limit    int    // readings per update while a poison reading is searched for; 0: none
	mustLook bool   // before the next update, because the last one was refused
	applied  uint64 // a look showed this sequence of the share's session, perhaps in an earlier part
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

// next moves on to the part after the present one, which is closed.
func (p *part) next() { p.number, p.count, p.bytes, p.tags = p.number+1, 0, 0, 0 }

// A reading stands in the array as an element, type and key of up to four
// digits, whose document has a length, ts and a terminator beside its fields.
const (
	element  = 1 + 5
	frame    = 4 + (1 + 3 + 8) + 1
	overhead = element + frame
)

// weight estimates the bytes of a reading inside a part.
func weight(r batch.Ref) int64 { return int64(r.Row().Size) + overhead }

// Weight estimates the bytes of a reading inside a part, which it stands in as
// document. It is what a Store counts for the same reading.
func Weight(document bson.Raw) int64 { return int64(len(document)) + element }

// operation is one guarded update.
type operation struct {
	share  *batch.Share
	part   *part
	number int32 // of the part, at the time of sending
	rows   []batch.Ref
	bytes  int64
	fills  bool // the part is closed by this very update

	bulk   *bulk // that carries it
	newest int64 // time of its rows; known once it is encoded

	maxReadings, maxBytes int64
}

// tags are what a new part gets.
func (op *operation) tags() []telemetry.Tag {
	return op.rows[0].Batch.Series(op.rows[0].Row()).Tags
}

// cut decides how many of the share's rows go into its present part: as many
// as fit, false if not even the first does. A reading that is larger than an
// empty part goes alone.
func (s *Store) cut(share *batch.Share, p *part) (operation, bool) {
	now := s.live.Load()
	op := operation{
		share: share, part: p, number: p.number,
		maxReadings: int64(now.MaxReadings), maxBytes: int64(now.MaxBytes),
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
		w := weight(share.Rows[n])
		if op.bytes+w > op.maxBytes-p.bytes && (n > 0 || p.count > 0) {
			break
		}
		op.bytes += w
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
	Writes map[string]int64 `bson:"w"`
}

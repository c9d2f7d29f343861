package bucket

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// bulk is what one Write sends: its operations, and the memory that they are
// encoded in. The driver is given operations rather than bytes and asks each
// for its filter and its update when it composes the command. It copies what
// it gets before it asks the next, so all of them are encoded in the same few
// kilobytes, and nothing of ours is in its hands when it begins to send.
type bulk struct {
	encoder
	ops    []operation
	models []mongo.UpdateOneModel
	writes []mongo.WriteModel
	filter []byte // of the operation at hand
	update []byte
	left   int       // operations of the command at hand that are not encoded yet
	sent   time.Time // when all were
}

// filterOf and updateOf are an operation's two documents, as bson.Marshaler.
type (
	filterOf operation
	updateOf operation
)

// MarshalBSON returns bytes that are valid until the next operation's are made.
func (f *filterOf) MarshalBSON() ([]byte, error) {
	b := f.bulk
	b.filter = b.encoder.filter(b.filter[:0], (*operation)(f))
	return b.filter, nil
}

// MarshalBSON returns bytes that are valid until the next operation's are made.
func (u *updateOf) MarshalBSON() ([]byte, error) {
	b := u.bulk
	b.update = b.encoder.update(b.update[:0], (*operation)(u))
	if b.left--; b.left == 0 {
		b.sent = time.Now()
	}
	return b.update, nil
}

// bulks keeps what is needed again.
type bulks struct{ pool sync.Pool }

func (p *bulks) get(faults *fault.Injector) *bulk {
	b, ok := p.pool.Get().(*bulk)
	if !ok {
		b = &bulk{}
	}
	b.faults = faults
	return b
}

// keptBytes is how large an update's memory may be to be kept.
const keptBytes = 1 << 20

func (p *bulks) put(b *bulk) {
	clear(b.ops) // they hold readings
	b.ops = b.ops[:0]
	if cap(b.update) <= keptBytes {
		p.pool.Put(b)
	}
}

// commandBytes is about how large a command gets. The driver grows its message
// from a kilobyte on, copying it again and again, unless it finds one of the
// size in its pool, and it keeps none of more than 16 MiB: at 60 readings of
// ten fields an update, commands of 7 MiB cost this process about twice the CPU
// a reading of those of 1 MiB.
const commandBytes = 1 << 20

// oneCommand returns how many of the operations go into the next command.
func oneCommand(ops []operation) int {
	n, size := 0, int64(0)
	for n < len(ops) && (n == 0 || size < commandBytes) {
		size += ops[n].size()
		n++
	}
	return n
}

// size estimates the bytes of the update: the readings, and for each field four
// elements of statistics with longer names.
func (op *operation) size() int64 { return 512 + op.bytes + 5*int64(op.rows[0].Row().Size) }

// send carries some of the operations to the collection, in one command. The
// reply's time is that of the round trip, without the encoding before it.
func (b *bulk) send(ctx context.Context, coll *mongo.Collection, ops []operation, to *store.Prepared) reply {
	upsert := true
	b.models, b.writes = b.models[:0], b.writes[:0]
	for i := range ops {
		op := &ops[i]
		op.bulk = b
		b.models = append(b.models, mongo.UpdateOneModel{Filter: (*filterOf)(op), Update: (*updateOf)(op), Upsert: &upsert})
	}
	for i := range b.models {
		b.writes = append(b.writes, &b.models[i])
	}
	b.left, b.sent = len(ops), time.Now()
	_, err := coll.BulkWrite(ctx, b.writes, to.Bulk)
	return reply{err: err, took: time.Since(b.sent)}
}

package batch

import "github.com/brim-telemetry/brim/pkg/telemetry"

// A Request is what a client asks of the journal along with its readings.
type Request struct {
	Want telemetry.Ack
	// Journaled is called by Append, before it returns, when the readings are in
	// the journal and it keeps waiting until they are stored. May be nil.
	Journaled func()

	// Key is the client's Idempotency-Key, with whatever bounds its scope in
	// front; empty: none. BodyHash tells requests of one key apart, and Answer is
	// what a repetition is to be answered with; the journal does not look into it.
	Key      string
	BodyHash uint64
	Answer   []byte
}

// A Receipt is the journal's answer for one batch.
type Receipt struct {
	Ack     telemetry.Ack
	Refused []Refused // by the database, for their content; kept aside as dead letters

	// Repeated: a request with this key was taken before, so nothing of this one
	// was; Answer is that of the first.
	Repeated bool
	Answer   []byte
}

// Refused is a reading that was taken and then could not be stored.
type Refused struct {
	Index   int // position of the reading in its request
	Refusal telemetry.Refusal
}

// A Record is one batch at its place in the journal. Positions rise; what they
// count is the journal's own matter.
type Record struct {
	Batch    *Batch
	Position uint64
	Next     uint64 // position of the record behind it
}

// A Cursor walks along a journal, over nothing but what is durable there. It is
// used by one goroutine at a time; the batches that it returns are shared and
// only to be read.
type Cursor interface {
	// Next returns the record at the cursor and moves behind it. It does not wait:
	// found is false where nothing has come yet. An error, of reading the disk,
	// leaves the cursor where it is.
	Next() (r Record, found bool, err error)
	// Position is that of the record that Next would return.
	Position() uint64
}

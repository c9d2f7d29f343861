package batch

import "github.com/brim-telemetry/brim/pkg/telemetry"

// A Request is what a client requests from the journal along with its readings.
type Request struct {
	Want telemetry.Ack
	// Memory is what the readings hold until they are in the journal; may be nil. After
	// Append it is the caller's again.
	Memory Memory

	// Key is the client's Idempotency-Key with its scope in front; empty: none. BodyHash
	// tells requests of one key apart. Answer is kept for a request that is repeated.
	Key      string
	BodyHash uint64
	Answer   []byte
}

// Memory is released by Append where its return does not tell when.
type Memory interface {
	// Release is called when the readings are in the journal and Append goes on to wait
	// until they are stored.
	Release()
	// ReleaseAfter is called when Append returns before the readings are in the journal,
	// because its context has ended; done is closed when they are, or never will be.
	ReleaseAfter(done <-chan struct{})
}

// A Receipt is the journal's answer for one batch.
type Receipt struct {
	Ack     telemetry.Ack
	Refused []Refused // by the database, for their content; kept as dead letters

	// Repeated: a request with this key was accepted before, so this one was not;
	// Answer is that of the first.
	Repeated bool
	Answer   []byte
}

// Refused is a reading that was accepted and then could not be stored.
type Refused struct {
	Index   int // position of the reading in its request
	Refusal telemetry.Refusal
}

// A Record is one batch at its position in the journal. Positions rise.
type Record struct {
	Batch    *Batch
	Position uint64
	Next     uint64 // position of the record behind it
}

// A Cursor reads what is durable in a journal, record by record. It is used by one
// goroutine at a time; the batches that it returns are shared and read-only.
type Cursor interface {
	// Next returns the record at the cursor and moves behind it. It does not wait: found
	// is false if there is none yet. An error leaves the cursor where it is.
	Next() (r Record, found bool, err error)
	// Position is that of the record that Next will return.
	Position() uint64
}

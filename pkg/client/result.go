package client

import (
	"fmt"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Result is what became of a request.
type Result struct {
	Accepted int
	Rejected int
	// Ack is what was reached. It is less than was asked, journaled, when MongoDB did
	// not answer in time. Empty where nothing was accepted.
	Ack      telemetry.Ack
	Refused  []Refused // the readings that were rejected; of those that the daemon did, the first 100
	Attempts int       // in which the request was sent; 0 where no reading could be
	Replayed bool      // the answer is the one that the daemon gave before
	Address  string    // that took them
}

// Refused is a reading that broke a rule.
type Refused struct {
	Index   int // in the request
	Sensor  string
	Code    telemetry.Code
	Message string // what was wrong and what is allowed
}

// A RefusedError says that readings were refused. The others were accepted.
type RefusedError struct{ Result Result }

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%d of %d readings were refused", e.Result.Rejected, e.Result.Rejected+e.Result.Accepted)
	if len(e.Result.Refused) > 0 {
		first := e.Result.Refused[0]
		text += fmt.Sprintf("; reading %d, of sensor %s: %s: %s", first.Index, telemetry.Quote([]byte(first.Sensor)), first.Code, first.Message)
	}
	return text
}

// An Error says that a request failed. Err holds why: a *telemetry.Error where the
// daemon answered, an error of the network, or that of the context.
type Error struct {
	// Unknown says that the readings may have been taken. Repeating them is harmless
	// with the same key at the same address, for as long as that remembers keys: 15
	// minutes, unless a million others came meanwhile.
	Unknown  bool
	Key      string // that the request had; empty where nothing was written
	Address  string // of the last attempt
	Attempts int
	Err      error
}

// Error implements error.
func (e *Error) Error() string {
	text := "ask " + e.Address
	if e.Key != "" {
		text = "send readings to " + e.Address
	}
	if e.Attempts > 1 {
		text += fmt.Sprintf(", %d times", e.Attempts)
	}
	text += ": " + e.Err.Error()
	if e.Unknown {
		text += "; they may have been taken"
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// finish completes the result with what was not sent.
func (w *write) finish(r Result) (Result, error) {
	for i := range r.Refused { // numbers of what was sent
		place := w.place(r.Refused[i].Index)
		r.Refused[i].Index, r.Refused[i].Sensor = place, w.all[place].Sensor
	}
	r.Rejected += len(w.refused)
	r.Refused = append(r.Refused, w.refused...)
	if r.Rejected > 0 {
		return r, &RefusedError{Result: r}
	}
	return r, nil
}

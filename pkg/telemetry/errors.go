package telemetry

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind is why a whole request failed. Each kind has one HTTP status and
// one gRPC code; see the table in internal/ingest.
type ErrorKind uint8

// The kinds of error. Everything else is Internal.
const (
	Internal        ErrorKind = iota // a bug in Brim
	Invalid                          // the request makes no sense; repeating it will not help
	TooSlow                          // the request arrived too slowly; nothing was accepted
	TooLarge                         // a limit on size or number was exceeded
	Unsupported                      // unknown media type or encoding
	NotAcceptable                    // none of the accepted media types is available
	NotFound                         // no such stream or sensor
	Conflict                         // the same idempotency key with another body
	Unauthenticated                  // the sender is unknown; repeat it with a token or a certificate
	Forbidden                        // the sender is known, and may not do this
	Quota                            // this client sends too much; retry later
	Unavailable                      // full, stopping, or MongoDB is down; nothing was accepted, retry later
	UnknownOutcome                   // it may have been accepted; repeat it only with an Idempotency-Key
)

// An Error ends a whole request. Message is meant for the client; Err, which
// may be nil, is for the log only.
type Error struct {
	Kind       ErrorKind
	Code       string // short and stable, like "body_too_large"
	Message    string
	RetryAfter time.Duration // for Quota and Unavailable; otherwise zero
	Err        error
}

// Errorf returns an Error with a formatted message.
func Errorf(kind ErrorKind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Code + ": " + e.Message + ": " + e.Err.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or Internal.
func KindOf(err error) ErrorKind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

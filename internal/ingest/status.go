package ingest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A result is the outcome of a request.
type result uint8

const (
	allTaken     result = iota // every reading has the requested ack
	notYetStored               // every reading is journaled, but stored was requested
	partlyTaken                // some readings were refused
	nothingTaken               // every reading was refused
	noneAllowed                // every reading was refused, because the sender may not send for its sensor
	methodWrong                // HTTP only
	invalid                    // from here on: the kinds of telemetry.Error, in their order
	tooSlow
	tooLarge
	unsupported
	notAcceptable
	notFound
	conflict
	unauthenticated
	forbidden
	quota
	unavailable
	unknownOutcome
	internal
)

// A statusRow has the status codes of a result.
type statusRow struct {
	result result
	http   int // JSON
	line   int // line protocol
	grpc   codes.Code
}

// statuses has all status codes; row i is result i. Over gRPC a partial refusal is a
// success whose response names the refused readings.
var statuses = [...]statusRow{
	{allTaken, http.StatusOK, http.StatusNoContent, codes.OK},
	{notYetStored, http.StatusAccepted, http.StatusAccepted, codes.OK},
	{partlyTaken, http.StatusMultiStatus, http.StatusBadRequest, codes.OK},
	{nothingTaken, http.StatusBadRequest, http.StatusBadRequest, codes.InvalidArgument},
	{noneAllowed, http.StatusForbidden, http.StatusForbidden, codes.PermissionDenied},
	{methodWrong, http.StatusMethodNotAllowed, http.StatusMethodNotAllowed, codes.Unimplemented},
	{invalid, http.StatusBadRequest, http.StatusBadRequest, codes.InvalidArgument},
	{tooSlow, http.StatusRequestTimeout, http.StatusRequestTimeout, codes.Aborted},
	{tooLarge, http.StatusRequestEntityTooLarge, http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	{unsupported, http.StatusUnsupportedMediaType, http.StatusUnsupportedMediaType, codes.Unimplemented},
	{notAcceptable, http.StatusNotAcceptable, http.StatusNotAcceptable, codes.Unimplemented},
	{notFound, http.StatusNotFound, http.StatusNotFound, codes.NotFound},
	{conflict, http.StatusConflict, http.StatusConflict, codes.AlreadyExists},
	{unauthenticated, http.StatusUnauthorized, http.StatusUnauthorized, codes.Unauthenticated},
	{forbidden, http.StatusForbidden, http.StatusForbidden, codes.PermissionDenied},
	{quota, http.StatusTooManyRequests, http.StatusTooManyRequests, codes.ResourceExhausted},
	{unavailable, http.StatusServiceUnavailable, http.StatusServiceUnavailable, codes.Unavailable},
	{unknownOutcome, http.StatusGatewayTimeout, http.StatusGatewayTimeout, codes.DeadlineExceeded},
	{internal, http.StatusInternalServerError, http.StatusInternalServerError, codes.Internal},
}

// resultOf returns the result for an error of this kind. Kinds and results have the same
// order, except that Internal is the zero kind.
func resultOf(kind telemetry.ErrorKind) result {
	if kind < telemetry.Invalid || kind > telemetry.UnknownOutcome {
		return internal
	}
	return invalid + result(kind-telemetry.Invalid)
}

// Codes for requests that are refused as a whole, in addition to those of the journal. Like
// the codes of readings, they do not change.
const (
	codeMalformed       = "malformed"
	codeNoReadings      = "no_readings"
	codeStreamUnknown   = "stream_unknown"
	codeAckUnknown      = "ack_unknown"
	codeAckUnavailable  = "ack_unavailable"
	codeParameter       = "invalid_parameter"
	codePrecision       = "precision_unknown"
	codeTypeUnknown     = "type_unknown"
	codeEncodingUnknown = "encoding_unknown"
	codeEncodingBroken  = "encoding_broken"
	codeCutOff          = "body_cut_off"
	codeTooSlow         = "body_too_slow"
	codeBodyTooLarge    = "body_too_large"
	codeInflated        = "inflated_too_large"
	codeRatio           = "inflate_ratio"
	codeTooMany         = "readings_too_many"
	codeKey             = "idempotency_key"
	codeBusy            = "busy"
	codeBudget          = "memory_too_large"
	codePathUnknown     = "path_unknown"
	codeMethodWrong     = "method_not_allowed"
	codeOutcomeUnknown  = "outcome_unknown"
	codeInternal        = "internal"
	codeNothingTaken    = "nothing_taken" // every reading was refused
	codePartialWrite    = "partial_write" // line protocol: some lines were refused
	codeEmpty           = "empty"         // a message has no payload
	codeNoValue         = "no_value"      // NaN, null and the like
	codeMessageTooLarge = "message_too_large"
)

// knownError returns err as a *telemetry.Error for the client, and logs it.
func (srv *Server) knownError(p protocol, err error) *telemetry.Error {
	known, ok := errors.AsType[*telemetry.Error](err)
	if !ok {
		known = &telemetry.Error{Kind: telemetry.Internal, Code: codeInternal, Message: "an internal error occurred; see the daemon's log", Err: err}
	}
	// Operators must see internal errors. Errors of clients are only for debugging.
	level := slog.LevelDebug
	if known.Kind == telemetry.Internal {
		level = slog.LevelError
	}
	srv.logger.Log(context.Background(), level, "request refused", "protocol", p, "code", known.Code, "error", known)
	return known
}

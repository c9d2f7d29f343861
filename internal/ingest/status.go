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
	failed                     // the first of one result for each telemetry.ErrorKind
)

// A statusRow has the status codes of a result.
type statusRow struct {
	http int
	grpc codes.Code
}

// statuses has all status codes. Over gRPC a partial refusal is a success whose response
// names the refused readings.
var statuses = [...]statusRow{
	allTaken:                                   {http.StatusOK, codes.OK},
	notYetStored:                               {http.StatusAccepted, codes.OK},
	partlyTaken:                                {http.StatusMultiStatus, codes.OK},
	nothingTaken:                               {http.StatusBadRequest, codes.InvalidArgument},
	noneAllowed:                                {http.StatusForbidden, codes.PermissionDenied},
	methodWrong:                                {http.StatusMethodNotAllowed, codes.Unimplemented},
	failed + result(telemetry.Internal):        {http.StatusInternalServerError, codes.Internal},
	failed + result(telemetry.Invalid):         {http.StatusBadRequest, codes.InvalidArgument},
	failed + result(telemetry.TooSlow):         {http.StatusRequestTimeout, codes.Aborted},
	failed + result(telemetry.TooLarge):        {http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	failed + result(telemetry.Unsupported):     {http.StatusUnsupportedMediaType, codes.Unimplemented},
	failed + result(telemetry.NotAcceptable):   {http.StatusNotAcceptable, codes.Unimplemented},
	failed + result(telemetry.NotFound):        {http.StatusNotFound, codes.NotFound},
	failed + result(telemetry.Conflict):        {http.StatusConflict, codes.AlreadyExists},
	failed + result(telemetry.Unauthenticated): {http.StatusUnauthorized, codes.Unauthenticated},
	failed + result(telemetry.Forbidden):       {http.StatusForbidden, codes.PermissionDenied},
	failed + result(telemetry.Quota):           {http.StatusTooManyRequests, codes.ResourceExhausted},
	failed + result(telemetry.Unavailable):     {http.StatusServiceUnavailable, codes.Unavailable},
	failed + result(telemetry.UnknownOutcome):  {http.StatusGatewayTimeout, codes.DeadlineExceeded},
}

func resultOf(kind telemetry.ErrorKind) result { return failed + result(kind) }

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
	var known *telemetry.Error
	if !errors.As(err, &known) {
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

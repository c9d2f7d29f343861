package journal

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The reasons for which nothing is taken, also values of the label reason.
const (
	codeFull     = "journal_full"
	codeDiskFull = "journal_disk_full"
	codeFailed   = "journal_failed"
	codeGone     = "journal_gone"
	codeBusy     = "busy"
	codeStopping = "stopping"
	codeQueue    = "queue_full"
	codeAway     = "mongodb_away"
	codeUnknown  = "outcome_unknown"
)

func refusals() []string {
	return []string{codeFull, codeDiskFull, codeFailed, codeGone, codeBusy, codeStopping, codeQueue, codeAway}
}

func unavailable(code, message string, cause error) *telemetry.Error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: code, Message: message, RetryAfter: time.Second, Err: cause}
}

func errStopping() *telemetry.Error {
	return unavailable(codeStopping, "the daemon is stopping; nothing was taken, send the request again", nil)
}

func errFailed(cause error) *telemetry.Error {
	e := unavailable(codeFailed, "the journal cannot be written any more; nothing was taken", cause)
	e.RetryAfter = 10 * time.Second
	return e
}

func errGone(cause error) *telemetry.Error {
	e := unavailable(codeGone, "the journal's folder was removed or replaced while the daemon was running; no readings were accepted", goneError{cause})
	e.RetryAfter = 10 * time.Second
	return e
}

func errDiskFull(cause error) *telemetry.Error {
	e := unavailable(codeDiskFull, "the disk of the journal is full or cannot be written; nothing was taken", cause)
	e.RetryAfter = 5 * time.Second
	return e
}

func errFull(limit int64) *telemetry.Error {
	e := unavailable(codeFull, fmt.Sprintf(
		"the journal holds as much as it may, %d bytes (--journal-max-bytes), because MongoDB is away or stores less than what arrives; nothing was taken", limit), nil)
	e.RetryAfter = 5 * time.Second
	return e
}

// noSpace reports whether a write failed because the disk, or the user's share
// of it, is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func errUnknownStream(name string) *telemetry.Error {
	return telemetry.Errorf(telemetry.NotFound, "stream_unknown", "stream %s does not exist", telemetry.Quote([]byte(name)))
}

func errUnknownOutcome(message string, cause error) *telemetry.Error {
	return &telemetry.Error{Kind: telemetry.UnknownOutcome, Code: codeUnknown, Message: message, Err: cause}
}

// A CorruptionError says where the journal is damaged: bytes that were durable
// once cannot be read as what was written.
type CorruptionError struct {
	File     string // with its directory; the directory alone where a segment is missing
	Missing  bool   // no file is left that could be damaged
	Offset   int64  // in the file
	Position uint64 // in the journal
	Wrong    string // what is wrong there
	Durable  uint64 // position before which everything was durable
}

// Error implements error.
func (e *CorruptionError) Error() string {
	if e.Missing {
		return fmt.Sprintf("the journal in %s is damaged: %s, for everything before position %d was durable. "+
			"Restore the file from a copy; or, to give up the readings in it, start with --journal-corruption=quarantine", e.File, e.Wrong, e.Durable)
	}
	return fmt.Sprintf("the journal is damaged: %s at offset %d (position %d): %s, though everything before position %d was durable. "+
		"Restore the file from a copy; or, to give up the readings that cannot be read, start with --journal-corruption=quarantine, "+
		"which keeps the damaged file as %s%s and stores all others", e.File, e.Offset, e.Position, e.Wrong, e.Durable, e.File, corruptSuffix)
}

package journal

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The reasons for which requests are refused, also values of the label reason.
const (
	codeFull     = "journal_full"
	codeDiskFull = "journal_disk_full"
	codeFailed   = "journal_failed"
	codeGone     = "journal_gone"
	codeStopping = "stopping"
	codeQueue    = "queue_full"
	codeAway     = "mongodb_away"
)

func refusals() []string {
	return []string{codeFull, codeDiskFull, codeFailed, codeGone, codeStopping, codeQueue, codeAway}
}

func unavailable(code, message string, cause error) *telemetry.Error {
	e := &telemetry.Error{Kind: telemetry.Unavailable, Code: code, Message: message, RetryAfter: time.Second, Err: cause}
	switch code {
	case codeFull, codeDiskFull:
		e.RetryAfter = 5 * time.Second
	case codeFailed, codeGone:
		e.RetryAfter = 10 * time.Second
	}
	return e
}

func errStopping() *telemetry.Error {
	return unavailable(codeStopping, "the daemon is stopping; no readings were accepted, send the request again", nil)
}

func errFailed(cause error) *telemetry.Error {
	return unavailable(codeFailed, "the journal cannot be written until the daemon is restarted; no readings were accepted", cause)
}

func errGone(cause error) *telemetry.Error {
	return unavailable(codeGone, "the journal's folder was removed or replaced while the daemon was running; no readings were accepted", cause)
}

func errDiskFull(cause error) *telemetry.Error {
	return unavailable(codeDiskFull, "the disk of the journal is full or cannot be written; no readings were accepted", cause)
}

func (j *Journal) errFull() *telemetry.Error {
	if j.cfg.Memory {
		return unavailable(codeQueue, "the queue is full, because readings arrive faster than MongoDB stores them (--queue-max-bytes); no readings were accepted", nil)
	}
	return unavailable(codeFull, fmt.Sprintf("the journal is full at %d bytes (--journal-max-bytes), "+
		"because MongoDB is away or stores less than what arrives; no readings were accepted", j.cfg.MaxBytes), nil)
}

func errUnknownOutcome(message string, cause error) *telemetry.Error {
	return &telemetry.Error{Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Message: message, Err: cause}
}

// noSpace reports whether a write failed because the disk or the user's quota is
// full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// A CorruptionError says where the journal is damaged: bytes that were durable once
// cannot be read as what was written.
type CorruptionError struct {
	Problem
	Missing bool   // no damaged file is left
	Durable uint64 // position before which everything was durable
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

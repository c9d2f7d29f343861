package journal

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Codes of refused requests, also values of the label reason.
const (
	codeFull     = "journal_full"
	codeDiskFull = "journal_disk_full"
	codeFailed   = "journal_failed"
	codeGone     = "journal_gone"
	codeStopping = "stopping"
	codeQueue    = "queue_full"
	codeAway     = "mongodb_away"
)

// refusals are the answers to refused requests by their codes.
func (c *Config) refusals() map[string]telemetry.Error {
	return map[string]telemetry.Error{
		codeFull:     {RetryAfter: 5 * time.Second, Message: fmt.Sprintf("the journal is full at %d bytes (--journal-max-bytes), because MongoDB is away or stores readings more slowly than they arrive", c.MaxBytes)},
		codeDiskFull: {RetryAfter: 5 * time.Second, Message: "the disk of the journal is full or cannot be written"},
		codeFailed:   {RetryAfter: 10 * time.Second, Message: "the journal cannot be written until the daemon is restarted"},
		codeGone:     {RetryAfter: 10 * time.Second, Message: "the journal's folder was removed or replaced while the daemon was running"},
		codeStopping: {RetryAfter: time.Second, Message: "the daemon is stopping, send the request again"},
		codeQueue:    {RetryAfter: time.Second, Message: "the queue is full, because readings arrive faster than MongoDB stores them (--queue-max-bytes)"},
		codeAway:     {RetryAfter: time.Second, Message: "MongoDB does not answer, and there is no journal"},
	}
}

// refusal returns the error for a refused request.
func (j *Journal) refusal(code string, cause error) *telemetry.Error {
	e := j.refusals[code]
	e.Kind, e.Code, e.Err = telemetry.Unavailable, code, cause
	e.Message += "; no readings were accepted"
	return &e
}

// errFull is the error when the journal has reached MaxBytes.
func (j *Journal) errFull() *telemetry.Error {
	if j.cfg.Memory {
		return j.refusal(codeQueue, nil)
	}
	return j.refusal(codeFull, nil)
}

// quietFor is the time without refusals after which the log says that requests are accepted
// again: small ones may be accepted between larger ones that are refused.
const quietFor = 5 * time.Second

// note counts a refused request, and logs when requests begin to be refused for lack of space,
// and when they are accepted again.
func (j *Journal) note(err error) {
	e, refused := errors.AsType[*telemetry.Error](err)
	switch {
	case err == nil:
		if j.refusing.Load() && j.cfg.Elapsed()-time.Duration(j.refusedAt.Load()) >= quietFor && j.refusing.CompareAndSwap(true, false) {
			j.cfg.Logger.Info("requests are accepted again", "dir", j.cfg.Dir, "bytes", j.bytes.Load(), "max_bytes", j.cfg.MaxBytes)
		}
	case refused && e.Kind == telemetry.Unavailable:
		j.metrics.refused.WithLabelValues(e.Code).Inc()
		if e.Code != codeFull && e.Code != codeQueue && e.Code != codeDiskFull {
			return
		}
		j.refusedAt.Store(int64(j.cfg.Elapsed()))
		if j.refusing.CompareAndSwap(false, true) {
			j.cfg.Logger.Warn("requests are refused", "dir", j.cfg.Dir, "bytes", j.bytes.Load(), "max_bytes", j.cfg.MaxBytes, "err", err)
		}
	}
}

func errUnknownOutcome(message string, cause error) *telemetry.Error {
	return &telemetry.Error{Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Message: message, Err: cause}
}

// noSpace reports whether a write failed because the disk or the user's quota is
// full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// A CorruptionError says where the journal is damaged: bytes that were durable cannot be read as
// they were written.
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

package store

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// An errorClass is the class of a MongoDB error code of a command, or of one of its operations:
//
//	class        of a write                              of a read
//	away         send it again after a while             503 mongodb_away
//	interrupted  send it again after a while             503 query_interrupted
//	tooLarge     close the part                          cannot be
//	content      halve, until one reading stands alone   500: the query is Brim's own
//	not named    send it again after a while             500
//
// A reading is given up only for content and tooLarge errors, and only if it was written alone.
type errorClass uint8

const (
	_           errorClass = iota
	away                   // no usable server was reached: it is starting, stopping, hanging, or not the primary
	interrupted            // the server ended this command, but may execute the next one
	tooLarge               // a document outgrew MongoDB's limit
	content                // caused by the update's content, or by the part that it was sent to
)

var errorClasses = map[int]errorClass{
	6:     away, // HostUnreachable
	7:     away, // HostNotFound
	89:    away, // NetworkTimeout
	91:    away, // ShutdownInProgress
	133:   away, // FailedToSatisfyReadPreference
	134:   away, // ReadConcernMajorityNotAvailableYet
	189:   away, // PrimarySteppedDown
	202:   away, // NetworkInterfaceExceededTimeLimit
	317:   away, // ConnectionPoolExpired
	9001:  away, // SocketException
	10058: away, // LegacyNotPrimary
	10107: away, // NotWritablePrimary
	11600: away, // InterruptedAtShutdown
	11602: away, // InterruptedDueToReplStateChange
	13435: away, // NotPrimaryNoSecondaryOk
	13436: away, // NotPrimaryOrSecondary

	24:    interrupted, // LockTimeout
	43:    interrupted, // CursorNotFound
	46:    interrupted, // LockBusy
	50:    interrupted, // MaxTimeMSExpired
	63:    interrupted, // StaleShardVersion
	64:    interrupted, // WriteConcernFailed: waiting for replication timed out
	112:   interrupted, // WriteConflict
	146:   interrupted, // ExceededMemoryLimit
	150:   interrupted, // StaleEpoch
	175:   interrupted, // QueryPlanKilled: the collection was dropped, or renamed
	211:   interrupted, // KeyNotFound: of a cluster's clock
	234:   interrupted, // RetryChangeStream
	237:   interrupted, // CursorKilled
	239:   interrupted, // SnapshotTooOld
	246:   interrupted, // SnapshotUnavailable
	251:   interrupted, // NoSuchTransaction
	262:   interrupted, // ExceededTimeLimit
	290:   interrupted, // TransactionExceededLifetimeLimitSeconds
	292:   interrupted, // QueryExceededMemoryLimitNoDiskUseAllowed
	314:   interrupted, // ObjectIsBusy
	11601: interrupted, // Interrupted
	13388: interrupted, // StaleConfig

	10334: tooLarge, // BSONObjectTooLarge
	17419: tooLarge, // the document after the update
	17420: tooLarge, // the document after the modifiers

	2:  content, // BadValue
	9:  content, // FailedToParse
	14: content, // TypeMismatch
	22: content, // InvalidBSON
	28: content, // PathNotViable
	40: content, // ConflictingUpdateOperators
	52: content, // DollarPrefixedFieldName
	56: content, // EmptyFieldName
	57: content, // DottedFieldName
}

// TooLarge reports whether the code says that a document outgrew MongoDB's
// limit.
func TooLarge(code int) bool { return errorClasses[code] == tooLarge }

// ContentError reports whether the code says that the written content caused the error.
func ContentError(code int) bool { return errorClasses[code] == content }

// Away reports whether err says that no server could be used: none was reached, or
// the one reached is starting, stopping, or not the primary.
func Away(err error) bool {
	return is(err, away) || mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, mongo.ErrClientDisconnected) ||
		errors.Is(err, ErrAway) || clearedPool(err)
}

// clearedPool reports whether err is that of a connection pool, such as one that was cleared
// because its server failed.
func clearedPool(err error) bool {
	var pool interface{ Retryable() bool }
	return errors.As(err, &pool) && pool.Retryable()
}

// Resend reports whether a numbered write should be sent again at once, as the driver does with its
// retryable writes.
func Resend(err error) bool {
	var labeled mongo.LabeledError
	return mongo.IsNetworkError(err) || clearedPool(err) || errors.As(err, &labeled) && labeled.HasErrorLabel("RetryableWriteError")
}

// Transient reports whether the same command may succeed after a while.
func Transient(err error) bool {
	if Away(err) || is(err, interrupted) {
		return true
	}
	labels := []string{"RetryableWriteError", "TransientTransactionError", "ResumableChangeStreamError", "RetryableError", "SystemOverloadedError"}
	var labeled mongo.LabeledError
	return errors.As(err, &labeled) && slices.ContainsFunc(labels, labeled.HasErrorLabel)
}

// is reports whether one of the codes of err has the class.
func is(err error, want errorClass) bool {
	return slices.ContainsFunc(mongo.ErrorCodes(err), func(code int) bool { return errorClasses[code] == want })
}

package simulate

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A failure is an error that MongoDB answers with.
type failure struct {
	code    int32
	message string
	more    bson.D // further fields
}

// Codes of MongoDB.
const (
	badValue, failedToParse, typeMismatch, namespaceNotFound    = 2, 9, 14, 26
	indexNotFound, pathNotViable, conflictingUpdate, cursorGone = 27, 28, 40, 43
	namespaceExists, dollarPrefixed, emptyFieldName             = 48, 52, 56
	immutableField, optionsConflict                             = 66, 85
	validationFailed, transactionTooOld, mismatchedUUID         = 121, 225, 361
	duplicateKey, tooLarge                                      = 11000, 17419
	notPrimary, interruptedByElection, notPrimaryNoSecondaryOk  = 10107, 11602, 13435
)

var names = map[int32]string{
	2: "BadValue", 9: "FailedToParse", 14: "TypeMismatch", 26: "NamespaceNotFound", 27: "IndexNotFound", 28: "PathNotViable",
	40: "ConflictingUpdateOperators", 43: "CursorNotFound", 48: "NamespaceExists", 50: "MaxTimeMSExpired", 52: "DollarPrefixedFieldName", 56: "EmptyFieldName",
	64: "WriteConcernFailed", 66: "ImmutableField", 76: "NoReplicationEnabled", 85: "IndexOptionsConflict", 91: "ShutdownInProgress", 100: "UnsatisfiableWriteConcern", 112: "WriteConflict",
	121: "DocumentValidationFailure", 189: "PrimarySteppedDown", 225: "TransactionTooOld", 361: "CollectionUUIDMismatch",
	10107: "NotWritablePrimary", 11000: "DuplicateKey", 11600: "InterruptedAtShutdown", 11602: "InterruptedDueToReplStateChange", 13435: "NotPrimaryNoSecondaryOk",
}

// retryable are the codes with which MongoDB asks for a write with a number to be sent
// once more.
var retryable = map[int32]bool{
	6: true, 7: true, 89: true, 91: true, 134: true, 189: true, 262: true, 9001: true,
	10107: true, 11600: true, 11602: true, 13435: true, 13436: true,
}

func failed(code int32, format string, args ...any) *failure {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}

// catch turns a panic with a failure into it.
func catch(err **failure) {
	switch r := recover().(type) {
	case nil:
	case *failure:
		*err = r
	default:
		panic(r)
	}
}

// unknown is what the model panics with when it is sent what it does not know: extend it
// then, and the comparison with a real mongod.
func unknown(format string, args ...any) string {
	return "simulate: the model of MongoDB does not know " + fmt.Sprintf(format, args...)
}

func (f *failure) name() string { return names[f.code] }

// fields are those of an error in a reply.
func (f *failure) fields() bson.D {
	out := bson.D{{Key: "code", Value: f.code}}
	if name := f.name(); name != "" {
		out = append(out, bson.E{Key: "codeName", Value: name})
	}
	return append(append(out, bson.E{Key: "errmsg", Value: f.message}), f.more...)
}

package store

// Codes of MongoDB's errors that decide what becomes of a write. Every code
// that is not named here, authentication, disk and validation among them,
// means that the write is to be sent again after a while.

// TooLarge reports whether the code says that a document outgrew MongoDB's
// limit.
func TooLarge(code int) bool { return tooLarge[code] }

// ContentError reports whether the code blames what was written. Only then may
// a reading ever be given up, and only when it was written alone.
func ContentError(code int) bool { return contentError[code] }

// tooLarge are the codes of a document that outgrew MongoDB's limit.
var tooLarge = map[int]bool{
	10334: true, // BSONObjectTooLarge
	17419: true, // the document after the update is too large
	17420: true, // the document after the modifiers is too large
}

// contentError are the codes that blame what the update carries, or the part
// that it was sent to. Only for these a reading is ever given up, and only
// when it stands alone.
var contentError = map[int]bool{
	2:  true, // BadValue
	9:  true, // FailedToParse
	14: true, // TypeMismatch
	22: true, // InvalidBSON
	28: true, // PathNotViable
	40: true, // ConflictingUpdateOperators
	52: true, // DollarPrefixedFieldName
	56: true, // EmptyFieldName
	57: true, // DottedFieldName
}

package telemetry

import (
	"fmt"
	"strconv"
	"time"
)

// Code names the rule that a refused reading broke. The set is closed: each
// code is also a value of the label reason of brim_ingest_rejected_total.
type Code string

// The codes of refusal.
const (
	Malformed       Code = "malformed"         // not JSON, not line protocol, not the message that was expected
	UnknownKey      Code = "unknown_key"       // a key that a reading cannot have
	DuplicateKey    Code = "duplicate_key"     // sensorId, ts, fields or tags given twice
	SensorMissing   Code = "sensor_missing"    // no sensor id, or an empty one
	SensorInvalid   Code = "sensor_invalid"    // too long or not printable UTF-8
	TimeInvalid     Code = "ts_invalid"        // neither RFC 3339 nor epoch milliseconds
	TimeOutOfRange  Code = "ts_out_of_range"   // before 1970 or too far in the future
	TimeExpired     Code = "ts_expired"        // older than the stream's retention
	FieldsMissing   Code = "fields_missing"    // a reading without a field
	FieldsTooMany   Code = "fields_too_many"   // more than 256
	FieldName       Code = "field_name"        // not usable as a BSON key
	FieldDuplicate  Code = "field_duplicate"   // a field name given twice
	ValueType       Code = "value_type"        // null, an object, an array
	ValueNotFinite  Code = "value_not_finite"  // NaN or infinite, or beyond a double
	ValueRange      Code = "value_range"       // an integer that does not fit 64 bits
	ValueText       Code = "value_text"        // a string too long or not UTF-8
	TagsTooMany     Code = "tags_too_many"     // more than 256
	TagName         Code = "tag_name"          // not usable as a BSON key
	TagDuplicate    Code = "tag_duplicate"     // a tag name given twice
	TagValue        Code = "tag_value"         // not a string, too long, or not UTF-8
	SensorForbidden Code = "sensor_forbidden"  // the sender may not send for this sensor
	FieldNotAllowed Code = "field_not_allowed" // not among the fields of the stream
	NotSupported    Code = "not_supported"     // a native histogram or an exemplar
	StoreRefused    Code = "store_refused"     // MongoDB refused this reading's content
)

// Codes returns every code of refusal, in order of declaration.
func Codes() []Code {
	return []Code{
		Malformed, UnknownKey, DuplicateKey, SensorMissing, SensorInvalid, TimeInvalid, TimeOutOfRange, TimeExpired,
		FieldsMissing, FieldsTooMany, FieldName, FieldDuplicate, ValueType, ValueNotFinite, ValueRange, ValueText,
		TagsTooMany, TagName, TagDuplicate, TagValue, SensorForbidden, FieldNotAllowed, NotSupported, StoreRefused,
	}
}

// A Refusal says why a reading was refused.
type Refusal struct {
	Code    Code
	Message string // for the sender: what was wrong and what is allowed
}

// Refuse returns a Refusal with a formatted message.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// FormatMillis formats milliseconds since the epoch in TimeFormat, or as a bare
// number outside the years 0 to 9999.
func FormatMillis(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(ms, 10)
	}
	return t.Format(TimeFormat)
}

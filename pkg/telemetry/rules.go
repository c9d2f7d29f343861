package telemetry

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a reading.
const (
	MaxSensorBytes = 1 << 10
	MaxNameBytes   = 128
	MaxTextBytes   = 1 << 10
	MaxFields      = 256
	MaxTags        = 256
)

// CheckSensor returns why id cannot be a sensor id, or nil.
func CheckSensor(id []byte) *Refusal {
	switch {
	case len(id) == 0:
		return Refuse(SensorMissing, "sensorId is missing or empty; it must be 1 byte to 1 KiB of printable UTF-8")
	case len(id) > MaxSensorBytes:
		return Refuse(SensorInvalid, "sensorId has %d bytes; at most %d are allowed", len(id), MaxSensorBytes)
	case !utf8.Valid(id):
		return Refuse(SensorInvalid, "sensorId is not valid UTF-8")
	}
	for i := 0; i < len(id); {
		r, w := utf8.DecodeRune(id[i:])
		if !unicode.IsPrint(r) {
			return Refuse(SensorInvalid, "sensorId holds the unprintable character %U at byte %d", r, i)
		}
		i += w
	}
	return nil
}

// CheckFieldName returns why name cannot name a field, or nil.
func CheckFieldName(name []byte) *Refusal { return checkName("field", FieldName, name) }

// CheckTagName returns why name cannot name a tag, or nil.
func CheckTagName(name []byte) *Refusal { return checkName("tag", TagName, name) }

// checkName implements the rules for BSON keys that Brim can address by path.
func checkName(what string, code Code, name []byte) *Refusal {
	switch {
	case len(name) == 0:
		return Refuse(code, "a %s has an empty name; names have 1 to %d bytes", what, MaxNameBytes)
	case len(name) > MaxNameBytes:
		return Refuse(code, "%s name %s has %d bytes; at most %d are allowed", what, Quote(name), len(name), MaxNameBytes)
	case !utf8.Valid(name):
		return Refuse(code, "%s name %s is not valid UTF-8", what, Quote(name))
	case name[0] == '$':
		return Refuse(code, "%s name %s begins with $", what, Quote(name))
	case bytes.IndexByte(name, '.') >= 0:
		return Refuse(code, "%s name %s contains a dot; rename it, or start the daemon with --map-dots _", what, Quote(name))
	case bytes.IndexByte(name, 0) >= 0:
		return Refuse(code, "%s name %s contains a NUL byte", what, Quote(name))
	case isReserved(string(name)):
		return Refuse(code, "%s name %s is taken; ts, sensor and _id are Brim's own", what, Quote(name))
	}
	return nil
}

// CheckFloat returns why v cannot be stored under name, or nil.
func CheckFloat(name []byte, v float64) *Refusal {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Refuse(ValueNotFinite, "field %s is %v; numbers must be finite", Quote(name), v)
	}
	return nil
}

// CheckFieldText returns why v cannot be the string value of field name, or nil.
func CheckFieldText(name, v []byte) *Refusal { return checkText("field", ValueText, name, v) }

// CheckTagText returns why v cannot be the value of tag name, or nil.
func CheckTagText(name, v []byte) *Refusal { return checkText("tag", TagValue, name, v) }

func checkText(what string, code Code, name, v []byte) *Refusal {
	switch {
	case len(v) > MaxTextBytes:
		return Refuse(code, "%s %s has %d bytes; strings have at most %d", what, Quote(name), len(v), MaxTextBytes)
	case !utf8.Valid(v):
		return Refuse(code, "%s %s is not valid UTF-8", what, Quote(name))
	}
	return nil
}

// TimeRange is the range of timestamps that a stream accepts, in milliseconds
// since the epoch, both ends included.
type TimeRange struct {
	Earliest int64 // for any stream
	Oldest   int64 // later than Earliest if the stream has a retention
	Newest   int64
	// Unit is the unit in which the timestamps were sent, a precision of line
	// protocol; empty: milliseconds, and a request cannot specify another unit.
	Unit string
}

// CheckTime returns why ms is outside the range, or nil.
func (r TimeRange) CheckTime(ms int64) *Refusal {
	switch {
	case ms < r.Earliest || ms < 0:
		return Refuse(TimeOutOfRange, "ts %s is before %s (--min-time)%s", FormatMillis(ms), FormatMillis(max(0, r.Earliest)), r.otherUnit(ms))
	case ms < r.Oldest:
		return Refuse(TimeExpired, "ts %s is older than the stream's retention, which begins at %s", FormatMillis(ms), FormatMillis(r.Oldest))
	case ms > r.Newest:
		return Refuse(TimeOutOfRange, "ts %s is in the future; the newest allowed now is %s (--max-future)%s", FormatMillis(ms), FormatMillis(r.Newest), r.otherUnit(ms))
	}
	return nil
}

// timeUnits are units that clients confuse, with their nanoseconds.
var timeUnits = [...]struct {
	unit, name  string
	nanoseconds float64
}{
	{"s", "seconds", 1e9}, {"ms", "milliseconds", 1e6}, {"us", "microseconds", 1e3}, {"ns", "nanoseconds", 1},
	{"m", "minutes", 60e9}, {"h", "hours", 3600e9},
}

// otherUnit returns the unit in which a refused timestamp would have been
// accepted; empty if there is none. The precision lost by a coarse unit does not
// matter here.
func (r TimeRange) otherUnit(ms int64) string {
	sent := 1e6
	for _, u := range timeUnits {
		if u.unit == r.Unit {
			sent = u.nanoseconds
		}
	}
	for _, u := range timeUnits[:4] {
		if as := float64(ms) / sent * u.nanoseconds; u.nanoseconds != sent && as >= float64(max(1, r.Earliest, r.Oldest)) && as <= float64(r.Newest) {
			if r.Unit == "" {
				return "; it looks like " + u.name + ", and must be milliseconds"
			}
			return "; it looks like " + u.name + ", which need precision=" + u.unit
		}
	}
	return ""
}

// Quote formats untrusted bytes for a message: escaped, and truncated to keep
// the answer readable.
func Quote(b []byte) string {
	const most = 64
	if len(b) <= most {
		return strconv.Quote(string(b))
	}
	return strings.TrimSuffix(strconv.Quote(string(b[:most])), `"`) + `…"`
}

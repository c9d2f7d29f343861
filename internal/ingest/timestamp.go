package ingest

import (
	"bytes"
	"time"
)

// parseTime reads an RFC 3339 timestamp as milliseconds since the epoch, rounded down. "T"
// and "Z" may be lower case. A leap second, which only the last minute of a UTC day can
// have, is the first second of the next day, as in POSIX time.
func parseTime(s []byte) (ms int64, ok bool) {
	var t time.Time
	if t.UnmarshalText(s) == nil {
		return t.UnixMilli(), true
	}
	if len(s) < len("2006-01-02T15:04:05Z") {
		return 0, false
	}
	s = bytes.ToUpper(s)
	leap := string(s[17:19]) == "60"
	if leap {
		copy(s[17:], "59")
	}
	if t.UnmarshalText(s) != nil || leap && (t.Unix()+1)%86400 != 0 {
		return 0, false
	}
	if leap {
		t = t.Add(time.Second)
	}
	return t.UnixMilli(), true
}

package ingest

import "time"

// parseTime parses an RFC 3339 timestamp as milliseconds since the epoch, rounding down. "T"
// and "Z" may be lower case, and the fraction may have any number of digits. A leap second,
// allowed only at the end of a UTC day, becomes the first second of the next day, as in POSIX
// time.
func parseTime(s []byte) (ms int64, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") ||
		s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	year, month, day := digits(s[0:4]), digits(s[5:7]), digits(s[8:10])
	hour, minute, second := digits(s[11:13]), digits(s[14:16]), digits(s[17:19])
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if min(year, hour, minute, second) < 0 || month < 1 || month > 12 || day < 1 || day > 28 && date.Day() != day || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	fraction, rest, ok := parseFraction(s[19:])
	if !ok {
		return 0, false
	}
	offset, ok := parseOffset(rest)
	if !ok {
		return 0, false
	}
	t := date.Unix() + int64(hour*3600+minute*60+second) - offset*60
	if second == 60 && t%86400 != 0 {
		return 0, false
	}
	return t*1000 + fraction, true
}

// parseFraction parses an optional ".123" as whole milliseconds.
func parseFraction(s []byte) (ms int64, rest []byte, ok bool) {
	if s[0] != '.' {
		return 0, s, true
	}
	n := 1
	for scale := int64(100); n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
		ms += int64(s[n]-'0') * scale
		scale /= 10
	}
	return ms, s[n:], n > 1
}

// parseOffset parses "Z" or "+hh:mm" as minutes east of UTC.
func parseOffset(s []byte) (minutes int64, ok bool) {
	if len(s) == 1 && s[0]|0x20 == 'z' {
		return 0, true
	}
	if len(s) != len("+00:00") || s[3] != ':' {
		return 0, false
	}
	hour, minute := digits(s[1:3]), digits(s[4:6])
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return 0, false
	}
	minutes = int64(hour*60 + minute)
	switch s[0] {
	case '+':
		return minutes, true
	case '-':
		return -minutes, true
	}
	return 0, false
}

// digits parses s as a decimal number; -1: it is not one.
func digits(s []byte) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeForms says how times are written, for messages that refuse one.
const timeForms = "2026-11-21T10:00:00Z, 2026-11-21, milliseconds since 1970, now, or a distance from now like -90s, -1h or -2d"

// ParseTime reads a time as commands and HTTP parameters accept it: RFC 3339, a
// date, which begins in UTC, milliseconds since 1970, now, or a distance from now.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if len(text) > 1 && (text[0] == '+' || text[0] == '-') && text[1] >= '0' && text[1] <= '9' {
		if d, err := ParseDuration(text[1:]); err == nil {
			if text[0] == '-' {
				d = -d
			}
			return notBefore1970(now.Add(d)), nil
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 && ms <= maxMillis {
		if ms >= leastSeconds && ms < mostSeconds {
			return time.Time{}, fmt.Errorf("%d looks like seconds; it is milliseconds since 1970, or a time like %s", ms, time.Unix(ms, 0).UTC().Format(time.RFC3339))
		}
		return time.UnixMilli(ms).UTC(), nil
	}
	if text == "now" {
		return now.UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		// In a URL, a plus sign that was not escaped arrives as a space.
		if t, err := time.Parse(layout, strings.ReplaceAll(text, " ", "+")); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time; use %s", text, timeForms)
}

// maxMillis is the end of the year 9999.
const maxMillis = 253_402_300_800_000

// What looks like seconds since 1970: as milliseconds, these are times from 1970 to 1973, which are
// written as text.
const leastSeconds, mostSeconds = 100_000_000, 100_000_000_000

func notBefore1970(t time.Time) time.Time {
	if epoch := time.UnixMilli(0); t.Before(epoch) {
		return epoch.UTC()
	}
	return t.UTC()
}

// Time accepts a time from 1970 on.
func Time(place *time.Time) func(string) error {
	return func(s string) error {
		t, err := ParseTime(s, time.Now())
		if err != nil || t.UnixMilli() < 0 {
			return fmt.Errorf("%q is not a time from 1970 on; use %s", s, timeForms)
		}
		*place = t
		return nil
	}
}

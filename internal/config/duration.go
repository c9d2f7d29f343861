package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FormatDuration writes d as ParseDuration reads it, without the units that are 0:
// 5m, 1h and 30d, where String has 5m0s, 1h0m0s and 720h0m0s.
func FormatDuration(d time.Duration) string {
	if d >= Day && d%Day == 0 {
		return strconv.FormatInt(int64(d/Day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// DurationForms says how durations are written, for messages that refuse one.
const DurationForms = "a number with a unit: 300ms, 90s, 5m, 1h or 30d"

// Day is the longest unit of a duration.
const Day = 24 * time.Hour

const maxDays = 65_535

// ParseDuration reads what FormatDuration writes.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		switch {
		case err == nil && n <= maxDays:
			return time.Duration(n) * Day, nil
		case err == nil || strings.Trim(days, "0123456789") == "" && days != "":
			return 0, fmt.Errorf("%q is too long a duration; at most %dd are allowed", s, maxDays)
		}
		return 0, noDuration(s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, noDuration(s)
	}
	return d, nil
}

func noDuration(s string) error {
	return fmt.Errorf("%q is not a duration; write %s", s, DurationForms)
}

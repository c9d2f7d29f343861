// Package brief reads and writes values as people give them to Brim. It is a leaf.
package brief

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration writes d without the units that are 0: 5m and 1h, where String has
// 5m0s and 1h0m0s.
func Duration(d time.Duration) string {
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

const (
	day     = 24 * time.Hour
	maxDays = 65_535
)

// ParseDuration reads what Duration writes, and whole days like 30d.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		switch {
		case err == nil && n <= maxDays:
			return time.Duration(n) * day, nil
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

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/brief"
)

// parseInstant reads a time on the command line, in milliseconds since 1970:
// RFC 3339, the number itself, or a distance from now.
func parseInstant(text string, now time.Time) (int64, error) {
	if len(text) > 1 && (text[0] == '+' || text[0] == '-') && text[1] >= '0' && text[1] <= '9' {
		if d, err := brief.ParseDuration(text[1:]); err == nil {
			if text[0] == '-' {
				d = -d
			}
			return max(0, now.Add(d).UnixMilli()), nil
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return ms, nil
	}
	if text == "now" {
		return now.UnixMilli(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time; allowed are 2026-11-21T10:00:00Z, milliseconds since 1970, now, and -90s, -1h or -2d back from now", text)
	}
	return t.UnixMilli(), nil
}

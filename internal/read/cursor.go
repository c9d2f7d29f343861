package read

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// cursor says where a page begins: a time, and how many readings of that time
// were seen. Mostly that is none. Readings of one millisecond have no lasting order:
// as they are stored it changes, and those of another daemon come in between. So a
// page ends before a millisecond that it cannot hold, and goes into one only
// where that is longer than a page.
type cursor struct {
	set  bool
	ms   int64
	seen int
}

// past returns the cursor moved over one more reading.
func (c cursor) past(ms int64) cursor {
	if c.set && c.ms == ms {
		c.seen++
		return c
	}
	return cursor{set: true, ms: ms, seen: 1}
}

// String returns the form that clients carry from page to page, empty where
// there is no next one.
func (c cursor) String() string {
	if !c.set {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.ms, c.seen)
}

// cut ends a page that has no room for a reading of the time ms, and returns where
// the next one begins; last points behind what is there.
func (o *writer) cut(last cursor, ms int64) cursor {
	switch {
	case ms != last.ms:
		return cursor{set: true, ms: last.ms + 1}
	case o.takeBack():
		return cursor{set: true, ms: ms}
	default:
		return last
	}
}

func parseCursor(s string) (cursor, error) {
	ms, seen, ok := strings.Cut(s, ".")
	c := cursor{set: true}
	var err error
	if ok {
		if c.ms, err = strconv.ParseInt(ms, 10, 64); err == nil {
			c.seen, err = strconv.Atoi(seen)
		}
	}
	if !ok || err != nil || c.ms < 0 || c.ms > maxTime || c.seen < 0 || c.seen > 1<<30 {
		return cursor{}, fmt.Errorf("after %s is not a cursor; use the one that the page before gave", telemetry.Quote([]byte(s)))
	}
	return c, nil
}

package telemetry

import (
	"fmt"
	"strconv"
	"strings"
)

// Headers of answers to queries.
const (
	// AfterHeader has the Cursor of the next page of an NDJSON answer. An answer of LongAnswer or
	// more has it as a trailer, which is empty on the last page, so that clients notice if a proxy
	// removes trailers; nginx does.
	AfterHeader = "Brim-After"
	// IncompleteHeader names the daemons that could not be asked for their acknowledged but
	// unstored readings.
	IncompleteHeader = "Brim-Incomplete"

	// LongAnswer is a size in bytes.
	LongAnswer = 256 << 10
)

// A Cursor says where a page of a sensor's readings begins: a time, and how many readings of that
// time were on earlier pages, usually none. The order of readings of one millisecond is not stable:
// it changes when they are stored, and readings of another daemon may come in between. So a page
// ends before a millisecond whose readings do not all fit, unless they exceed a whole page.
type Cursor struct {
	Set    bool  // false: the beginning, or that there is no next page
	Millis int64 // since the epoch
	Seen   int   // readings
}

// Past returns the cursor after one more reading.
func (c Cursor) Past(ms int64) Cursor {
	if c.Set && c.Millis == ms {
		c.Seen++
		return c
	}
	return Cursor{Set: true, Millis: ms, Seen: 1}
}

// AfterPage returns where the next page begins, if there is one, after a page of n readings
// that ends at the cursor.
func (c Cursor) AfterPage(n int) Cursor {
	if c.Seen < n {
		return Cursor{Set: true, Millis: c.Millis + 1}
	}
	return c // the whole page has one time
}

// String returns the parameter after of a query; empty if there is no next page.
func (c Cursor) String() string {
	if !c.Set {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.Millis, c.Seen)
}

// ParseCursor parses what String returns, except for an empty string.
func ParseCursor(s string) (Cursor, error) {
	ms, seen, ok := strings.Cut(s, ".")
	c := Cursor{Set: true}
	var err error
	if ok {
		if c.Millis, err = strconv.ParseInt(ms, 10, 64); err == nil {
			c.Seen, err = strconv.Atoi(seen)
		}
	}
	if !ok || err != nil || c.Millis < 0 || c.Seen < 0 {
		return Cursor{}, fmt.Errorf("%s is not a cursor", Quote([]byte(s)))
	}
	return c, nil
}

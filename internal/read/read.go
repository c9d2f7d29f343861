// Package read answers what is stored: one way to ask, over every kind of
// storage.
package read

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Source is a stream's store, as far as reading goes.
//
// Readings yields the stored readings of q in time order and ends early when
// the consumer does. A failure is the last thing that it yields. Several
// goroutines may ask at once.
type Source interface {
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
}

// Bounds of how many readings one page holds.
const (
	DefaultLimit = 1000
	MaxLimit     = 100_000
)

// maxPageBytes ends a page early; what is left comes with the next.
const maxPageBytes = 16 << 20

// A Page is an answer, and where the next one begins.
type Page struct {
	Readings []telemetry.Reading
	After    string // for the next request; "" if there is no more
}

// readPage collects up to limit readings of q, beginning behind the cursor.
func readPage(ctx context.Context, source Source, q telemetry.Query, after cursor) (Page, error) {
	limit := q.Limit
	skip := 0
	if after.set {
		q.From, skip = max(q.From, after.ms), after.seen
		if q.From > after.ms {
			skip = 0
		}
	}
	q.Limit = limit + skip + 1
	var page Page
	last, size := after, 0
	for r, err := range source.Readings(ctx, q) {
		if err != nil {
			return Page{}, err
		}
		if skip > 0 && r.Time.UnixMilli() == after.ms {
			skip--
			continue
		}
		if len(page.Readings) == limit || size > maxPageBytes {
			page.After = last.String()
			break
		}
		last = last.past(r.Time.UnixMilli())
		page.Readings = append(page.Readings, r)
		size += weight(r)
	}
	return page, nil
}

// weight estimates the bytes of memory that a reading takes.
func weight(r telemetry.Reading) int {
	n := 96 + len(r.Tags)*32
	for _, f := range r.Fields {
		n += 48 + len(f.Name) + len(f.Value.Text())
	}
	return n
}

// cursor points behind a reading: the time of the last one seen, and how many
// of that time were seen.
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

// String returns the form that clients carry from page to page.
func (c cursor) String() string { return fmt.Sprintf("%d.%d", c.ms, c.seen) }

func parseCursor(s string) (cursor, error) {
	ms, seen, ok := strings.Cut(s, ".")
	c := cursor{set: true}
	var err error
	if ok {
		if c.ms, err = strconv.ParseInt(ms, 10, 64); err == nil {
			c.seen, err = strconv.Atoi(seen)
		}
	}
	if !ok || err != nil || c.seen < 1 || c.seen > 1<<30 {
		return cursor{}, fmt.Errorf("after %s is not a cursor; use the one that the page before gave", telemetry.Quote([]byte(s)))
	}
	return c, nil
}

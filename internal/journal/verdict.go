package journal

import "fmt"

// A badPlace is a range of positions that should have readable records and has
// none:
//
//	what is bad                            its range
//	a record                               from it to the next good one, or to the end of the segment
//	the header of a segment                the whole segment
//	a segment that reaches into the next   everything after the start of the next
//	a segment that is missing              the gap: before the first, between two, or behind the last
type badPlace struct {
	segment  string // empty where no file is left
	offset   int64
	from, to uint64
	end      bool // the journal ends in it
	wrong    string
	verdict  verdict
}

// A verdict is what a bad place means. It follows from the range and from what is
// known of the journal: how far it is stored (applied), how far it is durable, and
// what was given up.
//
//	range                                 verdict   what the start does
//	all of it is stored                   stored    leaves it: it is never read again
//	the part not stored was given up      skipped   leaves it: it was reported before, and is skipped
//	the end, after all that is durable    torn      cuts it off: it was never acknowledged
//	any other                             damaged   refuses; with AcceptLoss keeps a copy of the file and gives the range up
//
// A record that can be read is durable: see renewLast.
type verdict int

const (
	damaged verdict = iota
	stored
	skipped
	torn
)

// classify returns the verdict on a bad place.
func (c *scan) classify(b *badPlace) verdict {
	switch {
	case b.to <= c.applied:
		return stored
	case c.isGivenUp(max(b.from, c.applied), b.to):
		return skipped
	case b.end && b.from >= c.durable:
		return torn
	}
	return damaged
}

// isGivenUp reports whether all between two positions was given up.
func (c *scan) isGivenUp(from, to uint64) bool {
	for from < to {
		s := lostAt(c.lost, from)
		if s == nil {
			return false
		}
		from = s.To
	}
	return true
}

// note records a bad place of a segment, and returns the verdict on it.
func (c *scan) note(f *found, b badPlace) verdict {
	b.segment, b.verdict = f.name, c.classify(&b)
	f.bad = append(f.bad, b)
	return b.verdict
}

// badPlaces returns the bad places of all segments and the gaps where segments are
// missing, in order, without what was given up.
func (c *scan) badPlaces(segments []*found, marked bool) []badPlace {
	var all []badPlace
	// Segments are deleted only after the mark says durably that all in them is
	// stored; without a mark it is not known where the journal begins.
	if marked && len(segments) > 0 && segments[0].base > c.applied {
		first := segments[0]
		all = append(all, badPlace{segment: first.name, from: c.applied, to: first.base, wrong: "the segments before this one are missing"})
	}
	for _, f := range segments {
		all = append(all, f.bad...)
	}
	if b := c.missingEnd(segments); b.from < b.to {
		all = append(all, b)
	}
	left := all[:0]
	for _, b := range all {
		if b.verdict = c.classify(&b); b.verdict != skipped {
			left = append(left, b)
		}
	}
	return left
}

// missingEnd returns the range that should follow the last record and is missing;
// it is empty if all that is known to be durable is there.
func (c *scan) missingEnd(segments []*found) badPlace {
	b := badPlace{to: c.durable}
	if n := len(segments); n > 0 {
		last := segments[n-1]
		b.segment, b.from, b.offset = last.name, last.end, last.size
		for _, one := range last.bad {
			b.from = max(b.from, one.to)
		}
	}
	next := segmentName(b.from)
	b.from = max(b.from, c.applied)
	b.wrong = fmt.Sprintf("the journal ends here: either this segment was cut short, or %s behind it is missing, which should hold positions %d to %d",
		next, b.from, b.to)
	if b.segment == "" {
		b.wrong = fmt.Sprintf("the segment is missing that should hold positions %d to %d, %s%s", b.from, b.to, segmentName(b.from), orEarlier(b.from))
	}
	return b
}

// orEarlier says that a segment which holds a position may begin before it.
func orEarlier(position uint64) string {
	if position == 0 {
		return ""
	}
	return " or one with a smaller number"
}

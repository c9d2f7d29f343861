package journal

import "fmt"

// missingBefore notes segments that should stand before the first one: they are
// never deleted before the mark says, durably, that nobody needs them.
func missingBefore(segments []*found, last mark, marked bool, s *scan) {
	if !marked || len(segments) == 0 || segments[0].base <= last.applied || s.excused(last.applied, segments[0].base) {
		return
	}
	f := segments[0]
	f.bad = append([]badPlace{{
		segment: f.name, position: last.applied, resume: f.base, wrong: "the segments before this one are missing",
	}}, f.bad...)
}

// missingEnd returns what should be behind the last record and is not. Where no
// file is left, it is a place in none.
func missingEnd(segments []*found, s *scan) []badPlace {
	b := badPlace{resume: s.durable}
	if n := len(segments); n > 0 {
		last := segments[n-1]
		b.segment, b.position, b.offset = last.name, last.end, last.size
		for _, one := range last.bad {
			b.position = max(b.position, one.resume)
		}
	}
	if b.position >= s.durable || s.excused(b.position, s.durable) {
		return nil
	}
	next := segmentName(b.position)
	b.position = max(b.position, s.applied)
	b.wrong = fmt.Sprintf("the journal ends here: either this segment was cut short, or %s behind it is missing, which should hold positions %d to %d",
		next, b.position, s.durable)
	if b.segment == "" {
		b.wrong = fmt.Sprintf("the segment is missing that should hold positions %d to %d, %s%s",
			b.position, s.durable, segmentName(b.position), orEarlier(b.position))
	}
	return []badPlace{b}
}

// orEarlier says that a segment which holds a position may begin before it.
func orEarlier(position uint64) string {
	if position == 0 {
		return ""
	}
	return " or one with a smaller number"
}

// badPlaces returns those of all segments.
func badPlaces(segments []*found) []badPlace {
	var out []badPlace
	for _, f := range segments {
		out = append(out, f.bad...)
	}
	return out
}

// damage returns the bad places that held something which is needed.
func damage(segments []*found, s *scan) []badPlace {
	var out []badPlace
	for _, b := range append(badPlaces(segments), missingEnd(segments, s)...) {
		if !b.torn && !b.atRest {
			out = append(out, b)
		}
	}
	return out
}

package journal

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

// missingEnd returns what should be behind the last record and is not.
func missingEnd(segments []*found, s *scan) []badPlace {
	end, name, offset := uint64(0), markName, int64(0)
	if n := len(segments); n > 0 {
		last := segments[n-1]
		end, name, offset = last.end, last.name, last.size
		for _, b := range last.bad {
			end = max(end, b.resume)
		}
	}
	if end >= s.durable || s.excused(end, s.durable) {
		return nil
	}
	return []badPlace{{segment: name, offset: offset, position: max(end, s.applied), resume: s.durable, wrong: "the journal ends here"}}
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

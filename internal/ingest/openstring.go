package ingest

import "bytes"

// opensString reports whether an entry of line protocol is inside a string at
// the end of line, so that it goes on in the next one. inside says that the
// line begins inside a string.
//
// It knows just enough of the syntax for that: a string begins with a quote
// behind the equals sign of a field, and fields stand behind the first space
// that no backslash precedes.
func opensString(line []byte, inside bool) bool {
	if bytes.IndexByte(line, '"') < 0 {
		return inside
	}
	i := 0
	if !inside {
		i = skipSpaces(line, skipUntil(line, skipSpaces(line, 0), ' '))
	}
	for {
		if inside {
			if i = closeString(line, i); i < 0 {
				return true
			}
			inside = false
			// Behind a string there is the next field, or the end of fields.
			if i >= len(line) || line[i] != ',' {
				return false
			}
			i++
		}
		i = skipUntil(line, i, '=') + 1
		if i >= len(line) {
			return false
		}
		if line[i] == '"' {
			inside = true
			i++
			continue
		}
		for i < len(line) && line[i] != ',' {
			if line[i] == ' ' {
				return false
			}
			i++
		}
		i++
	}
}

// skipSpaces returns the index of the first byte at or behind i that is no space.
func skipSpaces(line []byte, i int) int {
	for i < len(line) && line[i] == ' ' {
		i++
	}
	return i
}

// skipUntil returns the index of the first c at or behind i that is not
// escaped, or the length of the line.
func skipUntil(line []byte, i int, c byte) int {
	for ; i < len(line); i++ {
		switch {
		case line[i] == c:
			return i
		case line[i] == '\\' && i+1 < len(line) && (line[i+1] == ',' || line[i+1] == '=' || line[i+1] == ' '):
			i++
		}
	}
	return len(line)
}

// closeString returns the index behind the quote that ends the string, or -1.
func closeString(line []byte, i int) int {
	for ; i < len(line); i++ {
		switch line[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

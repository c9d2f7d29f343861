package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
)

// AppendSeriesWord appends a word of a series key, which is the sensor id that a
// line of line protocol has by itself: the measurement, then for each tag, sorted
// by name, a comma, its name, an equals sign and its value. A backslash stands
// before each comma, space and backslash of a word, and of a tag's before each
// equals sign, so that different series never have the same id.
func AppendSeriesWord[S string | []byte](dst []byte, word S, tag bool) []byte {
	for i := range len(word) {
		c := word[i]
		if c == ',' || c == ' ' || c == '\\' || c == '=' && tag {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}

// AppendTagsKey appends the id of a sensor that has none but its tags, which are sorted by
// name: a series of Prometheus, whose labels are its tags. It has for each tag its name, an
// equals sign and its value, with commas in between. Without tags it is {}. Where it would
// not be a valid id, it is a hash in braces.
func AppendTagsKey(dst []byte, tags []Tag) []byte {
	if len(tags) == 0 {
		return append(dst, "{}"...)
	}
	from := len(dst)
	for i, t := range tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendSeriesWord(append(AppendSeriesWord(dst, t.Name, true), '='), t.Value, true)
	}
	if CheckSensor(dst[from:]) == nil {
		return dst
	}
	hash := sha256.Sum256(dst[from:])
	return append(hex.AppendEncode(append(dst[:from], '{'), hash[:16]), '}')
}

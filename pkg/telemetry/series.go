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

// AppendTagsKey appends the ID of a sensor that is identified by its tags alone, such as a
// series from Prometheus. The ID is name=value of each tag, sorted by name, separated by
// commas. Without tags it is {}. If that is not a valid ID, it is a hash in braces.
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

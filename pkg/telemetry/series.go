package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
)

// AppendSeriesWord appends a word of a series key, the default sensor id of a
// line in line protocol: the measurement, then for each tag, sorted by name, a
// comma, its name, an equals sign and its value. Commas, spaces and backslashes
// in words are escaped with a backslash, and so are equals signs in a tag's
// words, so that different series never have the same id.
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

// AppendTagsKey appends the id of a sensor that is identified only by its tags, such as a
// series from Prometheus: name=value of each tag, sorted by name, separated by commas; {}
// without tags. If that is not a valid id, it is a hash in braces.
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

package telemetry

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

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

// AppendTagsKey appends the series key of tags alone, which are sorted by name: for each
// its name, an equals sign and its value, with commas in between. A sensor with this id
// is a series of Prometheus, whose labels are its tags.
func AppendTagsKey(dst []byte, tags []Tag) []byte {
	for i, t := range tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendSeriesWord(append(AppendSeriesWord(dst, t.Name, true), '='), t.Value, true)
	}
	return dst
}

package main

import "strings"

// A choiceOf are the names that can stand in one place.
type choiceOf struct {
	names  []string
	prefix string // that is put before a name
	where  string // says where they are listed
}

// readable is how long a list of names may be in an error.
const readable = 300

// insteadOf says what is allowed in place of a name that means nothing: the
// nearest, and all where they are few, else where they are listed.
func (c choiceOf) insteadOf(name string) string {
	near := didYouMean(c.prefix, name, c.names)
	list := c.prefix + strings.Join(c.names, ", "+c.prefix)
	if len(list) > readable {
		return near + "; " + c.where
	}
	return near + "; allowed are " + list
}

// didYouMean returns a hint at the candidate that is nearest to a misspelt
// name, or nothing if none is near. Prefix is put before it.
func didYouMean(prefix, name string, candidates []string) string {
	best, least := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + prefix + best + "?)"
}

// distance counts the characters to insert, remove or replace on the way from
// a to b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

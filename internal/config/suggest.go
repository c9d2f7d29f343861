package config

import (
	"strings"
)

// Choices are the names allowed in one place.
type Choices struct {
	Names  []string
	Prefix string // put before each name
	Where  string // says where they are listed
}

// readable is how long a list of names may be in an error.
const readable = 360

// InsteadOf says what is allowed in place of an unknown name: the nearest name, followed by
// all names if they fit, or by where they are listed.
func (c Choices) InsteadOf(name string) string {
	if len(c.Names) == 0 {
		return ""
	}
	near := DidYouMean(c.Prefix, name, c.Names)
	list := c.Prefix + strings.Join(c.Names, ", "+c.Prefix)
	if len(list) > readable {
		return near + "; " + c.Where
	}
	return near + "; allowed: " + list
}

// DidYouMean returns a hint at the candidate that is nearest to a misspelt
// name, or nothing if none is near. Prefix is put before it.
func DidYouMean(prefix, name string, candidates []string) string {
	best, least := "", len(name)/3+2
	for _, c := range candidates {
		if d := Distance(name, c); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + prefix + best + "?)"
}

// Distance counts the characters to insert, remove or replace to get from a to b
// (Levenshtein).
func Distance(a, b string) int {
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

// ShellWord quotes a word if a shell would interpret it.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,@%+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

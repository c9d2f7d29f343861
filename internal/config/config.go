// Package config reads what people set: durations, sizes, times, addresses and
// URIs, in flags, variables, files and URLs. What it refuses it names with what is
// allowed. It is a leaf.
//
//	text ─▶ Text, Choice, Count, Size, Duration, Time, Address ─▶ the setting's place
package config

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A UsageError says that a command was not carried out because of how it was
// called or configured.
type UsageError struct{ err error }

func (e UsageError) Error() string { return e.err.Error() }
func (e UsageError) Unwrap() error { return e.err }

// Usage makes a usageError of an error.
func Usage(err error) error { return UsageError{err} }

// LookupEnv returns the value of a variable; empty if it is not set.
func LookupEnv(env []string, name string) string {
	for _, pair := range env {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			return value
		}
	}
	return ""
}

// IsTerminal reports whether a person may be looking.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

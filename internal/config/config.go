// Package config parses settings: durations, sizes, times, addresses and URIs, in flags,
// environment variables, files and URLs. Errors name the value and what is allowed. It imports
// no other package of Brim.
//
//	text ─▶ Text, Choice, Count, Size, Duration, Time, Address ─▶ the setting's variable
//	YAML ─▶ nodes with a known key, or problems with their line
package config

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A UsageError says that a command was called or configured wrongly.
type UsageError struct{ err error }

func (e UsageError) Error() string { return e.err.Error() }
func (e UsageError) Unwrap() error { return e.err }

// Usage wraps an error in a UsageError.
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

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

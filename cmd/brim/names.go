package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func notEmpty(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return nil
}

// maxStreamName leaves room for the database in MongoDB's 255 bytes of a
// namespace, and for what a terminal shows.
const maxStreamName = 64

// checkStreamName holds the rules of a name that is a URL path segment, a label
// of metrics and a collection that needs no quoting anywhere.
func checkStreamName(name string) error {
	safe := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' }
	switch {
	case name == "" || len(name) > maxStreamName || strings.ContainsFunc(name, func(c rune) bool { return !safe(c) }):
		return fmt.Errorf("%q cannot name a stream; allowed are 1 to %d characters of a-z, 0-9, _ and -", name, maxStreamName)
	case name == "system":
		return errors.New(`"system" cannot name a stream; MongoDB keeps it for itself`)
	}
	return nil
}

func checkDatabase(name string) error {
	const most = 63 // MongoDB's limit
	switch {
	case name == "" || len(name) > most || strings.ContainsAny(name, "/\\. \"$*<>:|?\x00"):
		return fmt.Errorf("%q cannot name a database; allowed are 1 to %d bytes without / \\ . \" $ * < > : | ? and space", name, most)
	case slices.Contains([]string{"admin", "local", "config"}, name):
		return fmt.Errorf("%q is MongoDB's own database", name)
	}
	return nil
}

func checkMapDots(s string) error {
	if s == "" {
		return nil
	}
	if len(s) != 1 || s[0] <= ' ' || s[0] >= 0x7f || s == "." || s == "$" {
		return fmt.Errorf("%q is not one printable ASCII character other than . and $", s)
	}
	return nil
}

func checkTag(s string) error {
	if len(s) > telemetry.MaxNameBytes {
		return fmt.Errorf("a tag's name has at most %d bytes, this one has %d", telemetry.MaxNameBytes, len(s))
	}
	return nil
}

// checkURI looks at no more than the scheme: what follows may name servers in
// the DNS, which is for the daemon to ask.
func checkURI(uri string) error {
	if uri == "" || strings.HasPrefix(uri, "mongodb://") || strings.HasPrefix(uri, "mongodb+srv://") {
		return nil
	}
	return errors.New("it is not a MongoDB URI, which begins with mongodb:// or mongodb+srv://")
}

// masked stands for a secret.
const masked = "***"

// maskURI hides the password of a MongoDB URI, and options that hold secrets.
// It masks too much rather than too little where a URI is malformed.
func maskURI(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, ok := strings.Cut(rest[:at], ":"); ok {
			rest = user + ":" + masked + rest[at:]
		}
	}
	hosts, query, ok := strings.Cut(rest, "?")
	if !ok {
		return scheme + "://" + hosts
	}
	options := strings.Split(query, "&")
	for i, option := range options {
		name, _, _ := strings.Cut(option, "=")
		lower := strings.ToLower(name)
		if strings.Contains(lower, "password") || lower == "authmechanismproperties" {
			options[i] = name + "=" + masked
		}
	}
	return scheme + "://" + hosts + "?" + strings.Join(options, "&")
}

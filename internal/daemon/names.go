package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func NotEmpty(s string) error {
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

// checkMongodCache takes a folder, and no size: that of the cache has a name much
// like it.
func checkMongodCache(s string) error {
	if _, err := humanize.ParseBytes(s); err == nil {
		return fmt.Errorf("%q is a size, and this is the folder where an installed mongod is kept; the size of mongod's cache is mongod-cache-size (a folder of this name is ./%s)", s, s)
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

package settings

import (
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// size writes bytes, as in 1.5 GiB.
func size(bytes float64) string {
	if math.IsNaN(bytes) || bytes < 0 {
		return "an unknown number of bytes"
	}
	return humanize.IBytes(uint64(bytes))
}

// amount writes a number that may be any size: 12,345 or 1.2.
func amount(v float64) string {
	switch {
	case math.IsNaN(v):
		return "unknown"
	case math.Abs(v) >= 100:
		return humanize.Comma(int64(math.Round(v)))
	default:
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
}

// plain writes a setting's number as a shell takes it.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// parameter is the action that sets a parameter now and for the next start.
func parameter(name string, value float64) string {
	return "in mongosh, on each member: db.adminCommand({setParameter: 1, " + name + ": " + plain(value) + "})" +
		"; and in mongod.conf, so that it stays: setParameter: {" + name + ": " + plain(value) + "}"
}

// list writes "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

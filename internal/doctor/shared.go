package doctor

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ParseCounters reads an answer to serverStatus that came at the given moment.
func ParseCounters(raw bson.Raw, at time.Time) (Counters, error) {
	s, why := parseStatus(raw, at)
	if why != "" {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %w", errors.New(why))
	}
	return Counters{At: at, Version: s.info.version, Topology: s.info.topology, status: s}, nil
}

// NotPermitted reports whether err is a server's that its user may not do what
// was asked.
func NotPermitted(err error) bool { return notPermitted(err) }

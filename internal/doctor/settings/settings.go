// Package settings looks at how a MongoDB is set up and says which settings
// cost without need, or promise less than it seems. Each advice is held against
// what was measured in this very MongoDB:
//
//	ask (commands) ─▶ facts ─▶ rules ─▶ findings: cause, evidence, action, cost
//	look, look     ─▶ rates ─┘
//	sample of documents ─▶ packed as by snappy and zstd ─┘
//
// Nothing is changed. What the user may not ask for is said, with the role that
// permits it, and does not keep the rest from being looked at.
package settings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Stream is one whose collection is looked at.
type Stream struct {
	Name       string
	Collection string        // empty: as the stream
	Storage    store.Storage // memory has no collection and is left out
}

// Config says what to look at.
type Config struct {
	// Database has the streams' collections; its client asks the primary for
	// the server's settings.
	Database *mongo.Database
	Streams  []Stream
	// Before is an earlier look: rates are of the time since. nil: they are
	// averages since the server's start.
	Before *Look
	// Sample bounds how long documents of one stream are read to try
	// compressors on; it ends at 4 MiB too. 0: 2 s. Negative: none are read.
	Sample time.Duration
	// Now tells the time. nil: time.Now.
	Now func() time.Time
}

const defaultSample = 2 * time.Second

// A rule finds what is to be said of one group of settings.
type rule struct {
	name string
	find func(*facts) []doctor.Finding
}

// rules are all that is looked at, in the order in which it is shown.
var rules = []rule{
	{"history window", historyWindow},
	{"topology", topology},
	{"arbiters", arbiters},
	{"members", members},
	{"flow control", flowControl},
	{"voters", voters},
	{"default write concern", defaultConcern},
	{"majority without journal", majorityJournal},
	{"waits for the majority", majorityWaits},
	{"journal", journal},
	{"cache and memory", cacheAgainstMemory},
	{"cache and working set", cacheAgainstWork},
	{"second clock of checkpoints", secondClock},
	{"no checkpoints", noCheckpoints},
	{"parameter that is not obeyed", deafParameter},
	{"short checkpoint interval", shortInterval},
	{"long checkpoint interval", longInterval},
	{"compressor", compressor},
	{"indexes", indexes},
	{"unseen", unseen},
}

// Check looks once and returns findings of kind Setting, and of kind Unseen for
// what could not be looked at. It takes some 20 ms, and what Config.Sample
// allows for each stream. An error is that the configuration makes no sense,
// that MongoDB does not answer, or that ctx ended.
func Check(ctx context.Context, c Config) ([]doctor.Finding, error) {
	if c.Database == nil {
		return nil, errors.New("check settings: database is missing")
	}
	return check(ctx, newServer(c.Database), c, rules)
}

// check is Check at any server and with any rules.
func check(ctx context.Context, s server, c Config, table []rule) ([]doctor.Finding, error) {
	if c.Sample == 0 {
		c.Sample = defaultSample
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Streams = slices.DeleteFunc(slices.Clone(c.Streams), func(s Stream) bool { return s.Storage == store.Memory })
	for i, s := range c.Streams {
		if s.Collection == "" {
			c.Streams[i].Collection = s.Name
		}
	}
	f, err := gather(ctx, s, c)
	if err != nil {
		return nil, fmt.Errorf("check settings: %w", err)
	}
	var out []doctor.Finding
	for _, r := range table {
		out = append(out, r.find(f)...)
	}
	return out, nil
}

// An advice is a finding without what all of them have in common.
type advice struct {
	name, cause, evidence, action, cost string
}

func (a advice) finding() doctor.Finding {
	return doctor.Finding{
		Name: a.name, Kind: doctor.Setting, Class: doctor.Degrading,
		Cause: a.cause, Evidence: a.evidence, Action: a.action, Cost: a.cost,
	}
}

func (a advice) alone() []doctor.Finding { return []doctor.Finding{a.finding()} }

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// Counters are what MongoDB's status said at one moment, for whoever measures
// something between two of them. They are the figures that /metrics shows.
type Counters struct {
	At       time.Time // when the answer was there
	Version  string    // of the server
	Topology string    // standalone, replica_set or sharded
	status   *status
}

// ReadCounters asks the primary once. The user needs the role clusterMonitor.
func ReadCounters(ctx context.Context, client *mongo.Client) (Counters, error) {
	raw, err := client.Database("admin").RunCommand(ctx, statusCommand(), options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if notPermitted(err) {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %s: %w", whyNotPermitted, err)
	}
	if err != nil {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %w", err)
	}
	at := time.Now()
	s, why := parseStatus(raw, at)
	if why != "" {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %w", errors.New(why))
	}
	return Counters{At: at, Version: s.info.version, Topology: s.info.topology, status: s}, nil
}

// Value returns the figure with a metric's name without brim_mongodb_, in the
// unit of that, as in cache_dirty_bytes; a label's value follows a space, as in
// "tickets_available write". NaN: the server does not tell it.
func (c Counters) Value(name string) float64 { return c.status.value(key(name)) }

// Since returns how much a figure has grown.
func (c Counters) Since(before Counters, name string) float64 {
	return c.Value(name) - before.Value(name)
}

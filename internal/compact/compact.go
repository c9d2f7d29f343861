// Package compact makes MongoDB return the free space in a collection's files to the file system,
// member by member, while daemons continue to write to it.
//
//	Inspect ──▶ who is there, what is free, who is busy ──▶ Choose ──▶ Compact ──▶ next, when it has caught up
//
// The work itself is done by the server's command compact. This package decides where it is
// worthwhile and allowed, monitors it, and measures the result.
package compact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// Config says what to compact.
type Config struct {
	Client     *mongo.Client // of the deployment as a whole; not closed
	URI        string        // of the same deployment; its credentials are used for the members
	Database   string
	Collection string // the underlying collection, see BucketsOf
	// FreeAtLeast is the share of the files, 0 to 1, and LeastBytes the number of bytes that must
	// be free for a compaction to be worthwhile.
	FreeAtLeast float64
	LeastBytes  int64
	// Passes is the maximum number of compactions of a member. One pass often returns only the
	// space at the end of a file.
	Passes   int
	Progress func(Progress) // called several times a second
}

// A Progress is the progress of compacting a member.
type Progress struct {
	Member    string
	Pass      int           // from 1 on
	Elapsed   time.Duration // since the first pass began
	GivenBack int64         // bytes so far; negative while files are larger
	Files     int64         // bytes of the collection's and its indexes' files
	Free      int64         // bytes free in them
	Note      string        // the current activity, if the member is not being compacted
}

const (
	// measureTime is how long a member is watched to see whether it is busy, and how long to wait
	// before the result is read.
	measureTime = 2 * time.Second
	// patience is how long a secondary may take to catch up afterwards.
	patience = 10 * time.Minute
	// directTimeout bounds one command to a member. Even a busy member answers within
	// milliseconds.
	directTimeout = 5 * time.Second
)

// A Compactor compacts a collection, member by member. It is not safe for concurrent use.
type Compactor struct {
	config  Config
	app     string          // application name of the connections
	measure time.Duration   // see measureTime
	clients []*mongo.Client // to single members
}

// New returns a Compactor. Close must be called.
func New(config Config) *Compactor {
	return &Compactor{config: config, app: "brim compact", measure: measureTime}
}

// Close disconnects from the members, within ctx.
func (c *Compactor) Close(ctx context.Context) error {
	var errs []error
	for _, client := range c.clients {
		if err := client.Disconnect(ctx); err != nil {
			errs = append(errs, fmt.Errorf("disconnect from a member: %w", err))
		}
	}
	c.clients = nil
	return errors.Join(errs...)
}

// BucketsOf returns the collection with the buckets of a time-series collection, which itself is a
// view.
func BucketsOf(collection string) string { return "system.buckets." + collection }

// direct connects to one member only, with the credentials of the URI. An empty host is the first
// one in the URI. It creates new options, because those from an SRV record cannot be used for a
// single host.
func (c *Compactor) direct(host string) (client *mongo.Client, at string, err error) {
	of := options.Client().ApplyURI(c.config.URI)
	if err := of.Validate(); err != nil {
		return nil, "", fmt.Errorf("read MongoDB URI: %w", err)
	}
	if host == "" {
		host = of.Hosts[0]
	}
	opts := options.Client().SetHosts([]string{host}).SetDirect(true).SetAppName(c.app).
		SetServerSelectionTimeout(directTimeout).SetHeartbeatInterval(time.Second).SetTimeout(0).
		SetReadPreference(readpref.Nearest())
	opts.Auth, opts.TLSConfig, opts.Compressors, opts.ServerAPIOptions = of.Auth, of.TLSConfig, of.Compressors, of.ServerAPIOptions
	if client, err = mongo.Connect(opts); err != nil {
		return nil, "", fmt.Errorf("connect to %s: %w", host, err)
	}
	c.clients = append(c.clients, client)
	return client, host, nil
}

// ask runs a short command on the nearest member.
func ask(ctx context.Context, database *mongo.Database, command bson.D, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	result := database.RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Nearest()))
	if answer == nil {
		return result.Err()
	}
	return result.Decode(answer)
}

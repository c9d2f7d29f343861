package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/machine"
)

// PingTimeout and pingInterval add up to less than 3 s, within which a server that
// does not answer must be reported. The driver itself notices after half a minute:
// a stopped process keeps its sockets open.
const (
	PingTimeout  = 2 * time.Second
	pingInterval = 500 * time.Millisecond
)

// errNoReply is why Available fails while no ping is answered.
var errNoReply = fmt.Errorf("%w: it does not answer: no reply to any ping within %v, though its connections are open", ErrAway, PingTimeout)

// Ping asks the server that accepts writes for a reply, and returns how long the
// quickest took. Until one comes, more pings follow on other connections, since a
// host without a free CPU holds up each thread of a server for a time of its own,
// and a stopped server all of them:
//
//	0 s     0.5      1.0      1.5      2.0
//	├─ ping ───────────────────────────┤
//	        ├─ ping ───────────────────┤
//	                 ├─ ping ──────────┤
//	                          ├─ ping ─┤  no reply to any: it does not answer
func Ping(parent context.Context, client *mongo.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(parent, PingTimeout)
	defer cancel()
	type reply struct {
		took time.Duration
		err  error
	}
	replies := make(chan reply)
	ping := func() {
		began := time.Now()
		err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}},
			options.RunCmd().SetReadPreference(readpref.Primary())).Err()
		replies <- reply{time.Since(began), err}
	}
	next := time.NewTicker(pingInterval)
	defer next.Stop()
	go ping()
	var best *reply
	for pending := 1; pending > 0; {
		select {
		case r := <-replies:
			pending--
			next.Stop()
			if best == nil || r.err == nil && (best.err != nil || r.took < best.took) {
				best = &r
			}
		case <-next.C:
			pending++
			go ping()
		}
	}
	return best.took, best.err
}

// WatchReplies pings until ctx ends, so that Available knows of a server that has
// stopped answering.
func (c *Connection) WatchReplies(ctx context.Context) {
	for machine.Pause(ctx, pingInterval) == nil {
		c.noteReply(ctx)
	}
}

func (c *Connection) noteReply(ctx context.Context) {
	_, err := Ping(ctx, c.aside)
	if ctx.Err() != nil {
		return
	}
	mute := errors.Is(err, context.DeadlineExceeded) || mongo.IsTimeout(err)
	before := c.mute.Swap(mute)
	c.presence.set(c.writable.Load() && !mute)
	switch {
	case mute && !before && c.writable.Load():
		c.log.Warn("MongoDB does not answer", "err", err)
	case before && err == nil:
		c.log.Info("MongoDB answers again")
	}
}

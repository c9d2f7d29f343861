package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/brim-telemetry/brim/internal/machine"
)

// ConnectionConfig says which MongoDB to use.
type ConnectionConfig struct {
	URI      string // a MongoDB connection string; its options take precedence
	Database string
	App      string // application name shown by the server; empty: brim, as for the daemon
	Logger   *slog.Logger
	Monitor  *event.CommandMonitor // of all commands; nil: none
	Dialer   options.ContextDialer // nil: the network
	// OnFound is called whenever a server that accepts writes is found again; it
	// must not block. May be nil.
	OnFound func()
}

// A Connection is a connection to a MongoDB deployment that may be unavailable: it can be created
// while MongoDB is down, and it reconnects by itself.
type Connection struct {
	cfg     ConnectionConfig
	client  *mongo.Client
	control *mongo.Client // for commands that must not wait for a connection from the pool of queries and writes

	mu           sync.Mutex
	writable     bool  // a server that accepts writes is known
	unresponsive bool  // the last ping got no reply in time
	lastErr      error // reported by the driver's monitors
	// New connections are refused. The driver's monitors see a server even if it refuses the user,
	// and existing connections keep working, so neither reveals this.
	refused bool
	logged  bool      // whether "accepts writes" was the last state logged
	away    time.Time // when no server that accepts writes was known last; zero: only before the first
	closing bool

	reachable bool            // writable and not unresponsive, at the last change
	up        context.Context //nolint:containedctx // handed out to callers
	end       context.CancelFunc
	awayTimer *time.Timer // calls end
}

// Connect prepares a connection. An error means that the URI is invalid, never that the server is
// unavailable.
func Connect(cfg ConnectionConfig) (*Connection, error) {
	c := &Connection{cfg: cfg}
	c.up, c.end = context.WithCancel(context.Background())
	opts := clientOptions(&cfg, c.connectionUsed).
		SetServerMonitor(&event.ServerMonitor{
			TopologyDescriptionChanged: c.topologyChanged,
			ServerHeartbeatFailed:      c.heartbeatFailed,
		})
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("read MongoDB URI: %w", err)
	}
	var err error
	if c.client, err = mongo.Connect(opts); err != nil {
		return nil, fmt.Errorf("set up MongoDB client: %w", err)
	}
	if c.control, err = mongo.Connect(clientOptions(&cfg, c.connectionUsed).SetMinPoolSize(0).SetMaxPoolSize(controlPoolSize)); err != nil {
		return nil, errors.Join(fmt.Errorf("set up MongoDB client: %w", err), c.client.Disconnect(context.Background()))
	}
	return c, nil
}

// controlPoolSize is enough for a ping and a renewal of the claims.
const controlPoolSize = 3

func clientOptions(cfg *ConnectionConfig, used func(*event.PoolEvent)) *options.ClientOptions {
	opts := options.Client()
	if cfg.Dialer != nil {
		opts.SetDialer(cfg.Dialer)
	}
	return opts.SetAppName(cmp.Or(cfg.App, "brim")).
		// A lane must not block longer than it takes to notice a failover; it backs off and
		// retries by itself.
		SetServerSelectionTimeout(3 * time.Second).
		// With a client timeout set, even to 0, operations that time out do not close their
		// connections.
		SetTimeout(0).
		// With the default of ten seconds, a daemon would keep refusing requests for that long
		// after MongoDB is back.
		SetHeartbeatInterval(time.Second).
		SetPoolMonitor(&event.PoolMonitor{Event: used}).
		SetMonitor(cfg.Monitor).
		ApplyURI(cfg.URI)
}

// topologyChanged is called by the driver's monitors whenever a server appears,
// disappears or changes its role.
func (c *Connection) topologyChanged(e *event.TopologyDescriptionChangedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.writable
	c.writable = slices.ContainsFunc(e.NewDescription.Servers, func(s event.ServerDescription) bool {
		return slices.Contains([]string{"RSPrimary", "Standalone", "Mongos", "LoadBalancer"}, s.Kind)
	})
	c.updateReachable()
	if c.writable && !before && c.cfg.OnFound != nil {
		c.cfg.OnFound()
	}
	if before && !c.writable {
		c.away = time.Now()
	}
	// Whether a writable server accepts the user is known only when a connection is used. A
	// refusal was logged already; to the driver it looks like a server that comes and goes.
	if !c.writable && !c.closing && !c.refused && c.logged {
		c.logged = false
		c.cfg.Logger.Warn("MongoDB is away", "err", c.available())
	}
}

// settleTime is how long a server must have accepted writes before this is logged, except at the
// start.
const settleTime = time.Second

// heartbeatFailed is called by the driver's monitors whenever a check of a server fails.
func (c *Connection) heartbeatFailed(e *event.ServerHeartbeatFailedEvent) {
	// The driver cancels a check that is under way, before or while it reads the reply, when
	// another connection fails or is refused. That says nothing about the server.
	if errors.Is(e.Failure, net.ErrClosed) || errors.Is(e.Failure, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = e.Failure
}

// The error codes for a refused user, of MongoDB and of Atlas.
const (
	authenticationFailed = 18
	atlasError           = 8000
)

// connectionUsed is called by the driver's pools for each use of a connection, and
// for each failure to get one.
func (c *Connection) connectionUsed(e *event.PoolEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case event.ConnectionCheckOutFailed:
		var answer driver.Error
		if !errors.As(e.Error, &answer) || answer.Code != authenticationFailed && answer.Code != atlasError {
			return
		}
		c.lastErr = nil // a server has answered
		if !c.refused {
			c.refused = true
			c.cfg.Logger.Error("MongoDB refuses the user: authentication failed; check the user, the password and authSource of the MongoDB URI; accepted readings wait meanwhile",
				"server", e.Address, "code", answer.Code)
		}
	case event.ConnectionReady:
		if c.refused {
			c.refused = false
			c.cfg.Logger.Info("MongoDB accepts the user", "server", e.Address)
		}
	case event.ConnectionCheckedOut:
		// A server whose connections are cut again and again comes and goes many times a second.
		if c.writable && !c.logged && time.Since(c.away) >= settleTime {
			c.logged = true
			c.cfg.Logger.Info("MongoDB accepts writes")
		}
	}
}

// ErrRefused says that MongoDB refuses the user that the URI names. Writes wait, as
// if MongoDB were away, until it accepts the user.
var ErrRefused = errors.New("MongoDB refuses the user of its URI: authentication failed; check the user, the password and authSource")

// ErrAway says that currently no MongoDB server accepts writes.
var ErrAway = errors.New("MongoDB is away")

// ErrNoneFound says that no server was found yet, and no error occurred.
var ErrNoneFound = fmt.Errorf("%w: no server was found yet", ErrAway)

// Available returns nil while a server is known that accepts writes, accepts the user and, if
// WatchReplies runs, replies to pings. Otherwise it returns the reason, usually an ErrAway. It
// does no I/O.
func (c *Connection) Available() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.available()
}

func (c *Connection) available() error {
	switch {
	case c.unresponsive && (c.writable || mongo.IsTimeout(c.lastErr)):
		return errNoReply
	case c.refused && (c.writable || c.lastErr == nil):
		return ErrRefused
	case c.writable:
		return nil
	case c.lastErr != nil:
		return fmt.Errorf("%w: %w", ErrAway, c.lastErr)
	}
	return ErrNoneFound
}

// awayGrace is how long MongoDB must be unavailable before operations that wait for it are
// canceled. After a broken connection, the driver considers a server unknown for a moment.
const awayGrace = 500 * time.Millisecond

// Up returns a context that is canceled once no server has accepted writes and replied for
// awayGrace; it may be canceled already.
func (c *Connection) Up() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// updateReachable updates reachable from writable and unresponsive; c.mu must be held.
func (c *Connection) updateReachable() {
	reachable := c.writable && !c.unresponsive
	if reachable == c.reachable {
		return
	}
	c.reachable = reachable
	if c.awayTimer != nil {
		c.awayTimer.Stop()
	}
	switch {
	case !reachable:
		c.awayTimer = time.AfterFunc(awayGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.reachable {
				c.end()
			}
		})
	case c.up.Err() != nil:
		c.up, c.end = context.WithCancel(context.Background())
	}
}

// Client gives access to the whole deployment.
func (c *Connection) Client() *mongo.Client { return c.client }

// Database gives access to Brim's database with the concerns that exactly-once
// storage needs: writes are acknowledged by a majority that has journaled them, and
// reads are majority-committed and from the primary, whatever the URI prefers, since
// a secondary may lag behind what was just written.
func (c *Connection) Database() *mongo.Database { return c.databaseOf(c.client) }

// ControlDatabase is like Database, but has its own small connection pool, for commands that must be
// quick even while many queries or writes are slow.
func (c *Connection) ControlDatabase() *mongo.Database { return c.databaseOf(c.control) }

func (c *Connection) databaseOf(client *mongo.Client) *mongo.Database {
	journaled := true
	concern := &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	return client.Database(c.cfg.Database, options.Database().
		SetWriteConcern(concern).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
}

// Close disconnects, within ctx.
func (c *Connection) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	err := errors.Join(c.client.Disconnect(ctx), c.control.Disconnect(ctx))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awayTimer != nil {
		c.awayTimer.Stop()
	}
	c.end()
	if err != nil {
		return fmt.Errorf("disconnect from MongoDB: %w", err)
	}
	return nil
}

// pingTimeout and pingInterval add up to less than 3 s, within which a server that
// does not answer must be reported. The driver itself notices after half a minute:
// a stopped process keeps its sockets open.
const (
	pingTimeout  = 2 * time.Second
	pingInterval = 500 * time.Millisecond
)

// errNoReply is the error of Available while no ping is answered.
var errNoReply = fmt.Errorf("%w: it does not answer: no reply to any ping within %v, though its connections are open", ErrAway, pingTimeout)

// Ping pings the server that accepts writes, and returns the shortest round trip. Until there is a
// reply, it sends more pings on other connections: on a host without a free CPU only some of a
// server's threads are delayed, but a stopped server replies to none:
//
//	0 s     0.5      1.0      1.5      2.0
//	├─ ping ───────────────────────────┤
//	        ├─ ping ───────────────────┤
//	                 ├─ ping ──────────┤
//	                          ├─ ping ─┤  no reply to any: it does not answer
func Ping(parent context.Context, client *mongo.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(parent, pingTimeout)
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
		c.checkReply(ctx)
	}
}

func (c *Connection) checkReply(ctx context.Context) {
	_, err := Ping(ctx, c.control)
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.unresponsive
	c.unresponsive = errors.Is(err, context.DeadlineExceeded) || mongo.IsTimeout(err)
	c.updateReachable()
	switch {
	case c.unresponsive && !before && c.writable:
		c.cfg.Logger.Warn("MongoDB does not answer", "err", err)
	case before && err == nil:
		c.cfg.Logger.Info("MongoDB answers again")
	}
}

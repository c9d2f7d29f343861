package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/fault"
)

// ConnectionConfig says which MongoDB to use.
type ConnectionConfig struct {
	URI      string // as MongoDB's documentation describes it; its options win
	Database string
	App      string // name that the server knows the connection by; empty: brim, the daemon's
	Logger   *slog.Logger
	Faults   *fault.Injector // nil outside tests
}

// A Connection is a MongoDB deployment that may be away: it is made without
// one, and finds it again by itself.
type Connection struct {
	client   *mongo.Client
	database string
	log      *slog.Logger
	faults   *fault.Injector
	writable atomic.Bool
	saying   sync.Mutex  // held while the log is told of a change
	told     atomic.Bool // the log says that writes are accepted
	closing  atomic.Bool
	lastErr  atomic.Pointer[error]
	admitted admission
}

// Connect prepares a connection; an error means that the URI makes no sense,
// never that the server is away.
func Connect(cfg ConnectionConfig) (*Connection, error) {
	c := &Connection{database: cfg.Database, log: cfg.Logger, faults: cfg.Faults, admitted: admission{log: cfg.Logger}}
	opts := options.Client().SetAppName(cmp.Or(cfg.App, "brim")).
		// Longer than a failover takes to be noticed is too long for a lane to
		// hang in; it backs off and tries again by itself.
		SetServerSelectionTimeout(3 * time.Second).
		// A timeout in the client, even none, keeps timed-out operations from
		// closing their connections.
		SetTimeout(0).
		// The default of ten seconds would be how long a daemon goes on refusing
		// after MongoDB is back.
		SetHeartbeatInterval(time.Second).
		SetServerMonitor(&event.ServerMonitor{
			TopologyDescriptionChanged: c.topologyChanged,
			ServerHeartbeatFailed:      func(e *event.ServerHeartbeatFailedEvent) { c.lastErr.Store(&e.Failure) },
		}).
		SetPoolMonitor(&event.PoolMonitor{Event: c.connectionUsed}).
		ApplyURI(cfg.URI)
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("read MongoDB URI: %w", err)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("set up MongoDB client: %w", err)
	}
	c.client = client
	return c, nil
}

// topologyChanged is called by the driver's monitors whenever a server comes,
// goes or changes its role.
func (c *Connection) topologyChanged(e *event.TopologyDescriptionChangedEvent) {
	writable := false
	for _, s := range e.NewDescription.Servers {
		switch s.Kind {
		case "RSPrimary", "Standalone", "Mongos", "LoadBalancer":
			writable = true
		}
	}
	c.saying.Lock()
	defer c.saying.Unlock()
	c.writable.Store(writable)
	if writable || c.closing.Load() {
		return // whether it lets the user in shows when a connection is used
	}
	if c.admitted.err() != nil {
		return // that was said, and the driver takes the refusal for a server that goes and comes
	}
	if c.told.Swap(false) {
		c.log.Warn("MongoDB is away", "err", c.Available())
	}
}

// connectionUsed is called by the driver's pools for each use of a connection, and
// where none could be had.
func (c *Connection) connectionUsed(e *event.PoolEvent) {
	c.admitted.monitor(e)
	if e.Type != event.ConnectionCheckedOut || c.told.Load() {
		return
	}
	c.saying.Lock()
	defer c.saying.Unlock()
	if c.writable.Load() && !c.told.Swap(true) {
		c.log.Info("MongoDB accepts writes")
	}
}

// ErrAway says that no MongoDB server accepts writes at present.
var ErrAway = errors.New("MongoDB is away")

// Available returns nil while a server that accepts writes is known, and lets
// the user in; otherwise an ErrRefused, or an ErrAway that says what was seen
// last. It does no I/O.
func (c *Connection) Available() error {
	if c.writable.Load() {
		return c.admitted.err()
	}
	if err := c.lastErr.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrAway, *err)
	}
	return fmt.Errorf("%w: no server was found yet", ErrAway)
}

// Client gives access to the whole deployment.
func (c *Connection) Client() *mongo.Client { return c.client }

// Database gives access to Brim's database with the concerns that the promise
// rests on: writes are acknowledged by a majority that has journaled them, and
// what is read is majority-committed and comes from the primary, whatever the
// URI prefers, since a secondary may lag behind what was just written.
func (c *Connection) Database() *mongo.Database {
	journaled := true
	concern := &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	if c.faults.Off(fault.Majority) {
		concern = writeconcern.W1()
	}
	return c.client.Database(c.database, options.Database().
		SetWriteConcern(concern).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
}

// Close disconnects, within ctx.
func (c *Connection) Close(ctx context.Context) error {
	c.closing.Store(true)
	if err := c.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("disconnect from MongoDB: %w", err)
	}
	return nil
}

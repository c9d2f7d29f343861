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
	// Found is called whenever a server that accepts writes is found again; it
	// must not block. May be nil.
	Found func()
}

// A Connection is a MongoDB deployment that may be away: it is made without
// one, and finds it again by itself.
type Connection struct {
	client   *mongo.Client
	aside    *mongo.Client // for what must not wait for connections that queries and writes use
	database string
	log      *slog.Logger
	found    func()
	faults   *fault.Injector
	writable atomic.Bool
	mute     atomic.Bool // the last ping was not answered in time
	presence *presence
	saying   sync.Mutex  // held while the log is told of a change
	told     atomic.Bool // the log says that writes are accepted
	closing  atomic.Bool
	lastErr  atomic.Pointer[error]
	admitted admission
}

// Connect prepares a connection; an error means that the URI makes no sense,
// never that the server is away.
func Connect(cfg ConnectionConfig) (*Connection, error) {
	c := &Connection{database: cfg.Database, log: cfg.Logger, found: cfg.Found, faults: cfg.Faults, admitted: admission{log: cfg.Logger}, presence: newPresence()}
	opts := clientOptions(&cfg, c.connectionUsed).
		SetServerMonitor(&event.ServerMonitor{
			TopologyDescriptionChanged: c.topologyChanged,
			ServerHeartbeatFailed:      func(e *event.ServerHeartbeatFailedEvent) { c.lastErr.Store(&e.Failure) },
		})
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("read MongoDB URI: %w", err)
	}
	var err error
	if c.client, err = mongo.Connect(opts); err != nil {
		return nil, fmt.Errorf("set up MongoDB client: %w", err)
	}
	if c.aside, err = mongo.Connect(clientOptions(&cfg, c.connectionUsed).SetMinPoolSize(0).SetMaxPoolSize(asidePool)); err != nil {
		return nil, errors.Join(fmt.Errorf("set up MongoDB client: %w", err), c.client.Disconnect(context.Background()))
	}
	return c, nil
}

// asidePool is enough for a ping and a renewal of the claims.
const asidePool = 3

func clientOptions(cfg *ConnectionConfig, used func(*event.PoolEvent)) *options.ClientOptions {
	return options.Client().SetAppName(cmp.Or(cfg.App, "brim")).
		// Longer than a failover takes to be noticed is too long for a lane to
		// hang in; it backs off and tries again by itself.
		SetServerSelectionTimeout(3 * time.Second).
		// A timeout in the client, even none, keeps timed-out operations from
		// closing their connections.
		SetTimeout(0).
		// The default of ten seconds would be how long a daemon goes on refusing
		// after MongoDB is back.
		SetHeartbeatInterval(time.Second).
		SetPoolMonitor(&event.PoolMonitor{Event: used}).
		ApplyURI(cfg.URI)
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
	c.presence.set(writable && !c.mute.Load())
	if before := c.writable.Swap(writable); writable && !before && c.found != nil {
		c.found()
	}
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

// ErrNoneFound says that no server was found yet, for no known reason.
var ErrNoneFound = fmt.Errorf("%w: no server was found yet", ErrAway)

// Available returns nil while a server that accepts writes is known, answers
// (while WatchReplies runs), and lets the user in; otherwise an ErrRefused, or an
// ErrAway that says what was seen last. It does no I/O.
func (c *Connection) Available() error {
	err := c.lastErr.Load()
	switch {
	case c.mute.Load() && (c.writable.Load() || err != nil && mongo.IsTimeout(*err)):
		return errNoReply
	case c.writable.Load():
		return c.admitted.err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrAway, *err)
	}
	return ErrNoneFound
}

// Up returns a context that ends when, for a while, no server accepts writes and
// answers.
func (c *Connection) Up() context.Context { return c.presence.current() }

// Client gives access to the whole deployment.
func (c *Connection) Client() *mongo.Client { return c.client }

// Database gives access to Brim's database with the concerns that the promise
// rests on: writes are acknowledged by a majority that has journaled them, and
// what is read is majority-committed and comes from the primary, whatever the
// URI prefers, since a secondary may lag behind what was just written.
func (c *Connection) Database() *mongo.Database { return c.databaseOf(c.client) }

// AsideDatabase is Database by connections of its own, a few, for what must be
// quick while many queries or writes are slow.
func (c *Connection) AsideDatabase() *mongo.Database { return c.databaseOf(c.aside) }

func (c *Connection) databaseOf(client *mongo.Client) *mongo.Database {
	journaled := true
	concern := &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	if c.faults.Off(fault.Majority) {
		concern = writeconcern.W1()
	}
	return client.Database(c.database, options.Database().
		SetWriteConcern(concern).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
}

// Close disconnects, within ctx.
func (c *Connection) Close(ctx context.Context) error {
	c.closing.Store(true)
	defer c.presence.close() // the driver tells that its servers go
	if err := errors.Join(c.client.Disconnect(ctx), c.aside.Disconnect(ctx)); err != nil {
		return fmt.Errorf("disconnect from MongoDB: %w", err)
	}
	return nil
}

package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// failPoint is held by tests that use failCommand, see failing.
var failPoint sync.Mutex

func dial(t *testing.T, uri, database string) *Connection {
	t.Helper()
	c, err := Connect(ConnectionConfig{URI: uri, Database: database, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func TestConnectionFollowsMongoDB(t *testing.T) {
	t.Parallel()
	// A relay on its own port simulates a server that can be away.
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(mongodtest.FreePort(t)))
	c := dial(t, "mongodb://"+addr+"/?directConnection=true&heartbeatFrequencyMS=500", "any")
	require.ErrorIs(t, c.Available(), ErrAway)
	require.Eventually(t, func() bool { return !errors.Is(c.Available(), ErrNoneFound) }, time.Minute, 10*time.Millisecond)
	require.ErrorContains(t, c.Available(), "refused")

	stop := relay(t, addr, hostOf(t, mongodtest.URI(t)))
	require.Eventually(t, func() bool { return c.Available() == nil }, time.Minute, 10*time.Millisecond)
	stop()
	require.Eventually(t, func() bool { return c.Available() != nil }, time.Minute, 10*time.Millisecond)
}

// TestRefusedUserIsLogged: if a reachable server refuses the user, the log does
// not mention writes.
func TestRefusedUserIsLogged(t *testing.T) {
	t.Parallel()
	logged := func(uri string) (log string, err error) {
		var lines bytes.Buffer
		c, err := Connect(ConnectionConfig{URI: uri, Database: "any", Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		require.NoError(t, err)
		for range 3 {
			if err = c.Client().Ping(t.Context(), nil); err != nil {
				require.ErrorIs(t, c.Available(), ErrRefused, "also while the driver connects anew")
			}
		}
		require.NoError(t, c.Close(context.Background())) // which waits for the monitors
		return lines.String(), err
	}
	log, err := logged(mongodtest.URI(t))
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(log, "MongoDB accepts writes"), log)
	assert.NotContains(t, log, "MongoDB is away")

	log, err = logged(strings.Replace(mongodtest.URI(t), "mongodb://", "mongodb://unknown:open-sesame@", 1))
	require.ErrorContains(t, err, "AuthenticationFailed")
	assert.Contains(t, log, "MongoDB refuses the user")
	assert.NotContains(t, log, "MongoDB accepts writes")
	assert.NotContains(t, log, "MongoDB is away")
}

// TestAServerThatComesAndGoesIsLoggedOnce if its connections are cut, as by a proxy.
func TestAServerThatComesAndGoesIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		c := &Connection{cfg: ConnectionConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, up: t.Context(), end: func() {}}
		is := func(kind string) {
			c.topologyChanged(&event.TopologyDescriptionChangedEvent{NewDescription: event.TopologyDescription{Servers: []event.ServerDescription{{Kind: kind}}}})
			c.connectionUsed(&event.PoolEvent{Type: event.ConnectionCheckedOut})
		}
		is("Standalone")
		assert.Equal(t, 1, strings.Count(lines.String(), "accepts writes"))
		for range 50 {
			is("Unknown")
			<-time.After(50 * time.Millisecond)
			is("Standalone")
		}
		assert.Equal(t, 1, strings.Count(lines.String(), `msg="MongoDB is away"`))
		assert.Equal(t, 1, strings.Count(lines.String(), "accepts writes"))
		<-time.After(settleTime)
		is("Standalone")
		is("Unknown")
		assert.Equal(t, 2, strings.Count(lines.String(), "accepts writes"))
		assert.Equal(t, 2, strings.Count(lines.String(), `msg="MongoDB is away"`))
	})
}

// TestCanceledHeartbeatHidesNoRefusal, though the driver cancels its checks when a user is refused.
func TestCanceledHeartbeatHidesNoRefusal(t *testing.T) {
	t.Parallel()
	c := &Connection{refused: true}
	for _, canceled := range []error{context.Canceled, net.ErrClosed} {
		c.heartbeatFailed(&event.ServerHeartbeatFailedEvent{Failure: topology.ConnectionError{Wrapped: canceled}})
		require.ErrorIs(t, c.available(), ErrRefused)
	}
	c.heartbeatFailed(&event.ServerHeartbeatFailedEvent{Failure: topology.ConnectionError{Wrapped: io.EOF}})
	require.ErrorIs(t, c.available(), ErrAway)
}

func hostOf(t *testing.T, uri string) string {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return u.Host
}

// relay forwards connections at addr to target until stopped.
func relay(t *testing.T, addr, target string) (stop func()) {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	done := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(done)
		for {
			from, err := listener.Accept()
			if err != nil {
				break
			}
			var dialer net.Dialer
			to, err := dialer.Dial("tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			conns = append(conns, from, to)
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	return func() {
		_ = listener.Close()
		<-done
	}
}

func TestConnectRefusesInvalidURIs(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"", "http://x", "mongodb://", "mongodb://h/?w=no&w=1&nonsense"} {
		_, err := Connect(ConnectionConfig{URI: uri, Database: "d", Logger: slog.New(slog.DiscardHandler)})
		require.Error(t, err, uri)
	}
}

func TestCollectionOptions(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	c := Collection{Database: db, Name: "made", Compressor: Zstd}
	info, err := c.Ensure(t.Context(), options.CreateCollection())
	require.NoError(t, err)
	require.NoError(t, c.CheckType(info, "collection"))
	require.NoError(t, c.CheckCompressor(info))
	c.Compressor = Snappy
	require.ErrorContains(t, c.CheckCompressor(info), `collection "made" exists with compressor zstd, the stream asks for snappy`)
	require.ErrorContains(t, c.CheckType(info, "timeseries"), "type collection")

	expiry := func() any {
		var indexes []bson.M
		cursor, err := db.Collection("made").Indexes().List(t.Context())
		require.NoError(t, err)
		require.NoError(t, cursor.All(t.Context(), &indexes))
		for _, i := range indexes {
			if i["name"] == "brim_retention" {
				return i["expireAfterSeconds"]
			}
		}
		return nil
	}
	for _, after := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour} {
		require.NoError(t, c.EnsureExpiry(t.Context(), "bucketStart", after))
		assert.EqualValues(t, after.Seconds(), expiry())
	}
	require.NoError(t, c.EnsureExpiry(t.Context(), "bucketStart", 0))
	assert.Nil(t, expiry())
	require.NoError(t, c.EnsureExpiry(t.Context(), "bucketStart", 0), "there is nothing to remove")
}

// TestOneSlowPingIsTolerated: a busy host may delay one ping, but a stopped
// server answers none.
func TestOneSlowPingIsTolerated(t *testing.T) {
	t.Parallel()
	c := dialAs(t, "slow ping")
	blocked := failing(t, c, bson.D{
		{Key: "failCommands", Value: bson.A{"ping"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 3_000},
	})
	var took time.Duration
	err := ErrAway
	for i := 0; i < 3 && err != nil; i++ { // the host may stall as long as a ping takes, but not every time
		blocked(bson.D{{Key: "times", Value: 1}})
		took, err = Ping(t.Context(), c.Client())
	}
	require.NoError(t, err)
	assert.Less(t, took, pingTimeout)
	assert.Less(t, pingTimeout+pingInterval, 3*time.Second, "within which a server that does not answer is reported")

	blocked("alwaysOn")
	_, err = Ping(t.Context(), c.Client())
	assert.True(t, mongo.IsTimeout(err), err)
}

// dialAs connects to the shared mongod under an application name.
func dialAs(t *testing.T, app string) *Connection {
	t.Helper()
	c, err := Connect(ConnectionConfig{URI: mongodtest.URI(t), Database: "any", App: app, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

// failing returns a function that sets the mode of failCommand for the connection's
// commands. The shared mongod has only one such fail point, so tests take turns.
func failing(t *testing.T, c *Connection, data bson.D) func(mode any) {
	t.Helper()
	failPoint.Lock()
	t.Cleanup(failPoint.Unlock)
	set := func(mode any) {
		require.NoError(t, c.Client().Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: append(bson.D{{Key: "appName", Value: c.cfg.App}}, data...)},
		}).Err())
	}
	t.Cleanup(func() { set("off") })
	return set
}

// TestPingsDoNotWaitForConnectionsInUse: slow queries must not cause their own
// and all others' cancellation.
func TestPingsDoNotWaitForConnectionsInUse(t *testing.T) {
	t.Parallel()
	database := mongodtest.Database(t).Name()
	c := dial(t, mongodtest.URI(t)+"&maxPoolSize=1", database)
	admin := c.ControlDatabase().Client().Database("admin")
	blocked := func(mode string) error {
		return admin.RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "waitInFindBeforeMakingBatch"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "nss", Value: database + ".c"}}},
		}).Err()
	}
	_, err := c.ControlDatabase().Collection("c").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NoError(t, blocked("alwaysOn"))
	up := c.Up()
	var query sync.WaitGroup
	query.Go(func() { assert.NoError(t, c.Database().Collection("c").FindOne(up, bson.D{}).Err()) })
	defer query.Wait()
	defer func() { assert.NoError(t, blocked("off")) }()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return c.Client().Database(database).RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err() != nil
	}, time.Minute, 10*time.Millisecond, "the connection is in use")

	c.checkReply(t.Context())
	assert.NoError(t, c.Available())
	assert.NoError(t, up.Err(), "the query goes on")
}

func TestPresenceEndsWhenMongoDBStaysAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Connection
		c.up, c.end = context.WithCancel(t.Context())
		set := func(writable bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.writable = writable
			c.updateReachable()
		}
		set(true)
		first := c.Up()
		set(false)
		<-time.After(awayGrace / 2) // in the bubble's time
		set(true)
		<-time.After(2 * awayGrace)
		assert.NoError(t, first.Err(), "it was back in time")

		set(false)
		began := time.Now()
		<-first.Done()
		assert.Equal(t, awayGrace, time.Since(began))
		assert.Error(t, c.Up().Err())
		set(true)
		assert.NoError(t, c.Up().Err())
	})
}

// TestMissingPrivilegeToSeeMembersIsLogged, but nothing is refused.
func TestMissingPrivilegeToSeeMembersIsLogged(t *testing.T) {
	t.Parallel()
	c := dialAs(t, "may not see members")
	var log bytes.Buffer
	check := func() error {
		return WriteConcern{Members: 3}.Check(t.Context(), c.Database(), "a", slog.New(slog.NewTextHandler(&log, nil)))
	}
	var concern *ConcernError
	require.ErrorAs(t, check(), &concern)
	assert.Empty(t, log.String())
	failing(t, c, bson.D{{Key: "errorCode", Value: 13}, {Key: "failCommands", Value: bson.A{"replSetGetConfig"}}})("alwaysOn")
	require.NoError(t, check())
	assert.Contains(t, log.String(), "Grant the right to replSetGetConfig")
	assert.Contains(t, log.String(), "stream=a")
}

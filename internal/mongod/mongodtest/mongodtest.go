// Package mongodtest gives tests a real mongod: one that all tests of a
// binary share, or one of a test's own.
//
//	func TestMain(m *testing.M) { mongodtest.Main(m, mongodtest.NoLeaks()) }
//
//	func TestStore(t *testing.T) {
//		db := mongodtest.Database(t)
//		…
//	}
//
// Fail points are on. The mongods are members of a replica set of one, small
// enough for several test binaries at once, and end with the test binary
// however that ends. On a machine where none can be had the tests are
// skipped, and say so; with BRIM_REQUIRE_MONGOD=1 they fail.
package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/mongod"
)

const (
	// startTimeout includes an installation over a slow network.
	startTimeout = 10 * time.Minute
	stopTimeout  = 15 * time.Second
	// operationTimeout is for tests: long enough for a machine that is busy
	// with other test binaries.
	operationTimeout = 30 * time.Second
)

// shared is what URI and Database give to all tests of the binary. It is a
// variable of the package because tests have nothing else in common.
var shared struct {
	mu     sync.Mutex
	main   bool // Main or Run is under way
	tried  bool
	dir    *scratch
	server *mongod.Server
	err    error
}

// Option is something that Run does besides.
type Option func(*settings)

type settings struct {
	leaks  bool
	ignore []goleak.Option
}

// NoLeaks fails the binary when goroutines are left at the end.
func NoLeaks(ignore ...goleak.Option) Option {
	return func(s *settings) { s.leaks, s.ignore = true, ignore }
}

// Main runs the tests, ends the shared mongod and exits. It is the whole of a
// TestMain.
func Main(m *testing.M, opts ...Option) { os.Exit(Run(m, opts...)) }

// Run is Main without the exit: it returns the exit code.
func Run(m *testing.M, opts ...Option) int {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()

	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "mongodtest: end the shared mongod:", err)
		code = max(code, 1)
	}
	if s.leaks && code == 0 {
		if err := goleak.Find(s.ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "mongodtest: goroutines are left:", err)
			return 1
		}
	}
	return code
}

// URI of the mongod that all tests of the binary share. It is started when
// the first test asks.
func URI(t testing.TB) string {
	t.Helper()
	return Shared(t).URI()
}

// Shared is the server behind URI. A test that kills or changes it disturbs
// the others: it should Start its own.
func Shared(t testing.TB) *mongod.Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("the package needs func TestMain(m *testing.M) { mongodtest.Main(m) }, which ends the shared mongod")
	}
	if !shared.tried {
		shared.tried = true
		shared.dir, shared.server, shared.err = startShared()
	}
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	return shared.server
}

func startShared() (*scratch, *mongod.Server, error) {
	dir, err := newScratch()
	if err != nil {
		return nil, nil, err
	}
	server, err := start(mongod.Config{DataDir: dir.path})
	if err != nil {
		return nil, nil, errors.Join(err, dir.remove())
	}
	return dir, server, nil
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.main = false
	if shared.server == nil {
		return nil
	}
	// The data is thrown away, so nothing has to be closed in good order.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := shared.server.Close(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, shared.dir.remove())
}

// Start starts a mongod of the test's own and stops it at the test's end.
// What config leaves out is as for the shared one; DataDir, when empty, is a
// directory of the test.
func Start(t testing.TB, config mongod.Config) *mongod.Server {
	t.Helper()
	if config.DataDir == "" {
		config.DataDir = t.TempDir()
	}
	server, err := start(config)
	if err != nil {
		giveUp(t, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("stop mongod: %v", err)
		}
	})
	return server
}

func start(config mongod.Config) (*mongod.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return mongod.Start(ctx, Defaults(config))
}

// Defaults fills what config leaves out with what suits tests: small, with
// fail points, and dying with the test binary. Tests that call mongod.Start
// themselves need it.
func Defaults(config mongod.Config) mongod.Config {
	if config.Bin == "" {
		config.Bin = os.Getenv("BRIM_MONGOD_BIN")
	}
	if config.CacheSizeGB == 0 {
		config.CacheSizeGB = 0.25
	}
	if config.OplogSizeMB == 0 {
		config.OplogSizeMB = 64
	}
	if config.Progress == nil {
		config.Progress = os.Stderr
	}
	config.DieWithParent = true
	parameters := map[string]string{"enableTestCommands": "1"}
	maps.Copy(parameters, config.Parameters)
	config.Parameters = parameters
	return config
}

// Database connects a client to the shared mongod, with an empty database
// that is dropped at the test's end. The client is db.Client().
func Database(t testing.TB) *mongo.Database {
	t.Helper()
	return DatabaseAt(t, URI(t))
}

// DatabaseAt is Database at another mongod, one from Start.
func DatabaseAt(t testing.TB, uri string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(operationTimeout))
	if err != nil {
		t.Fatalf("connect to %s: %v", uri, err)
	}
	db := client.Database(databaseName())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			t.Errorf("drop database %s: %v", db.Name(), err)
		}
		if err := client.Disconnect(ctx); err != nil {
			t.Errorf("disconnect from %s: %v", uri, err)
		}
	})
	return db
}

// giveUp decides between a skip and a failure: only a machine that cannot
// have a mongod, and was not told that it must, is let off.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if !skips(err, os.Getenv("BRIM_REQUIRE_MONGOD")) {
		t.Fatalf("start mongod: %v", err)
	}
	fmt.Fprintf(os.Stderr, "SKIP: no mongod for %s: %v\n", t.Name(), err)
	t.Skip("no mongod")
}

func skips(err error, require string) bool {
	return errors.Is(err, mongod.ErrUnavailable) && require != "1"
}

// FreePort returns a TCP port of 127.0.0.1 that is free, and that no test of any
// process is given before this one has ended: its namesake of UDP is held for so
// long. It is drawn from below those that the system gives to whoever asks for
// any, and from below those that mongods draw.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			continue // another test has it
		}
		t.Cleanup(func() { claim.Close() })
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port from 10000 to 19999 is free")
	return 0
}

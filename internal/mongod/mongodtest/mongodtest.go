// Package mongodtest gives tests a real mongod: one that all tests of a
// binary share, or one of a test's own.
//
//	func TestMain(m *testing.M) { mongodtest.Main(m) }
//
//	func TestStore(t *testing.T) {
//		db := mongodtest.Database(t)
//		…
//	}
//
// Fail points are on. The mongods are members of a replica set of one, small enough for
// several test binaries at once, and end with the test binary. On a machine without a
// usable mongod the tests are skipped, with a message; with BRIM_REQUIRE_MONGOD=1 they
// fail.
package mongodtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod"
)

const (
	// startTimeout includes an installation over a slow network.
	startTimeout = 10 * time.Minute
	// operationTimeout is long enough for a machine that is busy with other test
	// binaries.
	operationTimeout = 30 * time.Second
)

// shared is the mongod of all tests of the binary.
var shared struct {
	mu     sync.Mutex
	main   bool // Main or Run is running
	tried  bool
	dir    string
	server *mongod.Server
	client *mongo.Client // of its Databases
	err    error
}

// Main runs the tests, stops the shared mongod, calls after, and exits. TestMain needs
// nothing else.
func Main(m *testing.M, after ...func()) {
	code := Run(m)
	for _, f := range after {
		f()
	}
	os.Exit(code)
}

// Run is Main without the exit: it returns the exit code, which is nonzero if goroutines
// leaked.
func Run(m *testing.M) int {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()

	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "mongodtest: stop the shared mongod:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "mongodtest: goroutines are left:", err)
			return 1
		}
	}
	return code
}

// URI of the mongod that all tests of the binary share. The first call starts it.
func URI(t testing.TB) string {
	t.Helper()
	return Shared(t).URI()
}

// Shared is the server behind URI. A test that kills or changes a server has to Start its
// own.
func Shared(t testing.TB) *mongod.Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("the package needs func TestMain(m *testing.M) { mongodtest.Main(m) }, which stops the shared mongod")
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

func startShared() (string, *mongod.Server, error) {
	dir, err := newScratch()
	if err != nil {
		return "", nil, err
	}
	server, err := start(mongod.Config{DataDir: dir})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if shared.client, err = connect(server.URI()); err != nil {
		return "", nil, errors.Join(err, end(server), os.RemoveAll(dir))
	}
	return dir, server, nil
}

func connect(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(operationTimeout))
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.main = false
	if shared.server == nil {
		return nil
	}
	return errors.Join(disconnect(shared.client), end(shared.server), os.RemoveAll(shared.dir))
}

// end kills the server's mongod: its data is deleted, so a clean stop is unnecessary.
func end(server *mongod.Server) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Close(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Start starts a mongod for the test, and kills it after the test unless the test has
// closed it. The defaults are the shared one's; without a DataDir, it uses a directory of
// the test.
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
		if err := end(server); err != nil {
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

// Defaults fills in defaults for tests: small, with fail points, and ending with the test
// binary. Tests that call mongod.Start need it.
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

// Database returns an empty database of the shared mongod, which is dropped after the
// test. All tests share its client.
func Database(t testing.TB) *mongo.Database {
	t.Helper()
	Shared(t)
	return databaseOf(t, shared.client)
}

// DatabaseAt is like Database for another mongod, from Start, with a separate client.
func DatabaseAt(t testing.TB, uri string) *mongo.Database {
	t.Helper()
	client, err := connect(uri)
	if err != nil {
		t.Fatalf("connect to %s: %v", uri, err)
	}
	t.Cleanup(func() {
		if err := disconnect(client); err != nil {
			t.Errorf("disconnect from %s: %v", uri, err)
		}
	})
	return databaseOf(t, client)
}

func databaseOf(t testing.TB, client *mongo.Client) *mongo.Database {
	t.Helper()
	db := client.Database("test_" + strings.ToLower(rand.Text()))
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil { // with the timeout of the client
			t.Errorf("drop database %s: %v", db.Name(), err)
		}
	})
	return db
}

func disconnect(client *mongo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	return client.Disconnect(ctx)
}

// giveUp skips the test if this machine has no usable mongod and BRIM_REQUIRE_MONGOD is
// not set, and fails it otherwise.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, mongod.ErrUnavailable) {
		t.Fatalf("start mongod: %v", err)
	}
	brimtest.Missing(t, "MONGOD", fmt.Sprintf("mongod: %v", err))
}

// Before skips a test of behavior that this major release of MongoDB changed. The reason
// says what later releases do.
func Before(t testing.TB, major int, reason string) {
	t.Helper()
	version := Shared(t).Version()
	if first, _, _ := strings.Cut(version, "."); first >= strconv.Itoa(major) { // both have one digit
		skip(t, "MongoDB "+version+": "+reason)
	}
}

// Native skips a test that needs mongod to be a native process if it runs in an emulator
// (make test-mongo7). The reason says why.
func Native(t testing.TB, reason string) {
	t.Helper()
	if Emulated(t) {
		skip(t, "mongod runs in an emulator: "+reason)
	}
}

// Emulated reports whether mongod runs in an emulator: the pid that it reports is not that
// of its process.
func Emulated(t testing.TB) bool {
	t.Helper()
	server := Shared(t)
	var status struct {
		Pid int `bson:"pid"`
	}
	err := shared.client.Database("admin").RunCommand(context.Background(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	if err != nil {
		t.Fatalf("ask mongod for its pid: %v", err)
	}
	return status.Pid != server.Pid()
}

func skip(t testing.TB, reason string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "SKIP: %s: %s\n", t.Name(), reason)
	t.Skip(reason)
}

// FreePort returns a free TCP port of 127.0.0.1 that no other test of any process gets
// before this one has ended: the UDP port with that number is held as a lock. It is
// outside the ranges used by the system and for mongods.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + mathrand.IntN(10_000)
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

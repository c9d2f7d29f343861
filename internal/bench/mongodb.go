package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Setting configures an experiment's mongod. Anything unset is as in the daemon's own mongod,
// except for the cache, which is pinned.
type Setting struct {
	Standalone bool
	CacheGB    float64           // 0: 1; DefaultCache: mongod's own choice
	Compressor store.Compressor  // for collections that name none; empty: snappy
	Parameters map[string]string // as for --setParameter
	// CheckpointInterval is in whole seconds; 0: mongod's own, 60 s.
	CheckpointInterval time.Duration
	EngineConfig       string // passed to WiredTiger as is
}

// pinnedCacheGB is the cache size unless an experiment varies it: small enough for a laptop,
// and large enough for an experiment's data.
const pinnedCacheGB = 1

// DefaultCache leaves the cache size to mongod.
const DefaultCache = -1

// special reports whether the setting requires the experiment's own mongod.
func (s Setting) special() bool {
	return s.Standalone || s.CacheGB != 0 || len(s.Parameters) > 0 || s.CheckpointInterval != 0 || s.EngineConfig != ""
}

// errOwnOnly rejects a special setting on a user's MongoDB.
var errOwnOnly = errors.New(OwnOnly)

// A MongoDB is where an experiment writes.
type MongoDB struct {
	// Connection is configured as the daemon's own: majority and journaled.
	*store.Connection
	Name string // of the database

	lab     *Lab
	setting Setting
	server  *mongod.Server // nil: the user's MongoDB
	dir     string         // of the server's files
	claimed bool           // a user's database, which may hold scratch data
}

// ownDatabase is the database in the experiment's own mongods.
const ownDatabase = "bench"

const closeTimeout = 30 * time.Second

// Start returns a MongoDB with an empty database: a new mongod, or the user's MongoDB, which
// takes no special setting.
func (l *Lab) Start(ctx context.Context, s Setting) *MongoDB {
	m := &MongoDB{lab: l, setting: s, Name: ownDatabase}
	if !l.Own() {
		if s.special() {
			Check(errOwnOnly)
		}
		m.Name = l.database
	}
	l.open = append(l.open, m)
	if l.Own() {
		m.dir = Must(os.MkdirTemp(l.Dir, "mongod-"))
		m.launch(ctx)
		return m
	}
	m.connect(ctx, l.config.URI)
	names, err := m.Database().ListCollectionNames(ctx, bson.D{})
	Checkf(err, "list the collections of the scratch database %s", m.Name)
	if len(names) > 0 { // dropping it would lose them
		Checkf(errTaken, "use %s", m.Name)
	}
	m.claimed = true
	return m
}

// launch starts the experiment's own mongod on the existing files.
func (m *MongoDB) launch(ctx context.Context) {
	c := mongod.Config{
		Bin: m.lab.config.MongodBin, DataDir: m.dir, DieWithParent: true, Progress: m.lab.config.Out,
		Standalone: m.setting.Standalone, CacheSizeGB: cmp.Or(m.setting.CacheGB, pinnedCacheGB), Compressor: string(m.setting.Compressor),
		Parameters: m.setting.Parameters, CheckpointInterval: m.setting.CheckpointInterval, EngineConfig: m.setting.EngineConfig,
	}
	if m.setting.CacheGB == DefaultCache {
		c.CacheSizeGB = 0
	}
	m.server = Must(mongod.Start(ctx, c))
	m.connect(ctx, m.server.URI())
}

func (m *MongoDB) connect(ctx context.Context, uri string) {
	m.Connection = Must(store.Connect(store.ConnectionConfig{URI: uri, Database: m.Name, Logger: slog.New(slog.DiscardHandler)}))
	c := m.Counters(ctx)
	compressor := string(m.setting.Compressor)
	if compressor == "" && m.server != nil {
		compressor = string(store.Snappy)
	}
	m.lab.Environment.saw(c.Version, c.Topology, compressor, int64(c.Value("cache_max_bytes"))>>20)
}

// errTaken means that the scratch database already has data. It is not ours and stays
// untouched.
var errTaken = errors.New("the scratch database already has collections; nothing was changed")

// own ends the experiment if the MongoDB is the user's.
func (m *MongoDB) own() {
	if m.server == nil {
		Check(errOwnOnly)
	}
}

// Restart shuts mongod down cleanly and restarts it with another setting on the same files.
func (m *MongoDB) Restart(ctx context.Context, s Setting) {
	m.own()
	Check(m.stop())
	m.setting = s
	m.launch(ctx)
}

// Kill crashes the experiment's own mongod, restarts it, and returns how long it took to accept
// writes again. It bypasses the server's own restart, whose pause would count.
func (m *MongoDB) Kill(ctx context.Context) time.Duration {
	m.own()
	Check(errors.Join(m.server.Kill(), m.stop()))
	began := time.Now()
	m.launch(ctx)
	return time.Since(began)
}

// stop closes the connection and stops the mongod.
func (m *MongoDB) stop() error {
	abort := m.lab.config.Abort
	ctx, cancel := context.WithTimeout(abort, closeTimeout)
	defer cancel()
	var errs []error
	if m.Connection != nil {
		errs = append(errs, m.Connection.Close(ctx))
		m.Connection = nil
	}
	if m.server != nil {
		errs = append(errs, m.server.Close(ctx))
		m.server = nil
	}
	if abort.Err() != nil {
		return nil // killed, as asked for
	}
	return errors.Join(errs...)
}

// Close drops the database in a user's MongoDB, or stops the mongod and removes its files.
// Further calls do nothing.
func (m *MongoDB) Close() error {
	if !m.lab.ended(m) {
		return nil
	}
	var errs []error
	if m.server == nil && m.Connection != nil && m.claimed {
		errs = append(errs, m.drop())
	}
	errs = append(errs, m.stop())
	if m.dir != "" {
		errs = append(errs, os.RemoveAll(m.dir))
	}
	return errors.Join(errs...)
}

const (
	gonePause  = 200 * time.Millisecond
	goneChecks = 2 // consecutive checks that find nothing
)

// drop removes the scratch database, even after an interruption. The server may still be
// working on an abandoned command, and its upserts recreate the collection: the
// database is gone only once it stays away.
func (m *MongoDB) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for checks := 0; checks < goneChecks; checks++ {
		names, err := m.Database().ListCollectionNames(ctx, bson.D{})
		if err != nil {
			return fmt.Errorf("check that the scratch database %s is gone: %w", m.Name, err)
		}
		if len(names) > 0 {
			checks = -1
			if err := Try(func() { m.Drop(ctx) }); err != nil {
				return err
			}
		}
		if err := machine.Pause(ctx, gonePause); err != nil {
			return fmt.Errorf("wait until the scratch database %s is gone: %w", m.Name, err)
		}
	}
	return nil
}

// Drop empties the database.
func (m *MongoDB) Drop(ctx context.Context) {
	Checkf(m.Database().Drop(ctx), "drop the scratch database %s", m.Name)
}

// URI returns the MongoDB's URI, which may contain a secret.
func (m *MongoDB) URI() string {
	if m.server == nil {
		return m.lab.config.URI
	}
	return m.server.URI()
}

// DBPath returns the data directory of the experiment's own mongod; empty for a user's.
func (m *MongoDB) DBPath() string {
	if m.server == nil {
		return ""
	}
	return m.server.DBPath()
}

// Counters reads the server's current counters.
func (m *MongoDB) Counters(ctx context.Context) doctor.Counters {
	return Must(doctor.ReadCounters(ctx, m.Client()))
}

// CPU returns the server's CPU time in seconds; NaN if it does not report it.
func CPU(c doctor.Counters) float64 {
	return c.Value("cpu_seconds_total user") + c.Value("cpu_seconds_total system")
}

// Set sets server parameters at run time.
func (m *MongoDB) Set(ctx context.Context, parameters map[string]any) {
	m.own()
	command := bson.D{{Key: "setParameter", Value: 1}}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		command = append(command, bson.E{Key: name, Value: parameters[name]})
	}
	Checkf(m.admin(ctx, command).Err(), "set parameters of mongod")
}

// admin runs a command on the admin database.
func (m *MongoDB) admin(ctx context.Context, command bson.D) *mongo.SingleResult {
	return m.Client().Database("admin").RunCommand(ctx, command)
}

// Parameter reads a numeric server parameter.
func (m *MongoDB) Parameter(ctx context.Context, name string) float64 {
	raw, err := m.admin(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: name, Value: 1}}).Raw()
	Checkf(err, "read parameter %s of mongod", name)
	v, ok := raw.Lookup(name).AsFloat64OK()
	if !ok {
		Check(fmt.Errorf("read parameter %s of mongod: %s is not a number", name, raw.Lookup(name)))
	}
	return v
}

// Aggregate returns all results of a pipeline.
func Aggregate[T any](ctx context.Context, coll *mongo.Collection, pipeline mongo.Pipeline) (all []T) {
	cursor, err := coll.Aggregate(ctx, pipeline)
	if err == nil {
		err = cursor.All(ctx, &all)
	}
	Checkf(err, "aggregate %s", coll.Name())
	return all
}

// Checkpoint makes mongod write a checkpoint, and returns once it is written.
func (m *MongoDB) Checkpoint(ctx context.Context) {
	Checkf(m.admin(ctx, bson.D{{Key: "fsync", Value: 1}}).Err(), "make mongod write a checkpoint")
}

// ErrNotCompacted means that the server refused to compact.
var ErrNotCompacted = errors.New("MongoDB does not compact here")

// Compact returns a collection's free space to the file system. A replica set's primary
// requires force.
func (m *MongoDB) Compact(ctx context.Context, collection string) error {
	err := m.Database().RunCommand(ctx, bson.D{{Key: "compact", Value: collection}, {Key: "force", Value: true}}).Err()
	var said mongo.CommandError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && said.Code != 0 && !said.HasErrorLabel("NetworkError"):
		return fmt.Errorf("%w: %w", ErrNotCompacted, err)
	}
	return fmt.Errorf("compact %s: %w", collection, err)
}

const (
	quietSamples = 2                // consecutive samples with next to no CPU use
	quietShare   = 0.08             // of a processor
	quietTimeout = 15 * time.Second // after which a measurement begins anyway
)

// Settle makes the experiment's own mongod write a checkpoint and waits until it is quiet, so
// that a measurement does not pay for the previous one. A user's is left alone.
func (m *MongoDB) Settle(ctx context.Context) {
	if m.server != nil {
		m.Quiet(ctx, machine.Quiet{Share: quietShare, Looks: quietSamples, Most: quietTimeout})
	}
}

// Quiet is Settle for any MongoDB, with custom bounds, and waits for daemons as well. The
// measurement begins even if they stay busy.
func (m *MongoDB) Quiet(ctx context.Context, quiet machine.Quiet, daemons ...*Daemon) {
	m.Checkpoint(ctx)
	if m.lab.config.Hasty {
		return
	}
	Must(quiet.Await(ctx, func() (used time.Duration, err error) {
		err = Try(func() {
			if seconds := CPU(m.Counters(ctx)); !math.IsNaN(seconds) { // NaN does not convert to a Duration
				used = time.Duration(seconds * float64(time.Second))
			}
			for _, d := range daemons {
				used += Must(machine.CPU(d.Pid()))
			}
		})
		return used, err
	}))
}

// Spent is what something took.
type Spent struct {
	Seconds float64
	CPU     float64 // mongod's CPU seconds, as it reports them; NaN if it does not
	Own     float64 // CPU seconds of this process, which writes as a daemon does
	Since   func(counter string) float64
}

// Measure calls do and returns what it took.
func (m *MongoDB) Measure(ctx context.Context, do func(ctx context.Context)) (s Spent) {
	before := m.Counters(ctx)
	own := Must(machine.CPU(os.Getpid()))
	began := time.Now()
	do(ctx)
	s.Seconds = time.Since(began).Seconds()
	s.Own = (Must(machine.CPU(os.Getpid())) - own).Seconds()
	after := m.Counters(ctx)
	s.CPU = CPU(after) - CPU(before)
	s.Since = func(counter string) float64 { return after.Since(before, counter) }
	return s
}

// Package settings examines how a MongoDB is set up and names the settings that
// cost without need, or promise less than they seem to. Each advice is backed by
// what was measured in this very MongoDB:
//
//	commands            ─▶ facts ─▶ rules (rules.go) ─▶ findings: cause, evidence, action, cost
//	two samples         ─▶ rates ─┘
//	sample of documents ─▶ packed with snappy and zstd (compressor.go) ─┘
//
// Nothing is changed. What the user is not allowed to ask is reported with the role
// that permits it, and does not keep the rest from being examined.
package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Stream is one whose collection is examined.
type Stream = doctor.Stream

// Config says what to examine.
type Config struct {
	// Database has the streams' collections; its client asks the primary for the
	// server's settings.
	Database *mongo.Database
	Streams  []Stream
	// Before is an earlier sample: rates are of the time since. nil: they are
	// averages since the server's start.
	Before *Look
	// Sample bounds how long documents of one stream are read to try compressors on;
	// it also ends at 4 MiB. 0: 2 s. Negative: none are read.
	Sample time.Duration
	// Now returns the time. nil: time.Now.
	Now func() time.Time
}

const defaultSample = 2 * time.Second

// Check examines the settings once and returns findings of kind Setting, and of
// kind Unseen for what could not be examined. It takes some 20 ms, and what
// Config.Sample allows for each stream. It fails if the configuration is invalid,
// MongoDB does not answer, or ctx ends.
func Check(ctx context.Context, c Config) ([]doctor.Finding, error) {
	if c.Database == nil {
		return nil, errors.New("check settings: database is missing")
	}
	return check(ctx, newServer(c.Database), c, rules)
}

// check is Check of any server and with any rules.
func check(ctx context.Context, s server, c Config, table []rule) ([]doctor.Finding, error) {
	c.Sample = cmp.Or(c.Sample, defaultSample)
	if c.Now == nil {
		c.Now = time.Now
	}
	f, err := gather(ctx, s, c)
	if err != nil {
		return nil, fmt.Errorf("check settings: %w", err)
	}
	var out []doctor.Finding
	for _, r := range table {
		for _, found := range r.find(f) {
			if found.Kind == "" {
				found.Kind, found.Class = doctor.Setting, doctor.Degrading
			}
			out = append(out, found)
		}
	}
	return out, nil
}

// A server answers questions about a MongoDB.
type server interface {
	// run runs a command that reads, on admin or on the streams' database.
	run(ctx context.Context, admin bool, command bson.D) (bson.Raw, error)
	// sample reads documents of a collection until it has maxBytes of them, or all
	// of the pipeline, or ctx ends, which is no error.
	sample(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error)
}

// patience bounds one command, on a server that may be slow.
const patience = 10 * time.Second

// mongoServer is the primary of a real MongoDB.
type mongoServer struct {
	database, admin *mongo.Database
}

func newServer(db *mongo.Database) mongoServer {
	opts := options.Database().SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())
	return mongoServer{database: db.Client().Database(db.Name(), opts), admin: db.Client().Database("admin", opts)}
}

func (s mongoServer) run(ctx context.Context, admin bool, command bson.D) (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db := s.database
	if admin {
		db = s.admin
	}
	raw, err := db.RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask MongoDB for %s: %w", command[0].Key, err)
	}
	return raw, nil
}

func (s mongoServer) sample(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) (out []bson.Raw, err error) {
	const batch = 32 // of full buckets, some MiB
	cursor, err := s.database.Collection(collection).Aggregate(ctx, pipeline, options.Aggregate().SetBatchSize(batch))
	if err == nil {
		defer cursor.Close(context.WithoutCancel(ctx))
		for bytes := 0; bytes < maxBytes && cursor.Next(ctx); bytes += len(cursor.Current) {
			out = append(out, slices.Clone(cursor.Current))
		}
		err = cursor.Err()
	}
	if err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) { // only its time is over
		return out, nil
	}
	return nil, fmt.Errorf("read a sample of documents: %w", err)
}

// missing reports whether err is that a collection, or a replica set, does not
// exist, which is an answer too.
func missing(err error) bool {
	const (
		namespaceNotFound    = 26
		noReplicationEnabled = 76
		noStandalone         = 51300 // of getDefaultRWConcern
	)
	var said mongo.ServerError
	return errors.As(err, &said) &&
		(said.HasErrorCode(namespaceNotFound) || said.HasErrorCode(noReplicationEnabled) || said.HasErrorCode(noStandalone))
}

// facts are all that the rules judge.
type facts struct {
	server   server
	kind     deployment
	major    int    // of the server's version
	database string // of the streams
	answers  map[string]bson.Raw
	members  []member // of the configuration of a replica set
	states   []memberState
	look     *Look
	span     span
	streams  []streamFacts
	refusals []refusal
	now      time.Time
}

// A deployment is what kind of server answers.
type deployment string

const (
	standalone deployment = "standalone"
	replicaSet deployment = "replica set"
	sharded    deployment = "sharded" // a mongos
)

type member struct {
	Host    string  `bson:"host"`
	Arbiter bool    `bson:"arbiterOnly"`
	Votes   float64 `bson:"votes"`
	Delay   float64 `bson:"secondaryDelaySecs"`
}

type memberState struct {
	Name    string    `bson:"name"`
	Health  float64   `bson:"health"`
	State   int       `bson:"state"`
	Text    string    `bson:"stateStr"`
	Applied time.Time `bson:"optimeDate"`
}

// number returns a number from an answer; NaN: there is none.
func (f *facts) number(command string, path ...string) float64 {
	return doctor.Number(f.answers[command], path...)
}

func (f *facts) text(command string, path ...string) string {
	return doctor.Text(f.answers[command], path...)
}

// isFalse reports whether an answer has a boolean that is false.
func (f *facts) isFalse(command string, path ...string) bool {
	v, _ := doctor.LookUp(f.answers[command], path...)
	is, ok := v.BooleanOK()
	return ok && !is
}

// memory is what mongod may use, in bytes; 0: unknown.
func (f *facts) memory() float64 {
	if f.answers["hostInfo"] == nil {
		return 0
	}
	return doctor.MemoryOf(f.answers["hostInfo"])
}

// hasBuckets reports whether a stream's readings are appended to documents.
func (f *facts) hasBuckets() bool {
	return slices.ContainsFunc(f.streams, func(s streamFacts) bool { return s.Storage == store.Bucket })
}

// Roles that permit what is asked.
const (
	clusterMonitor = "clusterMonitor" // on admin
	readRole       = "read"           // on the streams' database
)

var errNoEngine = errors.New("a mongos has no storage engine")

// gather asks for everything, one after the other: each takes some ms.
func gather(ctx context.Context, s server, c Config) (*facts, error) {
	f := &facts{server: s, now: c.Now(), answers: make(map[string]bson.Raw)}
	if c.Database != nil {
		f.database = c.Database.Name()
	}
	for _, command := range []string{"hello", "buildInfo"} { // which every user may run
		raw, err := s.run(ctx, true, bson.D{{Key: command, Value: 1}})
		if err == nil {
			err = raw.Validate()
		}
		if err != nil {
			return nil, err
		}
		f.answers[command] = raw
	}
	switch {
	case f.text("hello", "msg") == "isdbgrid":
		f.kind = sharded
	case f.text("hello", "setName") != "":
		f.kind = replicaSet
	default:
		f.kind = standalone
	}
	_, _ = fmt.Sscanf(f.text("buildInfo", "version"), "%d", &f.major) // what is no number counts as old
	if raw, err := s.run(ctx, true, bson.D{{Key: "connectionStatus", Value: 1}}); err == nil && raw.Validate() == nil {
		f.answers["connectionStatus"] = raw
	}
	f.look = &Look{err: errNoEngine}
	if f.kind != sharded {
		f.ask(ctx, "the history window, checkpoints and the journal", "getParameter", "minSnapshotHistoryWindowInSeconds", "syncdelay", "journalCommitInterval", "wiredTigerEngineRuntimeConfig")
		f.ask(ctx, "the checkpoint interval", "getCmdLineOpts")
		f.ask(ctx, "the cache against the machine's memory", "hostInfo")
		f.look = takeLook(ctx, s)
		f.note(clusterMonitor, "serverStatus", "what the settings cost", f.look.err)
	}
	f.span = spanOf(c.Before, f.look)
	if f.kind == replicaSet {
		var config struct {
			Config struct {
				Members []member `bson:"members"`
			} `bson:"config"`
		}
		var status struct {
			Members []memberState `bson:"members"`
		}
		if f.ask(ctx, "the topology", "replSetGetConfig") {
			f.note(clusterMonitor, "replSetGetConfig", "the topology", bson.Unmarshal(f.answers["replSetGetConfig"], &config))
		}
		if f.ask(ctx, "members that lag", "replSetGetStatus") {
			f.note(clusterMonitor, "replSetGetStatus", "members that lag", bson.Unmarshal(f.answers["replSetGetStatus"], &status))
		}
		f.members, f.states = config.Config.Members, status.Members
	}
	if f.kind != standalone {
		f.ask(ctx, "the default write concern", "getDefaultRWConcern")
	}
	for _, stream := range c.Streams {
		if stream.Storage != store.Memory {
			stream.Collection = cmp.Or(stream.Collection, stream.Name)
			f.streams = append(f.streams, f.examine(ctx, stream, c.Sample))
		}
	}
	return f, ctx.Err()
}

// ask runs a command on admin with options that are set to 1; need is what its
// answer is for.
func (f *facts) ask(ctx context.Context, need, command string, options ...string) bool {
	request := bson.D{{Key: command, Value: 1}}
	for _, name := range options {
		request = append(request, bson.E{Key: name, Value: 1})
	}
	raw, err := f.server.run(ctx, true, request)
	if err == nil {
		err = raw.Validate()
	}
	if err != nil {
		f.note(clusterMonitor, command, need, err)
		return false
	}
	f.answers[command] = raw
	return true
}

// A refusal is a question that was not answered.
type refusal struct {
	role, command, need string
	err                 error
}

// note records a question that was not answered. That there is nothing to answer
// is no refusal.
func (f *facts) note(role, command, need string, err error) {
	if err != nil && !missing(err) {
		f.refusals = append(f.refusals, refusal{role: role, command: command, need: need, err: err})
	}
}

// unseen reports what could not be examined: a finding for each role that would
// help, and one for each answer that no role gives.
func unseen(f *facts) []doctor.Finding {
	var out []doctor.Finding
	add := func(cause, evidence, action, cost string) {
		out = append(out, doctor.Finding{
			Name: "unseen_settings", Kind: doctor.Unseen, Class: doctor.Unknown, Cause: cause, Evidence: evidence, Action: action, Cost: cost,
		})
	}
	if f.kind == sharded {
		add("settings of the shards: a mongos has no storage engine", "history window, checkpoints, journal, cache and members were not examined",
			"brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true, for a member of each shard", "none, it only reads")
	}
	user, db := "USER", "admin"
	var status struct {
		Info struct {
			Users []struct {
				User string `bson:"user"`
				DB   string `bson:"db"`
			} `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	if raw := f.answers["connectionStatus"]; raw != nil && bson.Unmarshal(raw, &status) == nil && len(status.Info.Users) > 0 {
		user, db = status.Info.Users[0].User, status.Info.Users[0].DB
	}
	for _, role := range []string{clusterMonitor, readRole} {
		var commands, needs []string
		for _, r := range f.refusals {
			if r.role == role && doctor.NotPermitted(r.err) {
				commands, needs = appendNew(commands, r.command), appendNew(needs, r.need)
			}
		}
		if len(commands) == 0 {
			continue
		}
		of := "admin"
		if role == readRole {
			of = cmp.Or(f.database, "DATABASE")
		}
		add(fmt.Sprintf("settings: the user is not allowed to run %s; the role %s permits it", list(commands), role), "not examined: "+list(needs),
			fmt.Sprintf("in mongosh: db.getSiblingDB(%q).grantRolesToUser(%q, [{role: %q, db: %q}])", db, user, role, of), "the user may read more; no restart")
	}
	for _, r := range f.refusals {
		if !doctor.NotPermitted(r.err) {
			add(r.need+": "+r.command+" was not answered", r.err.Error(), "try again; a hosted MongoDB may not answer it at all", "none, it only reads")
		}
	}
	return out
}

func appendNew(to []string, s string) []string {
	if slices.Contains(to, s) {
		return to
	}
	return append(to, s)
}

// A Look is a sample of the server's counters.
type Look struct {
	counters doctor.Counters
	raw      bson.Raw
	err      error // why it is empty
}

// TakeLook takes a sample now. What is unknown is reported by Check.
func TakeLook(ctx context.Context, db *mongo.Database) *Look { return takeLook(ctx, newServer(db)) }

func takeLook(ctx context.Context, s server) *Look {
	// 0 leaves out the longest sections; a server ignores names that it does not know.
	raw, err := s.run(ctx, true, bson.D{
		{Key: "serverStatus", Value: 1}, {Key: "repl", Value: 0}, {Key: "locks", Value: 0}, {Key: "tcmalloc", Value: 0},
		{Key: "transactions", Value: 0}, {Key: "shardingStatistics", Value: 0}, {Key: "queryStats", Value: 0},
	})
	if err != nil {
		return &Look{err: err}
	}
	l := &Look{raw: raw}
	l.counters, l.err = doctor.ParseCounters(raw, time.Now())
	return l
}

// value is a counter; NaN: unknown.
func (l *Look) value(name string) float64 {
	if l == nil || l.err != nil {
		return math.NaN()
	}
	return l.counters.Value(name)
}

// own is a number of serverStatus that is not among the counters; 0: unknown.
func (l *Look) own(path ...string) float64 {
	if l == nil || l.err != nil {
		return 0
	}
	if n := doctor.Number(l.raw, path...); !math.IsNaN(n) {
		return n
	}
	return 0
}

// A span is the time between two samples, or since the server's start.
type span struct {
	before, now *Look
	seconds     float64 // NaN: there is no sample
}

func spanOf(before, now *Look) span {
	uptime := now.own("uptimeMillis")
	switch {
	case now.err != nil:
		return span{now: now, seconds: math.NaN()}
	case before == nil || before.err != nil || doctor.Text(before.raw, "host") != doctor.Text(now.raw, "host") || before.own("pid") != now.own("pid") || before.own("uptimeMillis") >= uptime:
		return span{now: now, seconds: uptime / 1000} // all counters were 0 then
	}
	return span{before: before, now: now, seconds: (uptime - before.own("uptimeMillis")) / 1000}
}

// growth is how much a counter has grown.
func (s span) growth(name string) float64 {
	if s.before == nil {
		return s.now.value(name)
	}
	return s.now.value(name) - s.before.value(name)
}

// rate is a counter's growth in a second.
func (s span) rate(name string) float64 { return s.growth(name) / s.seconds }

// ownGrowth is how much a number of serverStatus has grown.
func (s span) ownGrowth(path ...string) float64 { return s.now.own(path...) - s.before.own(path...) }

// String describes it, as in "in the last 10s".
func (s span) String() string {
	d := time.Duration(s.seconds * float64(time.Second))
	if s.before != nil {
		return "in the last " + config.FormatDuration(d.Round(time.Second/10))
	}
	return "on average since the server's start " + config.FormatDuration(coarse(d)) + " ago"
}

// coarse rounds a long time.
func coarse(d time.Duration) time.Duration {
	if d >= time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// list writes "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

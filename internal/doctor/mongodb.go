package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"

	"github.com/brim-telemetry/brim/internal/store"
)

// A status is an answer of serverStatus.
type status struct {
	version   string
	topology  string // standalone, replica_set or sharded
	engine    string
	host      string // with the port, as the server calls itself
	pid       int
	started   time.Time // of the process, within about a second; by this machine's clock
	uptime    float64   // in seconds
	secondary bool      // a member of a set that accepts no writes
	figures   map[key]float64
}

// The topologies.
const (
	standalone = "standalone"
	replicaSet = "replica_set"
	sharded    = "sharded" // a mongos
)

// Why the server's signals are unknown.
const (
	whyNoSample      = "no sample was taken yet"
	whyAway          = "MongoDB does not answer"
	whyRefused       = "MongoDB refuses the user of its URI"
	whyNotPermitted  = "the user is not allowed to run serverStatus: the role clusterMonitor permits it"
	whyNoSense       = "MongoDB's answer is malformed"
	whyMongos        = "a mongos has no storage engine: examine the shards"
	whyOtherEngine   = "the storage engine is not WiredTiger"
	whyNoHostInfo    = "the user is not allowed to run hostInfo, which reports the CPUs: the role clusterMonitor permits it"
	whyCoresUnasked  = "MongoDB has not reported how many CPUs it has"
	whyCoresNotThere = "MongoDB does not report how many CPUs it has"
)

// Server error codes: the user lacks a privilege, the user is unknown or the
// password wrong, and Atlas's code for both.
const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
	codeNamespaceNotFound    = 26
	codeAtlas                = 8000
)

func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
}

// NotPermitted reports whether err says that the server's user lacks a privilege:
// a role would help.
func NotPermitted(err error) bool {
	return hasCode(err, codeUnauthorized, codeAtlas) && !refused(err)
}

// refused reports whether the server refuses the user of the URI: no role would
// help.
func refused(err error) bool {
	var handshake *auth.Error // the connection may also have broken during it
	return hasCode(err, codeAuthenticationFailed) || hasCode(err, codeAtlas) && errors.As(err, &handshake)
}

// run runs a command on admin within the monitor's patience.
func (m *Monitor) run(parent context.Context, command bson.D) (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(parent, m.patience())
	defer cancel()
	return m.database.Client().Database("admin").RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
}

func (m *Monitor) sampleServer(parent context.Context, now *sample) {
	var raw bson.Raw
	err := m.ping(parent, now)
	if err == nil {
		raw, err = m.run(parent, bson.D{{Key: "serverStatus", Value: 1}})
	}
	switch {
	case err == nil:
		now.answered = true
		now.server, now.serverWhy = parseStatus(raw, m.config.Now())
	case refused(err):
		now.answered, now.serverWhy, now.away = true, whyRefused, err.Error()
	case NotPermitted(err):
		now.answered, now.serverWhy = true, whyNotPermitted
	default:
		now.serverWhy, now.away = whyAway, err.Error()
	}
	m.say(parent, "storage engine", now.serverWhy, err)
}

// pings are enough to exclude a chance delay.
const pings = 3

// ping measures the round trip to the server.
func (m *Monitor) ping(ctx context.Context, now *sample) error {
	now.roundTrip = math.NaN()
	for range pings {
		took, err := store.Ping(ctx, m.database.Client())
		if err != nil {
			return err
		}
		if !(now.roundTrip <= took.Seconds()) {
			now.roundTrip = took.Seconds()
		}
	}
	return nil
}

// away returns the connection's error while the server does not answer.
func (m *Monitor) away() error {
	if m.config.Available != nil {
		if err := m.config.Available(); errors.Is(err, store.ErrAway) {
			return err
		}
	}
	return nil
}

// parseStatus reads serverStatus in the formats of MongoDB 6, 7 and 8. If why is
// not empty, the engine's values are missing.
func parseStatus(raw bson.Raw, at time.Time) (s *status, why string) {
	if raw.Validate() != nil { // otherwise a lookup could panic
		return nil, whyNoSense
	}
	s = &status{
		version: text(raw, "version"), topology: standalone, engine: text(raw, "storageEngine", "name"),
		host: text(raw, "host"), uptime: number(raw, "uptimeMillis") / 1000, figures: make(map[key]float64, len(figures)),
	}
	if pid := number(raw, "pid"); pid > 0 {
		s.pid = int(pid)
	}
	if !math.IsNaN(s.uptime) {
		s.started = at.Add(-time.Duration(s.uptime * float64(time.Second)))
	}
	if text(raw, "repl", "setName") != "" {
		s.topology = replicaSet
		primary, told := lookUp(raw, "repl", "isWritablePrimary")
		is, _ := primary.BooleanOK()
		s.secondary = told && !is
	}
	for i := range figures {
		s.figures[figures[i].key] = figures[i].read(raw)
	}
	s.figures[flowControlSeconds] = micros * orZero(number(raw, "flowControl", "timeAcquiringMicros"))
	s.figures[flowControlLimit] = orZero(number(raw, "flowControl", "targetRateLimit"))
	s.figures[majorityWaitsTotal] = orZero(number(raw, "metrics", "getLastError", "wtime", "num"))
	s.figures[majorityWaitSeconds] = millis * orZero(number(raw, "metrics", "getLastError", "wtime", "totalMillis"))
	if s.figures[checkpoints] == 0 {
		s.figures[checkpointLast] = math.NaN() // the server reports 0 before the first one
	}
	switch {
	case text(raw, "process") == "mongos":
		s.topology, s.engine = sharded, "none"
		why = whyMongos
	case s.engine != "wiredTiger":
		why = whyOtherEngine
	}
	return s, why
}

// majorOf returns the first number of a version; anything but a number counts
// as old.
func majorOf(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// probing reports whether the server adapts the number of tickets to the load.
func (s *status) probing() bool { return majorOf(s.version) >= 7 }

// value returns a figure; NaN: unknown.
func (s *status) value(k key) float64 {
	if s != nil {
		if v, ok := s.figures[k]; ok {
			return v
		}
	}
	return math.NaN()
}

// isProcess reports whether this is the process that was asked before.
func (s *status) isProcess(p *process) bool {
	const clockError = 5 * time.Second
	return p.host != "" && s.host == p.host && s.pid == p.pid && s.started.Sub(p.started).Abs() < clockError
}

// Counters are the figures of MongoDB's status at one time, those on /metrics;
// two of them measure what happened in between.
type Counters struct {
	At       time.Time // when the answer arrived
	Version  string    // of the server
	Topology string    // standalone, replica_set or sharded
	status   *status
}

// ReadCounters asks the primary. The user needs the role clusterMonitor.
func ReadCounters(ctx context.Context, client *mongo.Client) (Counters, error) {
	raw, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if NotPermitted(err) {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %s: %w", whyNotPermitted, err)
	}
	if err != nil {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %w", err)
	}
	at := time.Now()
	s, why := parseStatus(raw, at)
	if why != "" {
		return Counters{}, fmt.Errorf("read MongoDB's counters: %s", why)
	}
	return Counters{At: at, Version: s.version, Topology: s.topology, status: s}, nil
}

// Value returns a figure in its metric's unit. The name is the metric's without
// brim_mongodb_, as in cache_dirty_bytes; a label's value follows a space, as
// in "tickets_available write". NaN: the server does not report it.
func (c Counters) Value(name string) float64 { return c.status.value(key(name)) }

// Since returns how much a figure has grown.
func (c Counters) Since(before Counters, name string) float64 {
	return c.Value(name) - before.Value(name)
}

// cpuTime is the time of all CPUs of this machine since its start, added up.
// The zero value is unknown.
type cpuTime struct {
	total, busy float64 // seconds
}

// busySince returns the share of time in which the CPUs were busy; NaN:
// unknown.
func (l cpuTime) busySince(before cpuTime) float64 {
	if before.total == 0 || l.total <= before.total {
		return math.NaN()
	}
	return min(max((l.busy-before.busy)/(l.total-before.total), 0), 1)
}

// countProcessors returns the CPUs that the process may use, or those of the
// machine, from an answer to hostInfo.
func countProcessors(raw bson.Raw) (count float64, why string) {
	if raw.Validate() != nil {
		return 0, whyNoSense
	}
	if n := firstPositive(raw, "numCoresAvailableToProcess", "numCores"); n > 0 {
		return n, ""
	}
	return 0, whyCoresNotThere
}

// memoryOf returns the bytes that a process may use, in its container or on the
// machine, from an answer to hostInfo; 0: unknown.
func memoryOf(raw bson.Raw) float64 {
	if raw.Validate() != nil {
		return 0
	}
	return mebi * firstPositive(raw, "memLimitMB", "memSizeMB")
}

func firstPositive(raw bson.Raw, names ...string) float64 {
	for _, name := range names {
		if n := number(raw, "system", name); n > 0 {
			return n
		}
	}
	return 0
}

// sampleWindow asks how long the server keeps old versions of documents: every
// time, since an operator may change it.
func (m *Monitor) sampleWindow(ctx context.Context, now *sample) {
	const parameter = "minSnapshotHistoryWindowInSeconds"
	now.historyWindow = math.NaN()
	switch {
	case now.server == nil || now.serverWhy != "":
	case now.server.topology == standalone:
		now.historyWindow = 0 // whatever the setting: without an oplog there is no history
	default:
		raw, err := m.run(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: parameter, Value: 1}})
		if err == nil && raw.Validate() == nil { // otherwise the diagnosis does without
			now.historyWindow = number(raw, parameter)
		}
	}
}

// number returns a number of any BSON type from a valid document; NaN: there is
// none.
func number(raw bson.Raw, path ...string) float64 {
	v, ok := lookUp(raw, path...)
	if !ok {
		return math.NaN()
	}
	if n, ok := v.AsFloat64OK(); ok {
		return n
	}
	return math.NaN()
}

// text returns a string from a valid document, or "" if there is none.
func text(raw bson.Raw, path ...string) string {
	v, _ := lookUp(raw, path...)
	s, _ := v.StringValueOK()
	return s
}

// lookUp follows a path one step at a time: the driver's own lookup panics if
// it meets an array.
func lookUp(raw bson.Raw, path ...string) (v bson.RawValue, ok bool) {
	for i, name := range path {
		if i > 0 {
			if raw, ok = v.DocumentOK(); !ok {
				return v, false
			}
		}
		var err error
		if v, err = raw.LookupErr(name); err != nil {
			return v, false
		}
	}
	return v, true
}

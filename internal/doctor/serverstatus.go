package doctor

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"

	"github.com/brim-telemetry/brim/internal/store"
)

// A status is what serverStatus said.
type status struct {
	info    serverInfo
	host    string // with the port, as the server calls itself
	pid     int
	started time.Time // of the process, to about a second; by this machine's clock
	uptime  float64   // in seconds
	probing bool      // the number of tickets follows the load
	// secondary is a member of a set that takes no writes.
	secondary bool
	figures   map[key]float64
}

// serverInfo is what brim_mongodb_info tells.
type serverInfo struct {
	version  string
	topology string // standalone, replica_set or sharded
	engine   string
}

// standalone is the topology of a server that is no member of a set.
const standalone = "standalone"

// Why the server's signals cannot be seen.
const (
	whyNoLook       = "no look was taken yet"
	whyAway         = "MongoDB does not answer"
	whyRefused      = "MongoDB refuses the user of its URI"
	whyNotPermitted = "the user may not ask for serverStatus: the role clusterMonitor permits it"
	whyNoSense      = "MongoDB's answer makes no sense"
	whyMongos       = "a mongos has no storage engine: look at the shards"
	whyOtherEngine  = "the storage engine is not WiredTiger"
)

// Codes of the server: for what its user may not do, for a user that it does not
// know or whose password is wrong, and what Atlas answers in place of both.
const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
	codeAtlas                = 8000
)

// notPermitted reports whether the user may not do what was asked: a role would
// help.
func notPermitted(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeAtlas)) && !refused(err)
}

// refused reports whether nobody is let in as the user that the URI names: no
// role would help.
func refused(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	var atTheDoor *auth.Error // also that the line broke there
	return server.HasErrorCode(codeAuthenticationFailed) || server.HasErrorCode(codeAtlas) && errors.As(err, &atTheDoor)
}

// statusCommand asks for the status without what is not looked at, which is
// more than half of it. Of "metrics" all is left out but the whole itself,
// since "mem" comes with it. A server does not mind names that it does not
// know.
func statusCommand() bson.D {
	command := bson.D{{Key: "serverStatus", Value: 1}}
	for _, section := range []string{
		"activeIndexBuilds", "asserts", "batchedDeletes", "bucketCatalog", "catalogStats", "changeStreamPreImages", "collectionCatalog",
		"defaultRWConcern", "electionMetrics", "flowControl", "freeMonitoring", "health", "hedgingMetrics", "indexBuilds", "indexBulkBuilder",
		"indexStats", "Instance Size", "internalTransactions", "locks", "logicalSessionRecordCache", "mirroredReads", "network",
		"opcounters", "opcountersRepl", "oplogTruncation", "planCache", "queryAnalyzers", "querySettings", "queryStats",
		"readConcernCounters", "readPreferenceCounters", "resourceConsumption", "scramCache", "security", "shardingStatistics", "spillWiredTiger",
		"tcmalloc", "tenantMigrations", "trafficRecording", "transactions", "transportSecurity", "twoPhaseCommitCoordinator",
	} {
		command = append(command, bson.E{Key: section, Value: 0})
	}
	var metrics bson.D
	for _, part := range []string{
		"aggStageCounters", "apiVersions", "changeStreams", "commands", "cursor", "diagnostics", "document", "dotsAndDollarsFields", "getLastError",
		"mongos", "network", "operation", "operatorCounters", "query", "queryExecutor", "record", "repl", "serverStatus", "sorter", "storage", "ttl",
	} {
		metrics = append(metrics, bson.E{Key: part, Value: false})
	}
	return append(command, bson.E{Key: "metrics", Value: metrics})
}

// lookAtServer asks MongoDB once.
func (m *Monitor) lookAtServer(parent context.Context, now *look) {
	var raw bson.Raw
	err := m.ping(parent, now)
	if err == nil {
		ctx, cancel := context.WithTimeout(parent, m.patience())
		defer cancel()
		raw, err = m.database.Client().Database("admin").RunCommand(ctx, statusCommand()).Raw()
	}
	switch {
	case err == nil:
		now.answered = true
		now.server, now.serverWhy = parseStatus(raw, m.config.Now())
	case refused(err):
		now.answered, now.serverWhy = true, whyRefused
	case notPermitted(err):
		now.answered, now.serverWhy = true, whyNotPermitted
	default:
		now.serverWhy, now.away = whyAway, err.Error()
	}
	if parent.Err() == nil {
		m.say("storage engine", now.serverWhy, err)
	}
}

// pings are as many round trips as it takes for one not to be held up by chance.
const pings = 3

// ping measures the round trip to the server.
func (m *Monitor) ping(ctx context.Context, now *look) error {
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

// away is what the connection knows of a server that does not answer.
func (m *Monitor) away() error {
	if m.config.Available != nil {
		if err := m.config.Available(); errors.Is(err, store.ErrAway) {
			return err
		}
	}
	return nil
}

// parseStatus reads serverStatus in the shapes of MongoDB 6, 7 and 8. A why
// that is not empty says that the engine's values are not in it.
func parseStatus(raw bson.Raw, at time.Time) (s *status, why string) {
	if raw.Validate() != nil { // else looking things up in it could panic
		return nil, whyNoSense
	}
	s = &status{
		info: serverInfo{version: text(raw, "version"), topology: standalone, engine: text(raw, "storageEngine", "name")},
		host: text(raw, "host"), uptime: number(raw, "uptimeMillis") / 1000,
		figures: make(map[key]float64, len(figures)),
	}
	if pid := number(raw, "pid"); pid > 0 {
		s.pid = int(pid)
	}
	if !math.IsNaN(s.uptime) {
		s.started = at.Add(-time.Duration(s.uptime * float64(time.Second)))
	}
	s.probing = majorOf(s.info.version) >= 7
	if text(raw, "repl", "setName") != "" {
		s.info.topology = "replica_set"
		primary, told := lookUp(raw, []string{"repl", "isWritablePrimary"})
		s.secondary = told && !isTrue(primary)
	}
	for i := range figures {
		s.figures[figures[i].key] = figures[i].read(raw)
	}
	if s.figures[checkpoints] == 0 {
		s.figures[checkpointLast] = math.NaN() // the server says 0 before the first
	}
	switch {
	case text(raw, "process") == "mongos":
		s.info.topology, s.info.engine = "sharded", "none"
		why = whyMongos
	case s.info.engine != "wiredTiger":
		why = whyOtherEngine
	}
	return s, why
}

// majorOf is the first number of a version; what is no number counts as old.
func majorOf(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// value returns a figure, NaN if it cannot be seen.
func (s *status) value(k key) float64 {
	if s == nil {
		return math.NaN()
	}
	if v, ok := s.figures[k]; ok {
		return v
	}
	return math.NaN()
}

// number returns a number of any BSON type, NaN if there is none.
func number(raw bson.Raw, path ...string) float64 {
	v, ok := lookUp(raw, path)
	if !ok {
		return math.NaN()
	}
	if n, ok := v.Int32OK(); ok {
		return float64(n)
	}
	if n, ok := v.Int64OK(); ok {
		return float64(n)
	}
	if n, ok := v.DoubleOK(); ok {
		return n
	}
	return math.NaN()
}

// isTrue reports whether a value is the boolean true.
func isTrue(v bson.RawValue) bool {
	is, ok := v.BooleanOK()
	return ok && is
}

// text returns a string, empty if there is none.
func text(raw bson.Raw, path ...string) string {
	v, _ := lookUp(raw, path)
	s, _ := v.StringValueOK()
	return s
}

// lookUp goes a path one step at a time: the driver's own way of several steps
// panics where an array is on it.
func lookUp(raw bson.Raw, path []string) (v bson.RawValue, ok bool) {
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

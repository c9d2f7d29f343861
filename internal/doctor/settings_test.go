package doctor

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestGoodSettingsHaveNoFindings in any version.
func TestGoodSettingsHaveNoFindings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"replica-set-6.0.5", "replica-set-7.0", "replica-set-8.0"} {
		assert.Empty(t, ask(t, scene(t, name), settingRules, nil), name)
	}
}

// Paths that the settingRules read.
var (
	history    = []any{"getParameter", "minSnapshotHistoryWindowInSeconds"}
	syncDelay  = []any{"getParameter", "syncdelay"}
	syncPeriod = []any{"getCmdLineOpts", "parsed", "storage", "syncPeriodSecs"}
	memory     = []any{"hostInfo", "system", "memLimitMB"}
	cluster    = []any{"replSetGetConfig", "config"}
	wtime      = []any{"serverStatus", "metrics", "getLastError", "wtime"}
)

func enginePath(section, name string) []any {
	return []any{"serverStatus", "wiredTiger", section, name}
}

// A fault is a change to a healthy server, the rule that finds it, and the
// expected finding.
type fault struct {
	scene  string // empty: replica-set-6.0.5
	change func(r *recording)
	rule   string
	name   string
	cause  string
	saying []string // in evidence, action or cost
}

var faults = map[string]fault{
	"a history window": {
		change: func(r *recording) {
			r.set(300, history...)
			r.set(int64(25010), enginePath("cache", "history store table insert calls")...)
			r.set(8<<20, enginePath("cache", "history store table on-disk size")...)
		},
		rule: "history window", name: "setting_history_window", cause: "minSnapshotHistoryWindowInSeconds is 300",
		saying: []string{"2,000 old versions a second", "since the server's start 13s ago", "8.0 MiB", "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 0})", "setParameter: {minSnapshotHistoryWindowInSeconds: 0}", "no restart", "atClusterTime"},
	},
	"a history window in MongoDB 8": {
		scene: "replica-set-8.0", change: func(r *recording) { r.set(300.0, history...) },
		rule: "history window", name: "setting_history_window", cause: "minSnapshotHistoryWindowInSeconds is 300", saying: []string{"0 old versions a second"},
	},
	"a standalone server": {
		change: func(r *recording) {
			r.set(bson.D{{Key: "isWritablePrimary", Value: true}}, "hello")
			r.set(bson.D{{Key: "error", Value: bson.D{{Key: "code", Value: int32(76)}, {Key: "message", Value: "not running with --replSet"}}}}, "replSetGetConfig")
		},
		rule: "topology", name: "setting_topology", cause: "standalone", saying: []string{"rs.initiate()", "replSetName", "a restart", "oplog"},
	},
	"an arbiter beside four": {
		scene: "replica-set-7.0",
		change: func(r *recording) {
			m := bson.A{}
			for i, host := range []string{"db1:27017", "db2:27017", "db3:27017", "db4:27017", "db5:27017"} {
				m = append(m, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: host}, {Key: "votes", Value: 1}, {Key: "arbiterOnly", Value: i == 4}})
			}
			r.set(m, append(cluster, "members")...)
		},
		rule: "arbiters", name: "setting_topology", cause: "arbiter",
		saying: []string{"db5:27017 holds nothing; a majority is 3 of 5 votes, and 4 members hold data: 1 more than a majority can be away", `rs.remove("db5:27017")`},
	},
	"a member that lags": {
		scene: "replica-set-7.0",
		change: func(r *recording) {
			r.set(bson.NewDateTimeFromTime(recordedAt), "replSetGetStatus", "members", 0, "optimeDate")
			r.set(bson.NewDateTimeFromTime(recordedAt), "replSetGetStatus", "members", 1, "optimeDate")
			r.set(bson.NewDateTimeFromTime(recordedAt.Add(-95*time.Second)), "replSetGetStatus", "members", 2, "optimeDate")
		},
		rule: "members", name: "setting_topology", cause: "away or behind", saying: []string{"db3:27017 is 1m35s behind", "rs.printSecondaryReplicationInfo()"},
	},
	"a member that recovers": {
		scene: "replica-set-7.0",
		change: func(r *recording) {
			r.set(3, "replSetGetStatus", "members", 1, "state")
			r.set("RECOVERING", "replSetGetStatus", "members", 1, "stateStr")
		},
		rule: "members", name: "setting_topology", cause: "away or behind", saying: []string{"db2:27017 is recovering."},
	},
	"writes that wait": {
		scene: "replica-set-7.0", change: func(r *recording) { r.set(int64(211_000), append(wtime, "totalMillis")...) },
		rule: "waits for the majority", name: "setting_write_concern", cause: "wait long",
		saying: []string{"2,110 writes waited 100 ms each for the other members", "--ack journaled"},
	},
	"writes that are held back": {
		change: func(r *recording) {
			r.set(int64(2_501_000), "serverStatus", "flowControl", "timeAcquiringMicros")
			r.set(int32(100), "serverStatus", "flowControl", "targetRateLimit")
		},
		rule: "flow control", name: "setting_topology", cause: "flow control",
		saying: []string{"waited for 200 ms in each second", "since the server's start", "lets in 100 a second now", "rs.printSecondaryReplicationInfo()"},
	},
	"a cache that is too large": {
		change: func(r *recording) { r.set(300, memory...) },
		rule:   "cache and memory", name: "setting_cache", cause: "larger than the machine's memory",
		saying: []string{"256 MiB of the 300 MiB", "cache_size=256M", "cacheSizeGB"},
	},
	"no checkpoints": {
		change: func(r *recording) { r.set(0, syncPeriod...); r.set(0.0, syncDelay...) },
		rule:   "checkpoint interval", name: "setting_checkpoint", cause: "the interval is 0", saying: []string{"5 checkpoints were taken", "the journal grew by 94 KiB a second", "syncPeriodSecs: 60", "a restart"},
	},
	"no checkpoints in MongoDB 8": {
		scene: "replica-set-8.0", change: func(r *recording) { r.set(0.0, syncDelay...) },
		rule: "checkpoint interval", name: "setting_checkpoint", cause: "the interval is 0", saying: []string{"setParameter: 1, syncdelay: 60", "no restart"},
	},
	"checkpoints most of the time": {
		change: func(r *recording) {
			r.set(5, syncPeriod...)
			r.set(5.0, syncDelay...)
			r.set(25_000, enginePath("transaction", "transaction checkpoint total time (msecs)")...)
		},
		rule: "checkpoint interval", name: "setting_checkpoint", cause: "running most of the time",
		saying: []string{"one takes 5 s and begins 5 s after", "runs 50 % of the time", "syncPeriodSecs: 60", "a restart"},
	},
	"the same pages again and again": {
		scene: "replica-set-8.0",
		change: func(r *recording) {
			r.set(10.0, syncDelay...)
			r.set(int64(250<<20), enginePath("block-manager", "bytes written for checkpoint")...)
			r.set(int64(50<<20), enginePath("log", "log bytes written")...)
		},
		rule: "checkpoint interval", name: "setting_checkpoint", cause: "again and again",
		saying: []string{"every 10 s", "20 MiB a second, 5 times what the journal did", "syncdelay: 60", "no restart"},
	},
	"a long interval": {
		scene: "replica-set-7.0", change: func(r *recording) { r.set(900.0, syncDelay...) },
		rule: "checkpoint interval", name: "setting_checkpoint", cause: "recovery from a crash",
		saying: []string{"it is 900 s", "the journal grew by 94 KiB a second", "so up to 82 MiB", "syncdelay: 60"},
	},
	"snappy where zstd saves": {
		change: func(r *recording) { r.documents = buckets(60, rounded); full(r) },
		rule:   "compressor", name: "setting_compressor", cause: "stream readings has snappy, zstd would leave",
		saying: []string{"documents of readings", "snappy makes", "brim move readings", "1.7 times the CPU"},
	},
	"an index that nothing uses": {
		change: func(r *recording) {
			r.set(bson.NewDateTimeFromTime(recordedAt.Add(-72*time.Hour)), "$indexStats readings", "docs", indexAt(r, "count_1"), "accesses", "since")
		},
		rule: "indexes", name: "setting_index", cause: "nothing uses count_1 of stream readings",
		saying: []string{"used 0 times in 3d, since 2026-11-18 20:30", "each append changes count", `db.getCollection("readings").hideIndex("count_1")`, `dropIndex("count_1")`},
	},
	"a hidden index that appends leave alone": {
		change: func(r *recording) {
			at := indexAt(r, "tags.site_1")
			r.set(bson.NewDateTimeFromTime(recordedAt.Add(-72*time.Hour)), "$indexStats readings", "docs", at, "accesses", "since")
			r.set(true, "$indexStats readings", "docs", at, "spec", "hidden")
		},
		rule: "indexes", name: "setting_index", cause: "nothing uses tags.site_1", saying: []string{"appends leave it alone", "it is hidden already"},
	},
	"what no role gives": {
		change: func(r *recording) {
			r.set(bson.D{{Key: "error", Value: bson.D{{Key: "code", Value: int32(59)}, {Key: "message", Value: "no such command"}}}}, "getCmdLineOpts")
		},
		rule: "unseen", name: "unseen_settings", cause: "getCmdLineOpts was not answered", saying: []string{"no such command"},
	},
	"a mongos": {
		change: func(r *recording) { r.set("isdbgrid", "hello", "msg") },
		rule:   "unseen", name: "unseen_settings", cause: "mongos", saying: []string{"for a member of each shard"},
	},
}

// TestEachRuleFindsItsFault, alone: without the rule nothing is found.
func TestEachRuleFindsItsFault(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f.scene == "" {
				f.scene = "replica-set-6.0.5"
			}
			r := scene(t, f.scene)
			f.change(r)
			found := ask(t, r, settingRules, nil)
			require.Len(t, found, 1)
			assert.Equal(t, f.name, found[0].Name)
			assert.Contains(t, found[0].Cause, f.cause)
			all := found[0].Evidence + "\n" + found[0].Action + "\n" + found[0].Cost
			for _, s := range f.saying {
				assert.Contains(t, all, s)
			}
			for _, s := range []string{found[0].Evidence, found[0].Action, found[0].Cost} {
				assert.NotEmpty(t, s)
				assert.NotContains(t, s, "unknown")
				assert.NotContains(t, s, "NaN")
			}
			if f.name == "unseen_settings" {
				assert.Equal(t, Unseen, found[0].Kind)
			} else {
				assert.Equal(t, Setting, found[0].Kind)
			}
			without := slices.DeleteFunc(slices.Clone(settingRules), func(r settingRule) bool { return r.name == f.rule })
			require.Len(t, without, len(settingRules)-1)
			assert.Empty(t, ask(t, r, without, nil))
		})
	}
}

// TestEachRuleHasAFault, so that its removal fails a test.
func TestEachRuleHasAFault(t *testing.T) {
	t.Parallel()
	for _, r := range settingRules {
		if r.name == "readings in an update" { // the daemon's figures, see TestFewReadingsInAnUpdate
			continue
		}
		assert.True(t, slices.ContainsFunc(slices.Collect(maps.Values(faults)), func(f fault) bool { return f.rule == r.name }), r.name)
	}
}

func indexAt(r *recording, name string) int {
	for _, e := range r.answers {
		if e.Key != "$indexStats readings" {
			continue
		}
		for i, d := range e.Value.(bson.D)[0].Value.(bson.A) {
			if d.(bson.D)[0].Value == name {
				return i
			}
		}
	}
	panic("no index " + name)
}

// full makes the recorded collection 6 GiB in files of 2 GiB.
func full(r *recording) {
	stats := []any{"$collStats readings", "docs", 0, "storageStats"}
	for name, v := range map[string]int64{"size": 6 << 30, "count": 100_000, "storageSize": 2 << 30} {
		r.set(v, append(slices.Clone(stats), name)...)
	}
}

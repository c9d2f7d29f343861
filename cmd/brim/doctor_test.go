package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// seenJSON is the part of the doctor's JSON that tests read.
type seenJSON struct {
	Class       string  `json:"class"`
	OverSeconds float64 `json:"over_seconds"`
	URI         string  `json:"mongo_uri"`
	Signals     []struct {
		Name   string   `json:"name"`
		Value  *float64 `json:"value"`
		Class  string   `json:"class"`
		Source string   `json:"source"`
	} `json:"signals"`
	Diagnosis []doctorFinding `json:"diagnosis"`
	Server    struct {
		Version          string   `json:"version"`
		RoundTripSeconds *float64 `json:"round_trip_seconds"`
	} `json:"server"`
}

type doctorFinding struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Cause    string `json:"cause"`
	Evidence string `json:"evidence"`
	Action   string `json:"action"`
	Cost     string `json:"cost"`
}

// doctorFlags sample the tests' MongoDB without asking a daemon.
func doctorFlags(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"doctor", "--mongo-uri", mongodtest.URI(t), "--admin", "127.0.0.1:1"}, more...)
}

func thresholdsFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "thresholds.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestDoctorExitCodeMatchesClass sets thresholds to produce each class. A single sample has no
// rates.
func TestDoctorExitCodeMatchesClass(t *testing.T) {
	t.Parallel()
	const calm = "disk_free: {degrading: 0, bottleneck: 0}\ncache_dirty: {degrading: 100, bottleneck: 100}\ncache_updates: {degrading: 100, bottleneck: 100}\n" +
		"checkpoint_duration: {degrading: 9999, bottleneck: 9999}\nwrite_tickets: {degrading: 0, bottleneck: 0}\nread_tickets: {degrading: 0, bottleneck: 0}\n"
	for name, c := range map[string]struct {
		used string // threshold for the cache's content, which is never zero
		code int
		kind string // of the first finding
	}{
		"healthy":    {"{degrading: 100, bottleneck: 100}", 0, "unseen"},
		"degrading":  {"{degrading: 0, bottleneck: 100}", 10, "slow"},
		"bottleneck": {"{degrading: 0, bottleneck: 0}", 20, "slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := thresholdsFile(t, calm+"cache_used: "+c.used+"\n")
			var got outcome
			var r seenJSON
			for slow := true; slow; { // a slow ping is a separate finding; a busy machine causes some
				got = runBrim(t, nil, doctorFlags(t, "--over", "0", "--output", "json", "--thresholds", file, "--database", "nothing_here")...)
				r = seenJSON{}
				require.NoError(t, json.Unmarshal([]byte(got.stdout), &r), "%v", got.err)
				require.NotNil(t, r.Server.RoundTripSeconds)
				slow = *r.Server.RoundTripSeconds >= 0.05
			}
			assert.Equal(t, c.code, got.code, "%v %s", got.err, got.stdout)
			assert.Empty(t, got.stderr)
			assert.Equal(t, name, r.Class)
			assert.NotEmpty(t, r.Server.Version)
			assert.Zero(t, r.OverSeconds)
			for _, s := range r.Signals {
				switch s.Name {
				case "cache_used":
					assert.Equal(t, name, s.Class)
					assert.Equal(t, file+":7", s.Source)
					assert.NotNil(t, s.Value)
				case "processor", "history_store", "application_evictions":
					assert.Equal(t, "unknown", s.Class, s.Name)
					assert.Nil(t, s.Value, s.Name)
				}
			}
			kinds := make(map[string]bool)
			for i := range r.Diagnosis {
				f := &r.Diagnosis[i]
				kinds[f.Kind] = true
				for _, text := range []string{f.Name, f.Cause, f.Evidence, f.Action, f.Cost} {
					assert.NotEmpty(t, text, f.Name)
				}
			}
			assert.Equal(t, c.kind == "slow", kinds["slow"])
			assert.True(t, kinds["unseen"], "rates are not known yet")
		})
	}
}

// TestDoctorTakesTwoSamples: rates are known, and the text shows them.
func TestDoctorTakesTwoSamples(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, doctorFlags(t, "--over", "1s")...)
	require.Contains(t, []int{0, 10, 20}, got.code, "%v", got.err)
	assert.Regexp(t, `two samples, [\d.]+s apart`, got.stdout)
	assert.Contains(t, got.stdout, mongodtest.URI(t))
	assert.Regexp(t, `History store +[\d,.< ]+ inserts/s`, got.stdout)
	assert.NotContains(t, got.stdout, "\x1b", "no colour where there is no terminal")
	for _, head := range []string{"SIGNAL", "DIAGNOSIS"} {
		assert.Contains(t, got.stdout, "\n"+head)
	}
}

// TestDoctorWatchOutput: each sample is one line as JSON, one block as text.
func TestDoctorWatchOutput(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, doctorFlags(t, "--watch", "--looks", "2", "--interval", "1s", "--output", "json")...)
	require.Contains(t, []int{0, 10, 20}, got.code, "%v", got.err)
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	require.Len(t, lines, 2)
	for i, line := range lines {
		var r seenJSON
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		assert.Equal(t, i == 1, r.OverSeconds >= 1)
		assert.Equal(t, i == 1 && r.Class == "bottleneck", i == 1 && got.code == 20, "the last sample decides the verdict")
	}
	got = runBrim(t, nil, doctorFlags(t, "--watch", "--looks", "2", "--interval", "1s")...)
	assert.Equal(t, 2, strings.Count(got.stdout, "SIGNAL"))
	assert.Equal(t, 1, strings.Count(got.stdout, "IN BETWEEN\nWrite operations "))
}

func TestDoctorFailsWithoutMongoDB(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, "doctor", "--mongo-uri", "mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=100", "--admin", "127.0.0.1:1")
	assert.Equal(t, exitFailed, got.code)
	require.ErrorContains(t, got.err, "sample mongodb://user:")
	assert.NotContains(t, got.err.Error(), "secret")
	assert.Empty(t, got.stdout)
	got = runBrim(t, nil, "doctor", "--admin", "127.0.0.1:1")
	assert.Equal(t, exitFailed, got.code)
	require.ErrorContains(t, got.err, "--mongo-uri")
}

// TestDoctorWithoutPermission checks that the doctor names the missing permission and does not
// report the engine as healthy. Its mongod refuses the doctor's commands.
func TestDoctorWithoutPermission(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "its slow replies are a finding of their own")
	server := mongodtest.Start(t, mongod.Config{})
	admin := mongodtest.DatabaseAt(t, server.URI()).Client().Database("admin")
	refuse := func(commands ...string) {
		require.NoError(t, admin.RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{{Key: "errorCode", Value: 13}, {Key: "failCommands", Value: commands}, {Key: "appName", Value: "brim doctor"}}},
		}).Err())
	}
	refuse("serverStatus", "hostInfo")
	got := runBrim(t, nil, "doctor", "--mongo-uri", server.URI(), "--admin", "127.0.0.1:1", "--over", "0")
	assert.Equal(t, exitFailed, got.code)
	require.ErrorIs(t, got.err, errBlind)
	assert.True(t, strings.HasPrefix(got.stdout, "UNKNOWN  "), got.stdout)
	assert.Contains(t, got.stdout, "DIAGNOSIS\nunknown.")
	assert.Contains(t, got.stdout, `grantRolesToUser(USER, ["clusterMonitor"])`)

	refuse("serverStatus", "dbStats")
	got = runBrim(t, nil, "doctor", "--mongo-uri", server.URI(), "--admin", "127.0.0.1:1")
	assert.Equal(t, exitFailed, got.code)
	assert.ErrorContains(t, got.err, "it requires a user and a password, and --mongo-uri has none")
}

func TestDoctorRefusesInvalidFlags(t *testing.T) {
	t.Parallel()
	bad := thresholdsFile(t, "disk_bussy: {degrading: 1, bottleneck: 2}\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--watch", "--over", "5s"}, "cannot be used together"},
		{[]string{"--looks", "3"}, "belong to --watch"},
		{[]string{"--interval", "3s"}, "belong to --watch"},
		{[]string{"--over", "1ms"}, "1s to 1d"},
		{[]string{"--thresholds", bad}, bad + ":1: unknown key disk_bussy"},
		{[]string{"--disk", bad}, "is not a folder"},
		{[]string{"now"}, "now"},
	} {
		got := runBrim(t, nil, doctorFlags(t, c.args...)...)
		assert.Equal(t, exitUsage, got.code, "%v", c.args)
		require.ErrorContains(t, got.err, c.want)
		assert.Empty(t, got.stdout)
	}
	got := runBrim(t, nil, "serve", "--thresholds", bad)
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, "disk_bussy")
}

// made returns the report of two samples of a busy server.
func made(t *testing.T, class doctor.Class) *doctor.Report {
	t.Helper()
	client, err := mongo.Connect() // does not connect yet
	require.NoError(t, err)
	monitor, err := doctor.New(doctor.Config{Database: client.Database("brim")})
	require.NoError(t, err)
	require.NoError(t, client.Disconnect(t.Context()))
	signals := monitor.Signals()
	for i := range signals {
		signals[i].Value, signals[i].Class = 1, doctor.Healthy
	}
	signals[0].Value, signals[0].Class = 92, class
	return &doctor.Report{Class: class, URI: "mongodb://db1", Seen: doctor.Seen{
		At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), OverSeconds: 10,
		Server: doctor.Server{Answered: true, Version: "7.0.14", Topology: "replica_set", Processors: 8, CacheBytes: 4 << 30},
		Disk:   doctor.Disk{Device: "nvme0n1", Kind: "nvme", Path: "/data/db", Size: 1 << 40, Free: 1 << 39}, Signals: signals,
		Rates: []doctor.Rate{{Name: "writes", Title: "Write operations", Value: 1240, Unit: "ops/s"}, {Name: "reads", Value: math.NaN(), Unit: "ops/s"}},
	},
		Diagnosis: []doctor.Finding{
			{Name: "disk_iops", Kind: doctor.Slow, Class: class, Cause: "IOPS-bound: much", Evidence: "busy 92 %", Action: "merge", Cost: "a restart"},
			{Name: "disk_iops", Kind: doctor.Slow, Class: class, Cause: "IOPS-bound: much", Evidence: "busy 92 %", Action: "buy", Cost: "money"},
			{Name: "setting_window", Kind: doctor.Setting, Class: doctor.Degrading, Cause: "history window", Evidence: "300 s", Action: "set it to 0", Cost: "none"},
			{Name: "unseen_rate", Kind: doctor.Unseen, Class: doctor.Unknown, Cause: "not seen: tickets", Evidence: "it is a rate", Action: "look twice", Cost: "time"},
		},
	}
}

func TestDoctorText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, newDoctorText(&b, nil).report(made(t, doctor.Bottleneck)))
	head, _, _ := strings.Cut(b.String(), "\nSIGNAL")
	assert.Equal(t, `BOTTLENECK  two samples, 10s apart, 2026-11-21 12:00:00
MongoDB  7.0.14 replica set, mongodb://db1, 8 CPUs, cache 4.0 GiB
Disk     nvme0n1, NVMe, 512 GiB of 1.0 TiB free, /data/db
`, head)
	assert.Contains(t, b.String(), `
DIAGNOSIS
bottleneck  IOPS-bound: much
  seen  busy 92 %
  do 1  merge
  cost  a restart
  do 2  buy
  cost  money

SETTINGS
history window
  seen  300 s
  do 1  set it to 0
  cost  none

NOT MEASURED
not seen: tickets
  seen  it is a rate
  do 1  look twice
  cost  time
`)
	assert.Regexp(t, `Disk busy +92 % +bottleneck +from 50 % +over 80 % +published\n`, b.String())
	assert.Contains(t, (&doctor.Server{Answered: true, Version: "7.0.14", Secondary: true}).Describe(""), "a member that accepts no writes")

	b.Reset()
	r := made(t, doctor.Healthy)
	r.Diagnosis, r.Note = nil, "cache dirty is normal"
	require.NoError(t, newDoctorText(&b, nil).report(r))
	assert.True(t, strings.HasSuffix(b.String(), "\nDIAGNOSIS\nnothing wrong.\ncache dirty is normal.\n"), b.String())

	b.Reset()
	r.Diagnosis = []doctor.Finding{{Name: "setting_topology", Kind: doctor.Setting, Cause: "topology: members are away or behind"}}
	require.NoError(t, newDoctorText(&b, nil).report(r))
	assert.Contains(t, b.String(), "\nDIAGNOSIS\nnothing wrong in the storage engine and its disk; the settings below may still cost.\n")
}

// TestDoctorTextFitsTheTerminal: prose wraps, and the table is truncated.
func TestDoctorTextFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{60, 80, 120, 200} {
		var b bytes.Buffer
		text := newDoctorText(&b, nil)
		text.columns, text.width = columns, min(columns, 140)
		r := made(t, doctor.Degrading)
		r.Diagnosis[0].Evidence = strings.Repeat("busy as ever ", 30)
		require.NoError(t, text.report(r))
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), columns, line)
		}
		assert.Regexp(t, `Disk busy +92 % +degrading`, b.String())
	}
}

func TestDoctorColors(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	text := newDoctorText(&b, nil)
	text.colour = true
	require.NoError(t, text.report(made(t, doctor.Bottleneck)))
	assert.Contains(t, b.String(), "\x1b[1;31mBOTTLENECK\x1b[0m")
	assert.Regexp(t, `\x1b\[1;31mDisk busy .*published\x1b\[0m\n`, b.String())
	assert.NotRegexp(t, `\x1b\[[\d;]+mCache used`, b.String())
}

// TestDoctorWatchShowsChanges since the previous sample, and settings once.
func TestDoctorWatchShowsChanges(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	watch := newDoctorText(&b, nil)
	before, now := made(t, doctor.Healthy), made(t, doctor.Bottleneck)
	before.Signals[0].Value, before.Signals[1].Value, before.OverSeconds = 80.5, math.NaN(), 0
	require.NoError(t, watch.watch(before, nil))
	assert.Contains(t, b.String(), "set it to 0")
	assert.NotContains(t, b.String(), "IN BETWEEN")
	assert.NotContains(t, b.String(), "look twice", "the watch does")
	b.Reset()
	require.NoError(t, watch.watch(now, before))
	assert.Regexp(t, `Disk busy +92 % +\+11.5 +bottleneck`, b.String())
	assert.Regexp(t, `Disk latency +1 ms +healthy`, b.String())
	assert.Regexp(t, `Cache used +1 % += +healthy`, b.String())
	assert.Contains(t, b.String(), "IN BETWEEN\nWrite operations 1,240 ops/s\n\n")
	assert.NotContains(t, b.String(), "set it to 0")

	b.Reset()
	gone := made(t, doctor.Unknown)
	gone.Server.Answered = false
	require.NoError(t, watch.watch(gone, now))
	assert.Contains(t, b.String(), "MongoDB  does not answer, mongodb://db1\n")

	b.Reset()
	watch.terminal = true
	require.NoError(t, watch.watch(now, before))
	assert.True(t, strings.HasPrefix(b.String(), "\x1b[H\x1b[2J"))
	assert.Contains(t, b.String(), "set it to 0", "the screen shows all")
}

// TestDaemonAndDoctorAgree: metrics, live page and command apply the same thresholds, from the
// configuration, to the same signals.
func TestDaemonAndDoctorAgree(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "its slow replies are a finding of their own")
	file := thresholdsFile(t, "cache_used: {degrading: 0, bottleneck: 0}\n")
	config := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte("thresholds: "+file+"\n"), 0o600))
	b := startBrim(t, append(onShared(t, mongodtest.Database(t)), "--config", config, "--server-status-interval", "10m")...).awaitStorage() // one sample: from the second on the server is known to be idle
	b.eventually("a sample of MongoDB", func() bool {
		_, metrics := b.admin(http.MethodGet, "/metrics")
		return strings.Contains(metrics, "brim_storage_health{signal=\"cache_used\"} 2\n")
	})
	b.eventually("the finding on the page", func() bool {
		_, page := b.admin(http.MethodGet, "/console")
		return strings.Contains(page, "cache-bound: ") && strings.Contains(page, `id="do-cache"`)
	})

	got := runBrim(t, nil, "doctor", "--over", "0", "--config", config, "--admin", b.Admin, "--output", "json")
	assert.Equal(t, exitBottleneck, got.code, "%v", got.err)
	var r seenJSON
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	assert.Equal(t, "bottleneck", r.Class)
	require.NotEmpty(t, r.Diagnosis)
	assert.Equal(t, "slow", r.Diagnosis[0].Kind, "what is slow comes first")
	assert.True(t, slices.ContainsFunc(r.Diagnosis, func(f doctorFinding) bool { return strings.HasPrefix(f.Cause, "cache-bound") }), r.Diagnosis)
}

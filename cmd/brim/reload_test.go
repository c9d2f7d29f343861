package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// A filed daemon has a configuration file that tests rewrite.
type filed struct {
	*brimProcess
	path string
	db   *mongo.Database
}

// startFiled starts a daemon with this text in its file, in addition to the MongoDB's location.
func startFiled(t *testing.T, text string) filed {
	t.Helper()
	db := mongodtest.Database(t)
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	b := startBrim(t, append(onShared(t, db), "--config", path)...).awaitStorage()
	return filed{b, path, db}
}

// reload rewrites the file, sends SIGHUP, and returns the outcome.
func (f filed) reload(text string) daemon.ConfigStatus {
	f.t.Helper()
	before := f.reloads()
	require.NoError(f.t, os.WriteFile(f.path, []byte(text), 0o600))
	f.signal(syscall.SIGHUP)
	f.eventually("the reload", func() bool { return f.reloads() > before })
	return *f.status().Config
}

// reloads counts all outcomes.
func (f filed) reloads() (n float64) {
	f.t.Helper()
	_, text := f.admin(http.MethodGet, "/metrics")
	for _, outcome := range []string{"applied", "partly", "refused"} {
		_, value, found := strings.Cut(text, fmt.Sprintf("\nbrim_config_reloads_total{outcome=%q} ", outcome))
		require.True(f.t, found, outcome)
		value, _, _ = strings.Cut(value, "\n")
		count, err := strconv.ParseFloat(value, 64)
		require.NoError(f.t, err)
		n += count
	}
	return n
}

// reasons returns the reasons by setting.
func reasons(c daemon.ConfigStatus) map[string]string {
	out := make(map[string]string)
	for _, d := range c.Pending {
		out[d.Setting] = d.Why
	}
	return out
}

// refused sends a reading and returns its refusal code, empty if it is accepted.
func (f filed) refused(path string, age time.Duration, fields string) string {
	f.t.Helper()
	_, body := f.post(path, fmt.Sprintf(`{"sensorId":"s","ts":%d,"fields":%s}`, time.Now().Add(-age).UnixMilli(), fields))
	var answer struct {
		Errors []struct{ Code string }
	}
	require.NoError(f.t, json.Unmarshal([]byte(body), &answer), body)
	if len(answer.Errors) == 0 {
		return ""
	}
	return answer.Errors[0].Code
}

// TestReloadAppliesStreamSettings: every setting that a running daemon accepts, in one run.
func TestReloadAppliesStreamSettings(t *testing.T) {
	t.Parallel()
	f := startFiled(t, "retention: 1h\nstreams:\n  readings:\n  vib: {storage: timeseries}\n")
	require.Equal(t, "ts_expired", f.refused("/v1/readings", 2*time.Hour, `{"t":1}`))
	require.Equal(t, daemon.ConfigStatus{File: f.path, LoadedAt: f.status().Config.LoadedAt, Outcome: "applied", Pending: []daemon.Difference{}}, *f.status().Config)

	got := f.reload(`
log-level: debug
stop-timeout: 20s
retention: 1d
bucket-max-readings: 2
bucket-max-bytes: 128KiB
max-readings-per-update: 1
flush-max: 2s
flush-budget: 0%
write-concern: 1
write-journal: off
fields: [t]
silent-after: 5m
streams:
  readings: {other-fields: drop, view: off}
  vib: {storage: timeseries}
`)
	assert.Empty(t, got.Pending)
	assert.Equal(t, "applied", got.Outcome)
	assert.Empty(t, f.refused("/v1/readings", 2*time.Hour, `{"t":1,"x":2}`), "the retention is longer, and x is dropped")
	assert.Equal(t, "field_not_allowed", f.refused("/v1/streams/vib/readings", 0, `{"t":1,"x":2}`))
	for range 4 {
		require.Empty(t, f.refused("/v1/readings", 3*time.Hour, `{"t":1}`))
	}
	code, _ := f.admin(http.MethodPost, "/flush?timeout=60s")
	require.Equal(t, http.StatusOK, code)
	full, err := f.db.Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "count", Value: 2}})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, full, int64(1), "the cap of a part is lower")
	for _, s := range f.status().Streams {
		assert.Equal(t, "1, not journaled", s.WriteConcern)
		assert.EqualValues(t, 86400, s.RetentionSeconds)
		assert.EqualValues(t, 300, s.SilentAfterSeconds)
		assert.InDelta(t, 2, s.FlushMaxSeconds, 0)
		assert.Zero(t, s.FlushBudgetPercent)
		assert.Empty(t, s.View)
	}
	assert.Equal(t, 24*time.Hour+5*time.Minute, expiryOf(t, f.db, "readings"))
	info, err := store.Collection{Database: f.db, Name: "vib"}.Lookup(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 86400, info.Options.Lookup("expireAfterSeconds").AsInt64())
	info, err = store.Collection{Database: f.db, Name: "readings.flat"}.Lookup(t.Context())
	require.NoError(t, err)
	assert.Nil(t, info, "view: off")

	got = f.reload("retention: 60m\nstreams:\n  readings:\n  vib: {storage: timeseries}\n")
	assert.Equal(t, "applied", got.Outcome)
	assert.Equal(t, "ts_expired", f.refused("/v1/readings", 2*time.Hour, `{"t":1}`))
	assert.Empty(t, f.refused("/v1/readings", 0, `{"x":2}`))
	assert.Equal(t, time.Hour+5*time.Minute, expiryOf(t, f.db, "readings"))
	assert.Equal(t, 0, f.stop())
}

// TestReloadAppliesLimits: the daemon's own, and how long a sensor may be silent.
func TestReloadAppliesLimits(t *testing.T) {
	t.Parallel()
	f := startFiled(t, "quota-readings: 1000\nstreams:\n  readings:\n")
	require.Equal(t, "ts_out_of_range", f.refused("/v1/readings", -time.Hour, `{"t":1}`))
	require.Empty(t, f.refused("/v1/readings", 0, `{"t":1}`))
	f.awaitSensors(0, 0)

	ours := filepath.Join(filepath.Dir(f.path), "ours.yaml")
	require.NoError(t, os.WriteFile(ours, []byte("disk_busy: {degrading: 60, bottleneck: 90}\n"), 0o600))
	text := "max-future: 2h\nquota-readings: 0.001\nthresholds: " + ours + "\nstreams:\n  readings: {silent-after: 1s}\n"
	got := f.reload(text)
	assert.Equal(t, "applied", got.Outcome)
	assert.Empty(t, got.Pending)
	assert.Empty(t, f.refused("/v1/readings", -time.Hour, `{"t":1}`))
	assert.Empty(t, f.refused("/v1/readings", 0, `{"t":1}`), "the little that came in between lets one more pass")
	code, answer := f.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusTooManyRequests, code, answer)
	f.awaitSensors(1, 1)

	require.NoError(t, os.WriteFile(ours, []byte("disk_busy: {degrading: 90, bottleneck: 60}\n"), 0o600))
	got = f.reload(text)
	assert.Equal(t, "refused", got.Outcome, "a file of thresholds that makes no sense is found out")
	assert.Contains(t, got.Reason, "ours.yaml:1")
	got = f.reload("streams:\n  readings: {silent-after: 0}\n")
	assert.Equal(t, "applied", got.Outcome)
	assert.Equal(t, "ts_out_of_range", f.refused("/v1/readings", -time.Hour, `{"t":1}`))
	f.awaitSensors(0, 0)
	assert.Equal(t, 0, f.stop())
}

func expiryOf(t *testing.T, db *mongo.Database, name string) time.Duration {
	t.Helper()
	after, _, err := store.Collection{Database: db, Name: name}.Expiry(t.Context())
	require.NoError(t, err)
	return after
}

// TestReloadNamesSettingsThatNeedARestart: one row per kind of change.
func TestReloadNamesSettingsThatNeedARestart(t *testing.T) {
	t.Parallel()
	f := startFiled(t, "streams:\n  gone:\n  readings:\n")
	got := f.reload(`
lanes: 8
quota-readings: 5
streams:
  readings: {granularity: 1m, compressor: zstd, write-concern: 2, retention: 1h}
  more:
`)
	assert.Equal(t, "partly", got.Outcome)
	why := reasons(got)
	for setting, want := range map[string]string{
		"lanes": "takes a restart", "quota-readings": "without an access file and without a quota", "streams.readings.granularity": "takes a restart",
		"streams.more": "takes a restart", "streams.gone": "its collection is left unchanged",
		"streams.readings.compressor":    "takes a restart",
		"streams.readings.write-concern": "allowed: majority and 1 to 1",
	} {
		assert.Contains(t, why[setting], want, setting)
		delete(why, setting)
	}
	assert.Empty(t, why)
	assert.Equal(t, "ts_expired", f.refused("/v1/readings", 2*time.Hour, `{"t":1}`), "the retention is in force")
	line := f.awaitLog("setting is not in force")
	assert.NotEmpty(t, line["setting"])
	assert.NotEmpty(t, line["why"])

	got = f.reload("streams:\n  gone:\n  readings: {storage: timeseries}\n")
	assert.Equal(t, map[string]string{"streams.readings.storage": "takes a restart"}, reasons(got))
	got = f.reload("streams:\n  gone:\n  readings:\n")
	assert.Equal(t, "applied", got.Outcome, "what was pending is not wanted any more")
	assert.Empty(t, got.Pending)
}

// TestReloadReportsACollectionThatCannotChange, because it cannot hold buckets.
func TestReloadReportsACollectionThatCannotChange(t *testing.T) {
	t.Parallel()
	f := startFiled(t, "retention: 1h\nstreams:\n  readings:\n")
	require.NoError(t, f.db.Collection("readings").Drop(t.Context()))
	require.NoError(t, f.db.CreateCollection(t.Context(), "readings", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20)))
	got := f.reload("retention: 72h\nstreams:\n  readings:\n")
	assert.Equal(t, "partly", got.Outcome)
	assert.Contains(t, reasons(got)["streams.readings"], "capped")
	assert.Equal(t, "ts_expired", f.refused("/v1/readings", 2*time.Hour, `{"t":1}`), "what MongoDB would not keep is not taken")
	got = f.reload("retention: 72h\nstreams:\n  readings: {write-journal: off}\n")
	assert.Contains(t, reasons(got), "streams.readings", "it stays until it is mended")
	assert.Equal(t, 0, f.stop())
}

func TestInvalidFileIsNotReloaded(t *testing.T) {
	t.Parallel()
	f := startFiled(t, "retention: 1h\n")
	got := f.reload("retention: 1d\nlog-level: debug\nstreams:\n  readings: {granularity: 7m}\nmistake: 1\n")
	assert.Equal(t, "refused", got.Outcome)
	assert.Contains(t, got.Reason, "unknown key mistake")
	assert.Contains(t, got.Reason, "brim.yaml:4")
	assert.Equal(t, "ts_expired", f.refused("/v1/readings", 2*time.Hour, `{"t":1}`))
	assert.Contains(t, fmt.Sprint(f.awaitLog("the configuration is invalid; nothing was changed")["err"]), "brim.yaml")
	require.NoError(t, os.Remove(f.path))
	before := f.reloads()
	f.signal(syscall.SIGHUP)
	f.eventually("the reload", func() bool { return f.reloads() > before })
	assert.Equal(t, "refused", f.status().Config.Outcome)
	got = f.reload("retention: 1d\n")
	assert.Equal(t, "applied", got.Outcome)
	assert.Empty(t, got.Reason)
}

// TestHangupWithoutAFileEndsTheDaemon cleanly: there is nothing to reload.
func TestHangupWithoutAFileEndsTheDaemon(t *testing.T) {
	t.Parallel()
	b := startBrim(t, "--storage", "memory", "--data-dir", t.TempDir()).awaitReady()
	b.signal(syscall.SIGHUP)
	assert.Equal(t, "hangup", b.awaitLog("stopping")["signal"])
	assert.Equal(t, 0, b.wait())
}

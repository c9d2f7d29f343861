package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// startMigrate runs `brim migrate` as a process of its own.
func startMigrate(t *testing.T, args ...string) *brimtest.Process {
	t.Helper()
	cmd := exec.Command(brimBinary(t), append([]string{"migrate"}, args...)...)
	cmd.Env = foreignEnv()
	return brimtest.Start(t, cmd, syscall.SIGKILL)
}

// TestStorageThereAndBack goes the operator's way with an embedded MongoDB, which
// ends and comes back with its daemon while the old readings are filled in.
func TestStorageThereAndBack(t *testing.T) {
	t.Parallel()
	flags := embedded(t)
	b := startBrim(t, flags...).awaitStorage()
	var body strings.Builder
	for i := range 400 {
		_, _ = fmt.Fprintf(&body, `{"sensorId":"s-%d","ts":%d,"fields":{"n":%d,"v":%d.5,"on":true,"s":"x"},"tags":{"site":"north"}}`+"\n", i%5, 1_760_000_000_000+i*1000, i, i)
	}
	code, answer := b.post("/v1/readings", body.String())
	require.Equal(t, http.StatusOK, code, answer)
	want := queried(t, b, "s-3")
	require.Contains(t, want, `"n":398`)

	m := startMigrate(t, "--storage", "timeseries", "--admin", b.Admin, "--rate", "32KiB")
	m.Await("the switch", func() bool { return strings.Contains(m.Logged(), "Restart every daemon now") })
	assert.Equal(t, "the daemon is restarted", heldUntil(b))
	code, answer = b.post("/v1/readings", `{"sensorId":"s-3","fields":{"n":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code, answer)
	assert.Equal(t, exitDone, b.stop())
	b = startBrim(t, append(flags, "--storage", "timeseries")...).awaitStorage()
	code, answer = b.post("/v1/readings", `{"sensorId":"new","fields":{"n":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	require.Equal(t, exitDone, m.Wait(), m.Logged())
	assert.Contains(t, m.Logged(), "400 were compared, 0 had to be corrected")
	assert.JSONEq(t, want, queried(t, b, "s-3"))

	m = startMigrate(t, "--storage", "bucket", "--admin", b.Admin)
	require.Equal(t, exitFailed, m.Wait())
	assert.Contains(t, m.Logged(), "--drop-old", "it says what has to be done first")
	m = startMigrate(t, "--storage", "timeseries", "--admin", b.Admin, "--drop-old")
	require.Equal(t, exitDone, m.Wait(), m.Logged())
	m = startMigrate(t, "--storage", "bucket", "--admin", b.Admin)
	require.Equal(t, exitDone, m.Wait(), m.Logged())
	assert.Contains(t, m.Logged(), "401 readings")
	assert.Empty(t, heldUntil(b))
	m = startMigrate(t, "--storage", "bucket", "--admin", b.Admin, "--drop-old", "--output", "json")
	require.Equal(t, exitDone, m.Wait(), m.Logged())
	assert.Contains(t, m.Logged(), `"switched": true`)
	assert.Equal(t, exitDone, b.stop())
	b = startBrim(t, flags...).awaitStorage()
	assert.JSONEq(t, want, queried(t, b, "s-3"))
}

// queried are a sensor's readings as a client sees them.
func queried(t *testing.T, b *brimProcess, sensor string) string {
	t.Helper()
	code, answer, err := brimtest.Ask(http.MethodGet, "http://"+b.HTTP+"/v1/sensors/"+sensor+"/readings?from=0&limit=100000", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)
	return answer
}

func TestStorageChangeWantsToKnowTheDaemon(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	makeBuckets(t, db)
	flags := []string{"--storage", "timeseries", "--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--admin", "127.0.0.1:1"}
	m := startMigrate(t, flags...)
	assert.Equal(t, exitFailed, m.Wait())
	assert.Contains(t, m.Logged(), "--no-daemon")
	m = startMigrate(t, append(flags, "--abort")...)
	assert.Equal(t, exitFailed, m.Wait(), "daemons would have to be released")
	m = startMigrate(t, append(flags, "--abort", "--no-daemon")...)
	assert.Equal(t, exitDone, m.Wait(), m.Logged())
	m = startMigrate(t, append(flags, "--no-daemon")...)
	assert.Equal(t, exitDone, m.Wait(), m.Logged())
	m = startMigrate(t, "--storage", "bucket", "--abort", "--drop-old")
	assert.Equal(t, exitUsage, m.Wait())
}

// makeBuckets makes the default stream's collection, with nothing in it.
func makeBuckets(t *testing.T, db *mongo.Database) {
	t.Helper()
	require.NoError(t, db.CreateCollection(t.Context(), "readings"))
}

func TestAdminMayBeRepeated(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("migrate", pflag.ContinueOnError)
	siteFlags(flags)
	f := addStorageFlags(flags)
	require.NoError(t, flags.Parse([]string{"--admin", "a:1", "--admin", "http://b:2/", "--admin=c:3"}))
	assert.Equal(t, []string{"a:1", "b:2", "c:3"}, f.admins)
	assert.Equal(t, "a:1", flags.Lookup("admin").Value.String(), "the first tells about the site")
	require.Error(t, flags.Parse([]string{"--admin", "nowhere"}))
}

func TestCapsOfAStreamThatHasNone(t *testing.T) {
	t.Parallel()
	c := &daemon.Settings{}
	for _, s := range c.All() {
		switch s.Name {
		case "bucket-max-readings":
			assert.Equal(t, fmt.Sprint(usualMaxReadings), s.Initial)
		case "bucket-max-bytes":
			assert.Equal(t, config.FormatSize(int64(usualMaxBytes)), s.Initial)
		}
	}
}

func TestHolderKnowsWhoseDaemonAnswers(t *testing.T) {
	t.Parallel()
	h := &daemonHolder{site: &site{uri: "mongodb://u:p@b:2,a:1/?replicaSet=x"}, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, h.sameMongoDB("d:1", "mongodb://u:***@a:1,B:2/"))
	err := h.sameMongoDB("d:1", "mongodb://127.0.0.1:27017/")
	require.ErrorContains(t, err, "--admin")
	assert.ErrorContains(t, err, "mongodb://u:***@b:2,a:1/")
	h.named = true
	assert.NoError(t, h.sameMongoDB("d:1", "mongodb://127.0.0.1:27017/"))
}

// TestStorageChangeHoldsNobodyElsesDaemon finds a daemon at the usual address that
// stores elsewhere.
func TestStorageChangeHoldsNobodyElsesDaemon(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	makeBuckets(t, db)
	b := startBrim(t, "--mongo-uri", "mongodb://127.0.0.1:1", "--database", db.Name(), "--data-dir", t.TempDir()).awaitReady()
	cmd := exec.Command(brimBinary(t), "migrate", "--storage", "timeseries", "--mongo-uri", mongodtest.URI(t), "--database", db.Name())
	cmd.Env = append(foreignEnv(), "BRIM_ADMIN_ADDR="+b.Admin)
	m := brimtest.Start(t, cmd, syscall.SIGKILL)
	assert.Equal(t, exitFailed, m.Wait())
	assert.Contains(t, m.Logged(), "stores in mongodb://")
	assert.Empty(t, heldUntil(b))
}

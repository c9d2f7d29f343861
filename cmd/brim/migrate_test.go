package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMigrateToAnotherGranularityAsAnOperatorDoes goes through what the help of
// the command tells.
func TestMigrateToAnotherGranularityAsAnOperatorDoes(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	flags := []string{"--data-dir", t.TempDir(), "--mongo-uri", uri, "--database", db.Name()}
	start := func(granularity string) *brimProcess {
		return startBrim(t, append(flags, "--granularity", granularity)...).awaitStorage()
	}
	sent := 0
	post := func(b *brimProcess) {
		t.Helper()
		var body strings.Builder
		for range 40 {
			fmt.Fprintf(&body, `{"sensorId":"s-1","ts":%d,"fields":{"n":%d}}`+"\n", 1_700_000_000_000+int64(sent)*10_000, sent)
			sent++
		}
		code, answer := b.post("/v1/readings", body.String())
		require.Equal(t, http.StatusOK, code, answer)
		code, answer = b.admin(http.MethodPost, "/flush?timeout=60s")
		require.Equal(t, http.StatusOK, code, answer)
	}
	allThere := func(b *brimProcess) {
		t.Helper()
		got := runBrim(t, nil, "query", "s-1", "--limit", "0", "--output", "ndjson", "--url", "http://"+b.HTTP)
		require.Equal(t, exitDone, got.code, got.err)
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		require.Len(t, lines, sent)
		for i, line := range lines {
			require.Contains(t, line, fmt.Sprintf(`"n":%d}`, i))
		}
	}
	migrate := func(b *brimProcess, more ...string) outcome {
		t.Helper()
		return runBrim(t, nil, append([]string{"migrate", "--granularity", "5m", "--admin", b.Admin}, more...)...)
	}

	old := start("1m")
	post(old)
	first := migrate(old, "--output", "json")
	require.Equal(t, exitDone, first.code, first.err)
	var report struct {
		Stream string
		Result struct{ To, Kept string }
	}
	require.NoError(t, json.Unmarshal([]byte(first.stdout), &report))
	assert.Equal(t, "5m", report.Result.To)
	assert.Equal(t, "readings.brim_old", report.Result.Kept)
	allThere(old)
	post(old)
	allThere(old)
	refused := migrate(old, "--drop-old")
	assert.Equal(t, exitFailed, refused.code)
	require.ErrorContains(t, refused.err, "still writes stream readings with a granularity of 1m")
	require.Zero(t, old.stop())

	fresh := start("5m")
	post(fresh)
	allThere(fresh)
	second := migrate(fresh)
	require.Equal(t, exitDone, second.code, second.err)
	assert.Contains(t, second.stdout, "Stream readings has a granularity of 5m")
	assert.NotContains(t, second.stdout, "Restart each daemon")
	third := migrate(fresh)
	assert.Contains(t, third.stdout, "nothing was written with another granularity since")
	lost := migrate(fresh, "--drop-old", "--admin", "127.0.0.1:1")
	assert.Equal(t, exitFailed, lost.code)
	require.ErrorContains(t, lost.err, "no daemon answers at http://127.0.0.1:1")
	require.ErrorContains(t, lost.err, "say --no-daemon")
	denied := migrate(fresh, "--drop-old", "--no-daemon")
	assert.Equal(t, exitUsage, denied.code)
	require.ErrorContains(t, denied.err, "the daemon at "+fresh.Admin+" writes stream readings")
	dropped := migrate(fresh, "--drop-old")
	require.Equal(t, exitDone, dropped.code, dropped.err)
	assert.Contains(t, dropped.stdout, "Dropped collection readings.brim_old")
	assert.NotContains(t, dropped.stdout, "still hold readings")
	allThere(fresh)
	last := migrate(fresh)
	require.Equal(t, exitDone, last.code, last.err)
	assert.Contains(t, last.stdout, "there is nothing to do")
}

func TestMigrateRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	for name, test := range map[string]struct {
		flags []string
		says  string
	}{
		"nothing at all":     {nil, "Give --granularity, like 1h, or --storage"},
		"an exchange":        {[]string{"--storage", "timeseries", "--swap", "renames"}, "--swap: a change of storage"},
		"no daemon is asked": {[]string{"--granularity", "5m", "--no-daemon"}, "--no-daemon: with --granularity"},
		"a rate of nothing":  {[]string{"--granularity", "5m", "--drop-old", "--rate", "1MiB"}, "--rate: it says how documents are moved"},
		"a way back":         {[]string{"--storage", "bucket", "--abort", "--bucket-max-bytes", "64KiB"}, "--bucket-max-bytes: it says"},
		"no granularity":     {[]string{"--granularity", "7m"}, "must divide an hour"},
		"no duration":        {[]string{"--granularity", "long"}, "is not a duration; write a number with a unit"},
		"both ends":          {[]string{"--granularity", "5m", "--abort", "--drop-old"}, "take one of them"},
		"a storage unknown":  {[]string{"--storage", "disk"}, "bucket"},
		"parts of nothing":   {[]string{"--granularity", "5m", "--bucket-max-readings", "0"}, "is not a whole number from 1 to 1000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runBrim(t, nil, append([]string{"migrate", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1"}, test.flags...)...)
			require.ErrorContains(t, got.err, test.says)
			assert.Equal(t, exitUsage, got.code)
		})
	}
}

func TestMigrateAbortsOnlyWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	for _, to := range [][]string{nil, {"--granularity", "5m"}} {
		got := runBrim(t, nil, append([]string{"migrate", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1", "--abort"}, to...)...)
		require.ErrorContains(t, got.err, "nothing is under way")
		assert.Equal(t, exitFailed, got.code)
	}
}

// TestMigrateEndsWhatItFinds ends a migration without being told which one it was.
func TestMigrateEndsWhatItFinds(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	_, err := db.Collection("machines").InsertOne(t.Context(), oneBucket(0, 60))
	require.NoError(t, err)
	run := func(command string, more ...string) outcome {
		t.Helper()
		return runBrim(t, nil, append([]string{command, "--stream", "machines", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1"}, more...)...)
	}
	done := func(says, command string, more ...string) {
		t.Helper()
		got := run(command, more...)
		require.Equal(t, exitDone, got.code, got.err)
		assert.Contains(t, got.stdout, says)
	}
	done("has a granularity of 5m", "migrate", "--granularity", "5m")
	past := run("migrate", "--abort")
	require.ErrorContains(t, past.err, "past the point")
	done("Dropped collection machines.brim_old", "migrate", "--drop-old", "--no-daemon")
	nothing := run("migrate", "--drop-old", "--no-daemon")
	require.ErrorContains(t, nothing.err, "nothing is under way")

	// The state is as a killed process leaves it.
	state := func(kind, to, phase string) {
		t.Helper()
		_, err := db.Collection("brim_maintenance").ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "machines"}},
			bson.D{{Key: "kind", Value: kind}, {Key: "to", Value: to}, {Key: "phase", Value: phase}, {Key: "beat", Value: int64(7)}, {Key: "owner", Value: bson.D{{Key: "id", Value: ""}}}}, options.Replace().SetUpsert(true))
		require.NoError(t, err)
	}
	state("migrate", "bucket", "copy")
	early := run("migrate", "--drop-old", "--no-daemon")
	require.ErrorContains(t, early.err, "in phase copy")
	require.ErrorContains(t, early.err, "brim migrate --storage bucket --drop-old --stream machines")
	state("migrate", "paper", "copy")
	unknown := run("migrate", "--abort")
	require.ErrorContains(t, unknown.err, "does not know")
	state("recompress", "zstd", "copy")
	other := run("migrate", "--abort")
	require.ErrorContains(t, other.err, "brim recompress --stream machines --abort")
	state("migrate", "timeseries", "start")
	done("is given up", "migrate", "--abort", "--no-daemon")
	state("migrate", "1h", "start")
	done("is given up", "migrate", "--abort")
}

// oneBucket is one with a reading, seconds after 1970 and of so many seconds.
func oneBucket(start int64, granularity int32) bson.D {
	at := bson.DateTime(start * 1000)
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "s", Value: "s-1"}, {Key: "b", Value: at}, {Key: "g", Value: granularity}, {Key: "p", Value: int32(0)}}},
		{Key: "bucketStart", Value: at}, {Key: "bytes", Value: int32(20)}, {Key: "count", Value: int32(1)},
		{Key: "measurements", Value: bson.A{bson.D{{Key: "ts", Value: at}, {Key: "fields", Value: bson.D{{Key: "n", Value: int32(1)}}}}}},
		{Key: "sensorId", Value: "s-1"}, {Key: "w", Value: bson.D{{Key: "session", Value: int64(1)}}},
	}
}

// TestMigratePrintsCommandsThatCanBePasted pastes them into a shell.
func TestMigratePrintsCommandsThatCanBePasted(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	_, err := db.Collection("machines").InsertOne(t.Context(), oneBucket(0, 60))
	require.NoError(t, err)
	first := runBrim(t, nil, "migrate", "--granularity", "5m", "--stream", "machines", "--mongo-uri", uri, "--database", db.Name(),
		"--admin", "127.0.0.1:1", "--admin", "127.0.0.1:2", "--rate", "1MiB", "--bucket-max-readings", "77")
	require.Equal(t, exitDone, first.code, first.err)
	commands := printedCommands(first.stdout)
	require.Len(t, commands, 2, first.stdout)
	assert.Contains(t, commands[0], "--rate 1MiB --bucket-max-readings 77 --admin 127.0.0.1:1 --admin 127.0.0.1:2")
	assert.Contains(t, paste(t, commands[0]), "Stream machines was migrated to 5m before")
	assert.Contains(t, paste(t, commands[1]+" --no-daemon"), "Dropped collection machines.brim_old")
}

func TestStoragePrintsCommandsThatCanBePasted(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	require.NoError(t, db.CreateCollection(t.Context(), "machines"))
	run := func(to string) []string {
		t.Helper()
		got := runBrim(t, nil, "migrate", "--storage", to, "--stream", "machines", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1", "--no-daemon")
		require.Equal(t, exitDone, got.code, got.err)
		commands := printedCommands(got.stdout)
		require.Len(t, commands, 1, got.stdout)
		return commands
	}
	assert.Contains(t, paste(t, run("timeseries")[0]), "The old collection is dropped")
	assert.Contains(t, paste(t, run("bucket")[0]), "The readings of stream machines are now stored with --storage bucket")
}

// printedCommands are those behind colons, without "brim migrate".
func printedCommands(text string) []string {
	var commands []string
	for line := range strings.Lines(text) {
		if _, command, found := strings.Cut(line, ": brim migrate "); found {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// paste runs `brim migrate` in a shell.
func paste(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", brimBinary(t)+" migrate "+command)
	cmd.Env = foreignEnv()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestCommandsAreQuoted(t *testing.T) {
	t.Parallel()
	c := commandWords{"--mongo-uri", "mongodb://u:secret@h/?a=b&c=d", "--config", "it's here.yaml"}
	assert.Equal(t, "brim migrate --storage bucket --mongo-uri 'mongodb://u:***@h/?a=b&c=d' --config 'it'\\''s here.yaml'", c.command("--storage", "bucket"))
}

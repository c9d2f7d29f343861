package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/compact"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// fragmentedStream returns a stream's collection with a scattered quarter deleted, and the
// flags that select it.
func fragmentedStream(t *testing.T, uri string) (db *mongo.Database, flags []string) {
	t.Helper()
	db = mongodtest.DatabaseAt(t, uri)
	coll := db.Collection("readings")
	random := rand.NewChaCha8([32]byte{3})
	for range 4 {
		var batch []any
		for i := range 400 {
			payload := make([]byte, 16<<10)
			_, _ = random.Read(payload)
			batch = append(batch, bson.D{{Key: "_id", Value: fmt.Sprintf("%016x", random.Uint64())}, {Key: "n", Value: i}, {Key: "b", Value: payload}})
		}
		_, err := coll.InsertMany(t.Context(), batch)
		require.NoError(t, err)
	}
	admin := db.Client().Database("admin")
	fsync := bson.D{{Key: "fsync", Value: 1}}
	require.NoError(t, admin.RunCommand(t.Context(), fsync).Err())
	_, err := coll.DeleteMany(t.Context(), bson.D{{Key: "n", Value: bson.D{{Key: "$mod", Value: bson.A{4, 0}}}}})
	require.NoError(t, err)
	flags = []string{
		"compact", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1", "--free-bytes-at-least", "1MiB", "--free-at-least", "5%",
	}
	early := runBrim(t, nil, append(flags, "--free-bytes-at-least", "1GiB")...)
	require.Equal(t, exitDone, early.code, early.err)
	assert.Contains(t, early.stdout, "becomes reusable after the next checkpoint", "the deletion was just now")
	last := 0.0
	require.Eventually(t, func() bool { // space is free once the server keeps no history of it
		_, err := db.Collection("other").InsertOne(t.Context(), bson.D{})
		require.NoError(t, err)
		require.NoError(t, admin.RunCommand(t.Context(), fsync).Err())
		var stats struct {
			Free float64 `bson:"freeStorageSize"`
		}
		err = db.RunCommand(t.Context(), bson.D{{Key: "collStats", Value: "readings"}}).Decode(&stats)
		settled := stats.Free == last
		last = stats.Free
		return err == nil && settled && last > 5<<20
	}, patience, 100*time.Millisecond)
	return db, flags
}

func TestCompactGivesSpaceBackOnceAndThenHasNothingToDo(t *testing.T) {
	t.Parallel()
	_, flags := fragmentedStream(t, mongodtest.URI(t))
	dry := runBrim(t, nil, append(flags, "--force", "--dry-run")...)
	require.Equal(t, exitDone, dry.code, dry.err)
	assert.Contains(t, dry.stdout, "would be compacted")
	assert.Contains(t, dry.stdout, "nothing was done")

	done := runBrim(t, nil, append(flags, "--force", "--output", "json")...)
	require.Equal(t, exitDone, done.code, done.err)
	var report struct {
		Members []struct {
			Sizes compact.Sizes `json:"sizes"`
		} `json:"members"`
		Compacted []compact.Result `json:"compacted"`
	}
	require.NoError(t, json.Unmarshal([]byte(done.stdout), &report))
	require.Len(t, report.Compacted, 1)
	assert.Positive(t, report.Compacted[0].GivenBack)
	assert.Greater(t, report.Members[0].Sizes.AllFree(), int64(5<<20), "the dry run has done nothing")
	assert.NotContains(t, done.stdout, "no stream has a collection")
	// Short passes may start and end between two lines; the last one is reported.
	assert.Contains(t, done.stderr, fmt.Sprintf("pass %d", len(report.Compacted[0].Passes)))

	again := runBrim(t, nil, append(flags, "--force", "--free-bytes-at-least", "1GiB")...)
	require.Equal(t, exitDone, again.code, again.err)
	assert.Contains(t, again.stdout, "less than 1.0 GiB is not worth it (--free-bytes-at-least")
	assert.NotContains(t, again.stdout, "given back")
}

// TestCompactIsInterruptedRefusedAndForced uses its own server, so that it can delay the
// server's commands.
func TestCompactIsInterruptedRefusedAndForced(t *testing.T) {
	t.Parallel()
	db, flags := fragmentedStream(t, mongodtest.Start(t, mongod.Config{}).URI())
	admin := db.Client().Database("admin")
	slow := func(mode any) { // delays the start of a compaction, or stops delaying
		require.NoError(t, admin.RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"compact"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 600_000}, {Key: "appName", Value: "brim compact"}}},
		}).Err())
	}
	slow("alwaysOn")
	cmd := exec.Command(brimBinary(t), append(flags, "--force")...)
	cmd.Env = foreignEnv()
	p := brimtest.Start(t, cmd, syscall.SIGKILL)
	p.Await("a pass", func() bool { return strings.Contains(p.Logged(), "pass 1") })
	p.Signal(os.Interrupt)
	assert.Equal(t, exitFailed, p.Wait())
	for _, part := range []string{"MongoDB is asked to end the compaction", "MongoDB has ended it", "brim: compact "} {
		assert.Contains(t, p.Logged(), part)
	}
	assert.NotContains(t, operationsOf(t, admin), "compact")
	slow("off")

	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		batch := make([]any, 200)
		for i := range batch {
			batch[i] = bson.D{{Key: "n", Value: i}}
		}
		for {
			select {
			case <-stop:
				return
			default:
				_, err := db.Collection("busy").InsertMany(t.Context(), batch)
				assert.NoError(t, err)
			}
		}
	})
	refused := runBrim(t, nil, flags...)
	close(stop)
	writing.Wait()
	assert.Equal(t, exitFailed, refused.code)
	require.ErrorContains(t, refused.err, "is busy, and --force was not given")
	assert.Contains(t, refused.stdout, "documents/s are written")
	assert.Contains(t, refused.stdout, "3.5 times")

	forced := runBrim(t, nil, append(flags, "--force", "--passes", "1")...)
	require.Equal(t, exitDone, forced.code, forced.err)
	for _, part := range []string{"stream readings: collection ", "given back in ", ", 1 pass", "free in it", "more disk, most"} {
		assert.Contains(t, forced.stdout, part)
	}
}

func TestCompactRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	db := mongodtest.DatabaseAt(t, uri)
	_, err := db.Collection("readings").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		flags []string
		says  string
	}{
		"a member that is none": {[]string{"--member", "127.0.0.1:1"}, `there is no such member: "127.0.0.1:1"; members are 127.0.0.1:`},
		"two choices":           {[]string{"--member", "127.0.0.1:1", "--all"}, "--all and --member cannot be used together"},
		"more than all":         {[]string{"--free-at-least", "101%"}, "is not a share from 0 to 1"},
		"no share":              {[]string{"--free-at-least", "much"}, "is not a share from 0 to 1"},
		"no pass":               {[]string{"--passes", "0"}, "is not a whole number from 1 to 100"},
		"no stream":             {[]string{"--stream", "nothing"}, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runBrim(t, nil, append([]string{"compact", "--mongo-uri", uri, "--database", db.Name(), "--admin", "127.0.0.1:1"}, test.flags...)...)
			require.ErrorContains(t, got.err, test.says)
			if name != "no stream" {
				assert.Equal(t, exitUsage, got.code)
			}
		})
	}
}

func TestFreeShareIsWrittenAsAPartOrInPercent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"20%": 0.2, "0.2": 0.2, "0": 0, "100%": 1, "12.5 %": 0.125} {
		var got float64
		require.NoError(t, share(&got, 1)(text), text)
		assert.InDelta(t, want, got, 1e-12, text)
	}
	var got float64
	for _, text := range []string{"", "%", "-1%", "NaN", "1.1", "Inf", "x"} {
		require.Error(t, share(&got, 1)(text), text)
	}
}

// operationsOf returns the commands a server is executing.
func operationsOf(t *testing.T, admin *mongo.Database) string {
	t.Helper()
	cursor, err := admin.Aggregate(t.Context(), mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{}}}, {{Key: "$match", Value: bson.D{{Key: "command.compact", Value: bson.D{{Key: "$exists", Value: true}}}}}},
	})
	require.NoError(t, err)
	var found []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &found))
	return fmt.Sprint(found)
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// An away is a MongoDB that is absent until started.
type away struct {
	t    testing.TB
	port int
	uri  string
	args []string // flags of a daemon storing there
}

func newAway(t testing.TB) *away {
	t.Helper()
	mongodtest.URI(t) // skips, or installs, where there is none
	a := &away{t: t, port: mongodtest.FreePort(t)}
	a.uri = fmt.Sprintf("mongodb://127.0.0.1:%d/?replicaSet=brim", a.port)
	a.args = []string{"--mongo-uri", a.uri, "--data-dir", filepath.Join(t.TempDir(), "data"), "--stored-timeout", "1s"}
	return a
}

func (a *away) start() *mongod.Server {
	a.t.Helper()
	return mongodtest.Start(a.t, mongod.Config{Port: a.port})
}

// brim starts a daemon before MongoDB.
func (a *away) brim(args ...string) *brimProcess {
	a.t.Helper()
	return startBrim(a.t, append(a.args, args...)...).awaitReady()
}

// stored flushes, and counts what is stored, by sensor.
func (a *away) stored(b *brimProcess) (counts map[string]int) {
	a.t.Helper()
	code, answer := b.admin(http.MethodPost, "/flush?timeout=60s")
	require.Equal(a.t, http.StatusOK, code, answer)
	inDatabase(a.t, a.uri, func(db *mongo.Database) { counts = sensors(a.t, db.Collection("readings")) })
	return counts
}

// take posts a reading to be journaled.
func (b *brimProcess) take(sensor string) {
	b.t.Helper()
	code, answer := b.post("/v1/readings", fmt.Sprintf(`{"sensorId":%q,"fields":{"t":1}}`, sensor))
	require.Equal(b.t, http.StatusOK, code, answer)
	require.JSONEq(b.t, `{"accepted":1,"rejected":0,"ack":"journaled","errors":[]}`, answer)
}

func TestReadingsAreAcceptedWhileMongoDBIsAway(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim()
	b.take("early")
	code, body := b.admin(http.MethodGet, "/readyz")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, `"optional": true`)
	assert.Contains(t, body, "MongoDB is away")
	code, answer := b.post("/v1/readings?ack=stored", `{"sensorId":"patient","fields":{"t":1}}`)
	assert.Equal(t, http.StatusAccepted, code)
	assert.Contains(t, answer, `"ack":"journaled"`)
	s := b.status()
	assert.Equal(t, 2, s.Queue.Readings)
	assert.False(t, s.MongoDB.Available)

	a.start()
	assert.Equal(t, map[string]int{"early": 1, "patient": 1}, a.stored(b))
	code, answer = b.post("/v1/readings?ack=stored", `{"sensorId":"late","fields":{"t":1}}`)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, answer, `"ack":"stored"`)
	assert.Zero(t, b.status().Queue.Readings)
}

func TestJournaledReadingsSurviveAKill(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	want := make(map[string]int)
	for round := range 3 {
		b := a.brim()
		for i := range 20 {
			sensor := fmt.Sprintf("s-%d", i%7)
			b.take(sensor)
			want[sensor]++
		}
		if round < 2 {
			b.signal(syscall.SIGKILL)
			b.wait()
			continue
		}
		a.start()
		assert.Equal(t, want, a.stored(b))
		replayed := b.awaitLog("journal replayed")
		assert.InDelta(t, 40, replayed["readings"], 20) // and the earlier ones
		require.Equal(t, exitDone, b.stop())
	}
	// Stored readings are not stored again.
	assert.Equal(t, want, a.stored(a.brim()))
}

func TestStopKeepsWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim("--stop-timeout", "2s")
	b.take("left")
	assert.Equal(t, exitDone, b.stop())
	assert.Contains(t, b.Logged(), "readings stay in the journal")
	assert.NotContains(t, b.Logged(), "storing readings before stopping", "no stream was ever prepared")
	a.start()
	assert.Equal(t, map[string]int{"left": 1}, a.stored(a.brim()))
}

// A journal without its folder promises nothing more, and readings in memory are stored if
// there is a MongoDB.
func TestJournalWhoseFolderIsGoneRefusesReadings(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	folder := filepath.Join(a.args[3], "journal")
	b := a.brim("--stop-timeout", "2s")
	b.take("lost")
	require.NoError(t, os.RemoveAll(folder))
	b.awaitReadiness(http.StatusServiceUnavailable, "journal")
	_, reason := b.admin(http.MethodGet, "/readyz")
	assert.Contains(t, reason, "journal_gone: the journal's folder was removed or replaced while the daemon was running")
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, `"journal_gone"`)
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, `brim_journal_refused_total{reason="journal_gone"} 1`)
	assert.Equal(t, exitFailed, b.stop())
	assert.Contains(t, b.Logged(), "journal_gone: ")
	assert.Contains(t, b.Logged(), "stop with 1 readings not known to be stored")
	assert.NotContains(t, b.Logged(), "stay in the journal")

	b = a.brim()
	b.take("kept")
	require.NoError(t, os.Rename(folder, folder+".old"))
	b.awaitReadiness(http.StatusServiceUnavailable, "journal")
	a.start()
	assert.Equal(t, map[string]int{"kept": 1}, a.stored(b))
	assert.Equal(t, exitDone, b.stop())
	got := runBrim(t, nil, append([]string{"journal", "replay", "--journal-dir", folder + ".old"}, a.args...)...)
	require.NoError(t, got.err, "what was moved can be replayed: %s", got.stderr)
	assert.Equal(t, map[string]int{"kept": 1}, a.stored(a.brim()), "and is stored once")
}

func TestFullJournalRefusesUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim("--journal-max-bytes", "1MiB")
	body := strings.Repeat(`{"sensorId":"s","fields":{"text":"`+strings.Repeat("x", 1000)+`"}}`+"\n", 100)
	taken := 0
	for {
		code, answer, err := b.send("/v1/readings", []byte(body))
		require.NoError(t, err)
		if code == http.StatusServiceUnavailable {
			assert.Contains(t, answer, "journal_full")
			assert.Contains(t, answer, "--journal-max-bytes")
			break
		}
		require.Equal(t, http.StatusOK, code, answer)
		taken += 100
		require.Less(t, taken, 2000, "the journal takes more than its limit")
	}
	assertRetryAfter(t, b, body)
	b.awaitReadiness(http.StatusServiceUnavailable, "journal")
	a.start()
	b.awaitReady()
	assert.Equal(t, map[string]int{"s": taken}, a.stored(b))
	b.take("again")
}

func TestUnstoredReadingsStopAChangeOfTarget(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim("--stop-timeout", "1s")
	b.take("homeless")
	b.stop()
	flags := append([]string{"serve"}, a.args...)
	got := runBrim(t, nil, append(flags, "--database", "other", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")...)
	require.ErrorContains(t, got.err, "holds 1 readings that are not known to be stored, of stream readings")
	require.ErrorContains(t, got.err, "brim journal replay --retarget")
	got = runBrim(t, nil, append(flags, "--journal", "off", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")...)
	require.ErrorContains(t, got.err, "journal is off, and the journal in")
	former, other := filepath.Join(a.args[3], "journal"), filepath.Join(t.TempDir(), "other")
	for _, journal := range []string{"on", "off"} {
		got = runBrim(t, nil, append(flags, "--journal", journal, "--journal-dir", other, "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")...)
		require.ErrorContains(t, got.err, "the journal is now in "+other+", and the journal in "+former+" holds 1 readings that are not known to be stored")
		require.ErrorContains(t, got.err, "run `brim journal replay` with the current settings and --journal-dir "+former)
	}
	assert.NoDirExists(t, other)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(former, link))
	a.brim("--journal-dir", link, "--stop-timeout", "1s").stop() // the same folder
	got = runBrim(t, nil, append([]string{"journal", "replay", "--stream", "other", "--retarget"}, a.args...)...)
	require.ErrorContains(t, got.err, "of stream readings, which was stored as bucket")
	require.ErrorContains(t, got.err, "is not configured any more")
	got = runBrim(t, nil, "journal", "replay", "--journal-dir", filepath.Join(t.TempDir(), "typo"))
	require.ErrorContains(t, got.err, "find a journal")

	a.start()
	got = runBrim(t, nil, append([]string{"journal", "replay", "--output", "json", "--database", "other", "--retarget"}, a.args...)...)
	require.NoError(t, got.err)
	var done daemon.Replayed
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &done))
	assert.Equal(t, uint64(1), done.Stored)
	assert.Zero(t, done.Left)
	inDatabase(t, a.uri, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"homeless": 1}, sensors(t, db.Client().Database("other").Collection("readings")))
	})
	a.brim("--database", "other", "--journal-dir", other)
}

func TestIdempotencyKeySurvivesARestart(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	a.start()
	post := func(b *brimProcess, body string) (int, string) {
		code, answer, err := b.send("/v1/readings", []byte(body), "Idempotency-Key", "k-1")
		require.NoError(t, err)
		return code, answer
	}
	const body = `[{"sensorId":"s","fields":{"t":1}},{"sensorId":"s","fields":{"$t":1}}]`
	b := a.brim()
	code, first := post(b, body)
	require.Equal(t, http.StatusMultiStatus, code, first)
	code, second := post(b, body)
	assert.Equal(t, http.StatusMultiStatus, code)
	assert.JSONEq(t, first, second)
	b.signal(syscall.SIGKILL)
	b.wait()
	b = a.brim()
	code, third := post(b, body)
	assert.Equal(t, http.StatusMultiStatus, code)
	assert.JSONEq(t, first, third)
	code, answer := post(b, `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusConflict, code, answer)
	assert.Equal(t, map[string]int{"s": 1}, a.stored(b))
}

func TestTwoDaemonsDoNotShareAJournal(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim()
	got := runBrim(t, nil, append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, a.args...)...)
	require.ErrorContains(t, got.err, fmt.Sprintf("journal: another process has it open (pid %d)", b.Cmd.Process.Pid))
}

func TestJournalInspect(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim()
	b.take("s")
	b.take("s")
	inspect := func() (got outcome, report journal.Report) {
		got = runBrim(t, nil, "journal", "inspect", "--output", "json", "--data-dir", a.args[3])
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stdout)
		return got, report
	}
	got, report := inspect() // while the daemon runs
	require.NoError(t, got.err)
	require.Len(t, report.Unapplied, 1)
	assert.Equal(t, uint64(2), report.Unapplied[0].Readings)
	assert.Equal(t, b.status().Session, report.Unapplied[0].Session)
	assert.Empty(t, report.Problems)

	b.signal(syscall.SIGKILL)
	b.wait()
	file := report.Segments[0].File
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	at := len(content) / 2
	content[at] ^= 1
	require.NoError(t, os.WriteFile(file, content, 0o600))
	got, report = inspect()
	require.ErrorIs(t, got.err, errDamaged)
	require.Len(t, report.Problems, 1)
	assert.Equal(t, file, report.Problems[0].File)
	text := runBrim(t, nil, "journal", "inspect", "--data-dir", a.args[3])
	assert.Contains(t, text.stdout, "damage: what was acknowledged cannot be read")

	refused := runBrim(t, nil, append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, a.args...)...)
	require.ErrorContains(t, refused.err, file)
	require.ErrorContains(t, refused.err, "--journal-corruption")
	a.brim("--journal-corruption", "quarantine", "--stop-timeout", "1s").stop()
	got, report = inspect()
	require.NoError(t, got.err)
	assert.NotEmpty(t, report.GivenUp)
	assert.FileExists(t, report.GivenUp[0].Copy)
}

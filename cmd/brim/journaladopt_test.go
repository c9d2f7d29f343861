package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/journal"
)

// TestJournalOfADeadDaemonIsReplayed kills a daemon for good, with readings that exist only in
// its journal, and stores them with the command.
func TestJournalOfADeadDaemonIsReplayed(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	b := a.brim()
	b.take("kept")
	b.take("kept")
	_, answer, err := b.send("/v1/readings", []byte(`{"sensorId":"keyed","fields":{"t":1}}`), "Idempotency-Key", "k")
	require.NoError(t, err, answer)
	session := b.status().Session
	replay := append([]string{"journal", "replay"}, a.args...)
	got := runBrim(t, nil, replay...)
	require.ErrorContains(t, got.err, "another process has it open", "its owner is alive")
	b.signal(syscall.SIGKILL)
	b.wait()

	a.start()
	got = runBrim(t, nil, append(replay, "--output", "json")...)
	require.NoError(t, got.err)
	var done daemon.Replayed
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &done))
	assert.Equal(t, []daemon.ReplayedReadings{{Session: session, Stream: "readings", Readings: 3}}, done.Taken)
	assert.Equal(t, daemon.Replayed{
		Journal: filepath.Join(a.args[3], "journal"), Taken: done.Taken, Keys: 1, Stored: 3, Seconds: done.Seconds,
	}, done)
	inDatabase(t, a.uri, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"kept": 2, "keyed": 1}, sensors(t, db.Collection("readings")))
	})

	got = runBrim(t, nil, replay...) // again
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "0 readings stored in")
	assert.Contains(t, got.stdout, "Nothing in "+done.Journal+" is needed any more, but for 1 idempotency keys")
	inDatabase(t, a.uri, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"kept": 2, "keyed": 1}, sensors(t, db.Collection("readings")))
	})
}

func TestAFolderWithoutAJournalIsNotReplayed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, command := range []string{"replay", "inspect"} {
		got := runBrim(t, nil, "journal", command, "--journal-dir", data)
		require.ErrorContains(t, got.err, "there is none in "+data+"; specify the folder that holds its segments")
	}
	files, err := os.ReadDir(data)
	require.NoError(t, err)
	assert.Empty(t, files, "looking leaves nothing behind")

	// With the folder above a journal, the error says where the journal is.
	a := newAway(t)
	b := a.brim()
	b.signal(syscall.SIGKILL)
	b.wait()
	got := runBrim(t, nil, "journal", "replay", "--journal-dir", a.args[3])
	require.ErrorContains(t, got.err, "did you mean --journal-dir "+filepath.Join(a.args[3], "journal")+", or --data-dir "+a.args[3])
}

func TestReplayText(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		done daemon.Replayed
		want string
	}{
		"all": {
			daemon.Replayed{Journal: "/j", Taken: []daemon.ReplayedReadings{{Session: "s1", Stream: "readings", Readings: 7}, {Session: "s2", Stream: "readings", Readings: 2}}, Stored: 9, Found: 4, Letters: 1, Seconds: 1.5},
			"9 readings stored in 1.5s, 0 left in the journal\n" +
				"  session s1, stream readings: 7 readings not known to be stored\n" +
				"  session s2, stream readings: 2 readings not known to be stored\n" +
				"  4 of them already stored\n" +
				"  1 of them refused by MongoDB, see `brim deadletter list`\n" +
				"Nothing in /j is needed any more.\n",
		},
		"keys": {daemon.Replayed{Journal: "/j", Keys: 3}, "0 readings stored in 0s, 0 left in the journal\nNothing in /j is needed any more, but for 3 idempotency keys: a request repeated elsewhere is accepted again.\n"},
		"left": {daemon.Replayed{Journal: "/j", Left: 3, Keys: 1}, "0 readings stored in 0s, 3 left in the journal\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, one.want, replayedText(&one.done))
		})
	}
}

// TestInspectNamesSegments of a folder given by a longer path than its files'.
func TestInspectNamesSegments(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"journal", "./journal/", ".", "/var/lib/brim/a/../b/../c/../d/../e/../f/../g/../h/../journal"} {
		r := journal.Report{Dir: dir, Segments: []journal.SegmentReport{{File: filepath.Join(dir, "00000000000000000000.journal"), Session: "s"}}}
		assert.Contains(t, journalText(&r), "\n00000000000000000000.journal  s ", dir)
	}
}

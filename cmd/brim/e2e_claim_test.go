package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestCopiedJournalIsRefused: both would store the same readings.
func TestCopiedJournalIsRefused(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	dir, copied := t.TempDir(), t.TempDir()
	first := startBrim(t, append(onShared(t, db), "--data-dir", dir, "--ack", "journaled")...).awaitStorage()
	nothing := bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: bson.D{{Key: "never", Value: true}}}}
	require.NoError(t, db.RunCommand(t.Context(), nothing).Err())
	first.take("s")
	first.awaitLog("write failed, will retry")
	require.NoError(t, os.CopyFS(filepath.Join(copied, "journal"), os.DirFS(filepath.Join(dir, "journal"))))

	second := startBrim(t, append(onShared(t, db), "--data-dir", copied, "--stop-timeout", "1s")...)
	assert.Equal(t, 1, second.wait())
	session := first.status().Session
	assert.Contains(t, second.Logged(), "readings of session "+session+" are being stored by another daemon")
	assert.Contains(t, second.Logged(), "with the journal in "+filepath.Join(dir, "journal")+", since ")

	first.Kill()
	again := startBrim(t, append(onShared(t, db), "--data-dir", dir, "--stop-timeout", "1s")...).awaitStorage() // does not wait for its own earlier claim
	again.stop()
}

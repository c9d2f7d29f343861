package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestDoctorReportsInterruptedMaintenance goes from a harmless state through a fence to what
// the completed work leaves behind.
func TestDoctorReportsInterruptedMaintenance(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	_, err := db.Collection("readings").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	set := func(fields bson.D) {
		_, err := db.Collection("brim_maintenance").UpdateByID(t.Context(), "readings", bson.D{{Key: "$set", Value: fields}})
		require.NoError(t, err)
	}
	look := func() (code int, found map[string][]doctorFinding) {
		t.Helper()
		got := runBrim(t, nil, doctorFlags(t, "--over", "0", "--database", db.Name(), "--output", "json")...)
		var r seenJSON
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &r), "%v", got.err)
		found = make(map[string][]doctorFinding)
		for _, f := range r.Diagnosis {
			found[f.Name] = append(found[f.Name], f)
		}
		return got.code, found
	}
	_, found := look()
	for _, name := range []string{"fenced", "setting_move", "setting_old_collection", "unseen_moves"} {
		assert.NotContains(t, found, name)
	}

	_, err = db.Collection("brim_maintenance").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "readings"}, {Key: "kind", Value: "recompress"}, {Key: "to", Value: "zstd"}, {Key: "phase", Value: "copy"},
		{Key: "owner", Value: bson.D{{Key: "id", Value: "x"}, {Key: "host", Value: "elsewhere"}}}, {Key: "lease", Value: time.Now().Add(time.Hour)},
	})
	require.NoError(t, err)
	require.NoError(t, db.CreateCollection(t.Context(), "readings.brim_new"))
	_, found = look()
	assert.NotContains(t, found, "setting_move", "a process is working on it")

	set(bson.D{{Key: "lease", Value: time.Now().Add(-time.Hour)}})
	_, found = look()
	require.Len(t, found["setting_move"], 2)
	assert.Equal(t, "setting", found["setting_move"][0].Kind)
	assert.Contains(t, found["setting_move"][0].Evidence, "`brim recompress` to zstd is in phase copy")
	assert.Contains(t, found["setting_move"][0].Evidence, "readings.brim_new takes")
	assert.Contains(t, found["setting_move"][0].Action, "brim recompress --to zstd --stream readings --mongo-uri '"+mongodtest.URI(t)+"' --database "+db.Name()+" --admin 127.0.0.1:1")
	assert.Contains(t, found["setting_move"][1].Action, "--abort")

	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: bson.D{
		{Key: "$jsonSchema", Value: bson.D{{Key: "title", Value: "Brim keeps writes away"}, {Key: "not", Value: bson.D{}}}},
	}}}).Err())
	code, found := look()
	assert.Equal(t, exitBottleneck, code, "writes wait")
	require.Len(t, found["fenced"], 2)
	assert.Equal(t, "slow", found["fenced"][0].Kind)
	assert.Contains(t, found["fenced"][1].Action, "--abort")
	assert.NotContains(t, found, "setting_move", "it is said")

	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: bson.D{}}}).Err())
	require.NoError(t, db.Collection("readings.brim_new").Drop(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), "readings.brim_old"))
	set(bson.D{{Key: "phase", Value: "done"}})
	_, found = look()
	require.Len(t, found["setting_old_collection"], 1)
	assert.Contains(t, found["setting_old_collection"][0].Evidence, "readings.brim_old takes")
	assert.Contains(t, found["setting_old_collection"][0].Action, "brim recompress --stream readings --drop-old")
}

func TestDoctorWithWrongPassword(t *testing.T) {
	t.Parallel()
	uri := strings.Replace(mongodtest.URI(t), "mongodb://", "mongodb://unknown:open-sesame@", 1)
	got := runBrim(t, nil, "doctor", "--mongo-uri", uri, "--admin", "127.0.0.1:1")
	assert.Equal(t, exitFailed, got.code)
	require.ErrorIs(t, got.err, errRefused)
	assert.ErrorContains(t, got.err, "uthentication failed")
	assert.NotContains(t, got.err.Error(), "is away")
	assert.NotContains(t, got.err.Error(), "sesame")
}

func TestDoctorRefusesUnknownStream(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, "doctor", "--admin", statusAt(t, runningStatus()), "--stream", "nope")
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, `there is no stream "nope"; allowed: ecg, weather`)
}

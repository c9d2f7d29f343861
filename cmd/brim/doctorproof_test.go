package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// engineOnly are thresholds by which the machine is well, whatever else it has
// to do while tests run.
const engineOnly = `processor: {degrading: 1000, bottleneck: 1001}
disk_busy: {degrading: 1000, bottleneck: 1001}
disk_await: {nvme: &never {degrading: 100000, bottleneck: 100001}, ssd: *never, hdd: *never, unknown: *never}
`

// A verdictSeen is what a run of `brim doctor` came to.
type verdictSeen struct {
	code      int
	Class     string
	Signals   []struct{ Name, Class string }
	Diagnosis []struct{ Name, Kind, Class, Cause, Evidence, Action, Cost string }
	stderr    string
}

// causes are the findings of a kind, by their causes.
func (v verdictSeen) causes(kind string) string {
	var out []string
	for _, f := range v.Diagnosis {
		if f.Kind == kind {
			out = append(out, f.Cause)
		}
	}
	return strings.Join(slices.Compact(out), "; ")
}

// runDoctor runs `brim doctor` as a process of its own.
func runDoctor(t testing.TB, args ...string) verdictSeen {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), brimBinary(t), append([]string{"doctor", "--output", "json", "--admin", "127.0.0.1:1"}, args...)...)
	cmd.Env = foreignEnv()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	v := verdictSeen{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &v), "%s%s", &stdout, &stderr)
	return v
}

func setParameter(t testing.TB, server *mongod.Server, name string, value any) {
	t.Helper()
	db := mongodtest.DatabaseAt(t, server.URI())
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "setParameter", Value: 1}, {Key: name, Value: value}}).Err())
}

// TestDoctorOfAnIdleMongoDB: nothing is wrong, and what costs without need is
// named until the advice is followed; neither is an error to cron.
func TestDoctorOfAnIdleMongoDB(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": "300"}})
	once := runDoctor(t, "--mongo-uri", server.URI())
	assert.Equal(t, 0, once.code, once.stderr)
	assert.Equal(t, "healthy", once.Class)
	assert.Empty(t, once.causes("slow"))
	assert.Contains(t, once.causes("setting"), "minSnapshotHistoryWindowInSeconds")
	assert.Empty(t, once.stderr)

	setParameter(t, server, "minSnapshotHistoryWindowInSeconds", 0)
	twice := runDoctor(t, "--mongo-uri", server.URI(), "--over", "1s", "--thresholds", thresholdsFile(t, engineOnly))
	assert.Equal(t, 0, twice.code, twice.stderr)
	assert.Equal(t, "healthy", twice.Class)
	assert.Empty(t, twice.causes("slow"))
	assert.NotContains(t, twice.causes("setting"), "minSnapshotHistoryWindowInSeconds")
}

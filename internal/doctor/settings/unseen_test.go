package settings

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// TestAMissingRoleIsNamedOnce, with what it would show and the command that
// grants it; the rest is looked at.
func TestAMissingRoleIsNamedOnce(t *testing.T) {
	t.Parallel()
	r := scene(t, "no-monitor-6.0.5")
	full(r)
	r.documents = buckets(60, rounded)
	found := ask(t, r, rules, nil)
	require.Len(t, found, 2)
	assert.Equal(t, "setting_compressor", found[0].Name)
	assert.Equal(t, doctor.Unseen, found[1].Kind)
	assert.Equal(t, doctor.Unknown, found[1].Class)
	assert.Contains(t, found[1].Cause, "getParameter, getCmdLineOpts, hostInfo, serverStatus, replSetGetConfig, replSetGetStatus, getDefaultRWConcern and $indexStats")
	assert.Contains(t, found[1].Cause, "the role clusterMonitor permits it")
	assert.Contains(t, found[1].Evidence, "the history window, checkpoints and the journal")
	assert.Equal(t, `in mongosh: db.getSiblingDB("admin").grantRolesToUser("brim", [{role: "clusterMonitor", db: "admin"}])`, found[1].Action)
}

// TestTheOtherRoleIsNamedToo to whoever has none at all.
func TestTheOtherRoleIsNamedToo(t *testing.T) {
	t.Parallel()
	found := ask(t, scene(t, "no-role-6.0.5"), rules, nil)
	require.Len(t, found, 2)
	assert.Contains(t, found[0].Cause, "clusterMonitor")
	assert.Contains(t, found[1].Cause, "$collStats; the role read permits it")
	assert.Contains(t, found[1].Evidence, "the compressor of stream readings")
	assert.Contains(t, found[1].Action, `grantRolesToUser("nobody", [{role: "read"`)
}

// TestEachRefusalAloneIsBorne: no finding of another rule needs the answer.
func TestEachRefusalAloneIsBorne(t *testing.T) {
	t.Parallel()
	refusal := bson.D{{Key: "error", Value: bson.D{{Key: "code", Value: int32(13)}, {Key: "message", Value: "not authorized"}}}}
	for _, command := range []string{"getParameter", "getCmdLineOpts", "hostInfo", "serverStatus", "replSetGetConfig", "replSetGetStatus", "getDefaultRWConcern", "$collStats readings", "$indexStats readings"} {
		for name, f := range faults {
			if f.rule == "unseen" || f.rule == "compressor" && command != "serverStatus" {
				continue // packing a sample takes long
			}
			if f.scene == "" {
				f.scene = "replica-set-6.0.5"
			}
			r := scene(t, f.scene)
			f.change(r)
			r.set(refusal, command)
			for _, found := range ask(t, r, rules, nil) {
				if found.Kind != doctor.Unseen {
					assert.Equal(t, f.name, found.Name, "%s without %s", name, command)
					assert.NotContains(t, found.Evidence, "NaN", "%s without %s", name, command)
				}
			}
		}
	}
}

// TestAServerThatIsAwayIsAnError, and so is a database that is not given.
func TestAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	_, err := check(t.Context(), &recorded{}, Config{}, rules)
	require.ErrorContains(t, err, "check settings")
	_, err = Check(t.Context(), Config{})
	require.EqualError(t, err, "check settings: database is missing")
}

// TestStreamsWithoutACollectionAreLeftOut, and pay for nothing.
func TestStreamsWithoutACollectionAreLeftOut(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	r.set(300, history...)
	out, err := check(t.Context(), r, Config{Streams: []Stream{{Name: "unborn", Storage: store.TimeSeries}, {Name: "m", Storage: store.Memory}}}, rules)
	require.NoError(t, err)
	assert.Empty(t, out, "no bucket stream pays for the history window")
}

package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// TestAMissingRoleIsNamedOnce, with what it would show and the command that
// grants it; everything else is examined.
func TestAMissingRoleIsNamedOnce(t *testing.T) {
	t.Parallel()
	r := scene(t, "no-monitor-6.0.5")
	full(r)
	r.documents = buckets(60, rounded)
	found := ask(t, r, settingRules, nil)
	require.Len(t, found, 2)
	assert.Equal(t, "setting_compressor", found[0].Name)
	assert.Equal(t, Unseen, found[1].Kind)
	assert.Equal(t, Unknown, found[1].Class)
	assert.Contains(t, found[1].Cause, "getParameter, getCmdLineOpts, replSetGetConfig, replSetGetStatus, $indexStats")
	assert.Contains(t, found[1].Evidence, "the history window and checkpoints")
	assert.Equal(t, `db.getSiblingDB("admin").grantRolesToUser(USER, ["clusterMonitor"])`, found[1].Action)
}

// TestBothMissingRolesAreNamed if not even samples may be read. Without $collStats no
// sample is attempted; Diagnose reports that.
func TestBothMissingRolesAreNamed(t *testing.T) {
	t.Parallel()
	r := scene(t, "no-role-6.0.5")
	require.Len(t, ask(t, r, settingRules, nil), 1)
	f := r.facts(t, nil)
	f.note(whyNoRead, "documents", "another compressor for stream readings", mongo.CommandError{Code: codeUnauthorized})
	require.NoError(t, f.gather(t.Context()))
	found := f.judge(settingRules)
	require.Len(t, found, 2)
	assert.Contains(t, found[0].Action, "clusterMonitor")
	assert.Contains(t, found[1].Cause, "documents")
	assert.Contains(t, found[1].Evidence, "another compressor for stream readings")
	assert.Contains(t, found[1].Action, "the role read")
}

// TestEachRefusedCommandIsTolerated: other rules do not need its answer.
func TestEachRefusedCommandIsTolerated(t *testing.T) {
	t.Parallel()
	refusal := bson.D{{Key: "error", Value: bson.D{{Key: "code", Value: int32(13)}, {Key: "message", Value: "not authorized"}}}}
	for _, command := range []string{"getParameter", "getCmdLineOpts", "hostInfo", "serverStatus", "replSetGetConfig", "replSetGetStatus", "$collStats readings", "$indexStats readings"} {
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
			for _, found := range ask(t, r, settingRules, nil) {
				if found.Kind != Unseen {
					assert.Equal(t, f.name, found.Name, "%s without %s", name, command)
					assert.NotContains(t, found.Evidence, "NaN", "%s without %s", name, command)
				}
			}
		}
	}
}

func TestAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Database: nowhere(t).Database("brim")})
	_, err := b.CheckSettings(t.Context())
	require.ErrorContains(t, err, "check settings: ask MongoDB for hello")
}

// TestStreamsWithoutACollectionAreLeftOut at no cost.
func TestStreamsWithoutACollectionAreLeftOut(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	r.set(300, history...)
	f := r.facts(t, nil)
	b := newBench(t, Config{Database: nowhere(t).Database("brim"), Streams: []Stream{{Name: "unborn", Storage: store.TimeSeries}, {Name: "m", Storage: store.Memory}}})
	f.streams = b.config.Streams
	require.NoError(t, f.gather(t.Context()))
	assert.Empty(t, f.judge(settingRules), "no bucket stream pays for the history window")
}

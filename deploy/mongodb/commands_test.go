package mongodb_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
)

// noDaemon is an admin listener that does not answer, so that a command only
// uses MongoDB.
const noDaemon = "127.0.0.1:1"

// seed runs daemons of the owner that store readings in the tenant's database; one stream has two
// collections.
func (n *tenant) seed() {
	n.t.Helper()
	mine := n.uri
	owner, err := os.ReadFile(n.server.URIFile())
	require.NoError(n.t, err)
	n.uri = strings.TrimSpace(string(owner))
	defer func() { n.uri = mine }()
	data := filepath.Join(n.t.TempDir(), "data")
	for _, compressor := range []string{"snappy", "zstd"} {
		n.fill(n.serve(data, "retention: 90d\nstreams:\n  readings: {compressor: "+compressor+"}\n  series: {storage: timeseries}\n"))
	}
}

// fill stores readings through a daemon, and stops it.
func (n *tenant) fill(d *daemon) {
	n.t.Helper()
	d.AwaitLog("ready")
	var body strings.Builder
	for i := range 500 {
		fmt.Fprintf(&body, `{"sensorId":"s-%d","fields":{"t":%d.5}}`+"\n", i%10, i)
	}
	for _, stream := range []string{"readings", "series"} {
		_, err := d.ask(http.MethodPost, d.http+"/v1/streams/"+stream+"/readings?ack=stored", body.String())
		require.NoError(n.t, err)
	}
	require.Zero(n.t, d.Stop())
}

// A job is the work that one role allows.
type job struct {
	role     string
	commands []string // in order; all must succeed
}

// jobs can run in sequence on one database.
func jobs() []job {
	return []job{
		{roles.Doctor, []string{"doctor --over 1s"}},
		{roles.Compact, []string{"compact --all --force --free-at-least 0% --free-bytes-at-least 0"}},
		{roles.Move, []string{"move readings"}},
	}
}

// do runs a job's commands.
func (n *tenant) do(j job) error {
	for _, command := range j.commands {
		code, output := n.brim(append(strings.Fields(command), "--admin", noDaemon)...)
		healthy := code == 0 || j.role == roles.Doctor && (code == 10 || code == 20)
		n.t.Logf("%s: %d: %s", command, code, output)
		if refused := n.refused(); len(refused) > 0 {
			return fmt.Errorf("%s: refused: %s", command, strings.Join(refused, "\n"))
		}
		if !healthy {
			return fmt.Errorf("%s: exit code %d: %s", command, code, output)
		}
	}
	return nil
}

// spare reports whether a job needs an action only at other times.
func spare(action string) bool {
	return slices.Contains([]string{
		"killop", // to interrupt a compaction
	}, action)
}

// TestRolesOfCommands: nothing is refused, and without any one action something
// is. The full test takes minutes.
//
//nolint:tparallel // the log of one server does not name users
func TestRolesOfCommands(t *testing.T) {
	t.Parallel()
	all := newSite(t)
	n := all.tenant(role(t, roles.Reader))
	n.seed()
	t.Run("a reader", func(t *testing.T) { read(t, n) })
	for _, j := range jobs() {
		t.Run(j.role, func(t *testing.T) {
			n := &tenant{site: all.in(t), name: n.name, uri: n.uri}
			n.grant(role(t, j.role))
			require.NoError(t, n.do(j))
		})
	}
	for _, j := range jobs() {
		for action, less := range lessOf(t, j.role) {
			if spare(action) || os.Getenv(longForm) == "" && action != "compact" {
				continue
			}
			t.Run(j.role+" without "+action, func(t *testing.T) {
				n := all.in(t).tenant(less)
				n.seed()
				n.from = sizeOf(t, n.log)
				err := n.do(j)
				t.Log(err)
				assert.Error(t, err)
			})
		}
	}
}

// read sees views and time series but nothing else.
func read(t *testing.T, n *tenant) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(n.uri))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	var reading bson.M
	require.NoError(t, client.Database(n.name).Collection("readings.flat").FindOne(t.Context(), bson.D{{Key: "sensorId", Value: "s-3"}}).Decode(&reading))
	assert.Equal(t, "s-3", reading["sensorId"])
	require.ErrorContains(t, client.Database(n.name).Collection("readings").FindOne(t.Context(), bson.D{}).Err(), "not authorized")
	_, err = client.Database(n.name).Collection("readings.flat").InsertOne(t.Context(), bson.D{})
	require.Error(t, err)

	series := client.Database(n.name).Collection("series")
	require.NoError(t, series.FindOne(t.Context(), bson.D{{Key: "sensor.id", Value: "s-3"}}).Decode(&reading))
	assert.Contains(t, reading, "t")
	var means []bson.M
	cursor, err := series.Aggregate(t.Context(), mongo.Pipeline{{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: "$sensor.id"}, {Key: "mean", Value: bson.D{{Key: "$avg", Value: "$t"}}},
	}}}})
	require.NoError(t, err)
	require.NoError(t, cursor.All(t.Context(), &means))
	assert.Len(t, means, 10)
	_, err = series.InsertOne(t.Context(), bson.D{{Key: "ts", Value: time.Now()}})
	require.ErrorContains(t, err, "not authorized")
	require.ErrorContains(t, client.Database(n.name).Collection("system.buckets.series").FindOne(t.Context(), bson.D{}).Err(), "not authorized")
}

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

// nobody is an admin listener that does not answer: a command then works on
// MongoDB alone.
const nobody = "127.0.0.1:1"

// seed has a daemon of the owner's store readings in the tenant's database.
func (n *tenant) seed() {
	n.t.Helper()
	mine := n.uri
	owner, err := os.ReadFile(n.server.URIFile())
	require.NoError(n.t, err)
	n.uri = strings.TrimSpace(string(owner))
	d := n.serve(filepath.Join(n.t.TempDir(), "data"), "retention: 90d\nstreams:\n  readings: {}\n  series: {storage: timeseries}\n")
	n.uri = mine
	d.AwaitLog("ready")
	var body strings.Builder
	for i := range 500 {
		fmt.Fprintf(&body, `{"sensorId":"s-%d","fields":{"t":%d.5}}`+"\n", i%10, i)
	}
	for _, stream := range []string{"readings", "series"} {
		_, err = d.ask(http.MethodPost, d.http+"/v1/streams/"+stream+"/readings?ack=stored", body.String())
		require.NoError(n.t, err)
	}
	require.Zero(n.t, d.Stop())
}

// A job is what one role is for.
type job struct {
	role     string
	commands []string // in this order; all must succeed
}

func jobs() map[string]job {
	const compact = "compact --all --force --free-at-least 0% --free-bytes-at-least 0 --admin " + nobody
	return map[string]job{
		"doctor":      {roles.Doctor, []string{"doctor --over 1s --admin " + nobody}},
		"compact":     {roles.Compact, []string{compact}},
		"recompress":  {roles.Move, []string{"recompress --to zstd --swap replace"}},
		"granularity": {roles.Move, []string{"migrate --granularity 1h --swap replace", "migrate --granularity 1h --drop-old --no-daemon"}},
		"storage": {roles.Move, []string{
			"migrate --storage timeseries --no-daemon", "migrate --storage timeseries --drop-old --no-daemon",
			"migrate --storage bucket --no-daemon", "migrate --storage bucket --drop-old --no-daemon",
		}},
	}
}

// do runs the commands of a job.
func (n *tenant) do(j job) error {
	for _, command := range j.commands {
		code, output := n.brim(append(strings.Fields(command), "--admin", nobody)...)
		healthy := code == 0 || j.role == roles.Doctor && (code == 10 || code == 20)
		n.t.Logf("%s: %d: %s", command, code, output)
		if refused := slices.DeleteFunc(n.refused(), tried); len(refused) > 0 {
			return fmt.Errorf("%s: refused: %s", command, strings.Join(refused, "\n"))
		}
		if !healthy {
			return fmt.Errorf("%s: exit code %d: %s", command, code, output)
		}
	}
	return nil
}

// tried reports whether what was refused is an exchange in one step, which wants
// every right there is, and without which the commands do.
func tried(refused string) bool { return strings.Contains(refused, "applyOps") }

// spare are actions that a job needs only at other times.
func spare(action string) bool {
	return slices.Contains([]string{
		"killop", // of a compaction that is interrupted
	}, action)
}

// TestCommandsNeedAllOfTheirRoles is as for serve. All of it takes minutes.
func TestCommandsNeedAllOfTheirRoles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{roles.Doctor, roles.Compact, roles.Move} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for action, less := range lessOf(t, name) {
				if spare(action) || os.Getenv(longForm) == "" && action != "compact" && action != "collMod" {
					continue
				}
				err := s.doAll(name, less)
				t.Logf("without %s: %v", action, err)
				assert.Error(t, err, "without %s", action)
			}
		})
	}
}

// doAll runs the jobs that a role is for with these rights, until one goes wrong.
func (s *site) doAll(role string, rights roles.Role) error {
	s.t.Helper()
	for name, j := range jobs() {
		if j.role != role {
			continue
		}
		n := s.tenant(rights)
		n.seed()
		n.from = sizeOf(s.t, n.log)
		if err := n.do(j); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func TestAReaderSeesViewsAndTimeSeriesAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.tenant(role(t, roles.Reader))
	n.seed()
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

func TestCommandsNeedNoMoreThanTheirRoles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, j := range jobs() {
		n := s.tenant(role(t, j.role))
		n.seed()
		n.from = sizeOf(t, n.log)
		assert.NoError(t, n.do(j), name)
	}
}

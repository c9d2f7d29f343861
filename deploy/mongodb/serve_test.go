package mongodb_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// lives are configurations for one daemon after another, covering everything that a
// daemon creates, changes and removes.
func lives() []string {
	return []string{
		"streams:\n" +
			"  readings: {storage: bucket, retention: 90d, view: on}\n" +
			"  series: {storage: timeseries, retention: 90d}\n" +
			"  events: {storage: bucket, retention: 90d, view: on}\n" +
			"  traces: {storage: timeseries, retention: 90d}\n",
		"streams:\n" +
			"  readings: {storage: bucket, retention: 30d, view: on}\n" +
			"  series: {storage: timeseries, retention: 30d}\n" +
			"  events: {storage: bucket, retention: 0, view: off}\n" +
			"  traces: {storage: timeseries, retention: 0}\n",
	}
}

// liveAll runs all lives, and stops as soon as the server refuses something.
func liveAll(n *tenant) error {
	dir := filepath.Join(n.t.TempDir(), "data")
	for i, config := range lives() {
		d := n.serve(dir, config)
		err := d.live(i)
		if code := d.Stop(); err == nil && code != 0 {
			err = fmt.Errorf("life %d: exit code %d", i, code)
		}
		if refused := n.refused(); err == nil && len(refused) > 0 {
			err = fmt.Errorf("life %d: refused: %s", i, refused[0])
		}
		if err != nil {
			return err
		}
	}
	return askTooMuch(n, dir)
}

// askTooMuch starts a daemon that must discover that the server has too few
// members for its stream.
func askTooMuch(n *tenant, dir string) error {
	d := n.serve(dir, "streams:\n  readings: {write-concern: 2}\n  series: {storage: timeseries}\n")
	err := d.until("the refusal of a write-concern", func() bool { return strings.Contains(d.Logged(), "allowed: majority and 1 to 1") })
	if err != nil {
		d.Kill()
	} else if d.Wait() == 0 { // without being stopped
		err = errors.New("the daemon with too high a write-concern ends as if all was well")
	}
	return err
}

func (d *daemon) live(i int) error {
	if err := d.until("readiness", func() bool { return strings.Contains(d.Logged(), `"msg":"ready"`) }); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"sensorId":"s-%d","fields":{"t":1.5}}`, i)
	for _, stream := range []string{"readings", "series"} {
		for range 3 {
			if _, err := d.ask(http.MethodPost, d.http+"/v1/streams/"+stream+"/readings?ack=stored", body); err != nil {
				return err
			}
		}
		for _, path := range []string{"/v1/sensors?", "/v1/sensors/s-%d/latest?", "/v1/sensors/s-%d/readings?", "/v1/sensors/s-%d/summary?every=1m&" + lastHour() + "&"} {
			path = strings.Replace(path, "%d", strconv.Itoa(i), 1)
			answer, err := d.ask(http.MethodGet, d.http+path+"stream="+stream, "")
			if err != nil {
				return err
			}
			if strings.TrimSpace(answer) == "" {
				return fmt.Errorf("%s of %s is empty", path, stream)
			}
		}
		if _, err := d.ask(http.MethodDelete, fmt.Sprintf("%s/v1/sensors/s-%d?stream=%s", d.http, i, stream), ""); err != nil {
			return err
		}
	}
	return d.until("the storage engine's figures", func() bool {
		metrics, err := d.ask(http.MethodGet, d.admin+"/metrics", "")
		return err == nil && strings.Contains(metrics, "\nbrim_mongodb_cache_dirty_bytes ") && !strings.Contains(metrics, `brim_storage_health{signal="cache_dirty"} -1`)
	})
}

// lastHour returns the parameters of a time span around now.
func lastHour() string {
	now := time.Now().UTC()
	return url.Values{"from": {now.Add(-time.Hour).Format(time.RFC3339)}, "to": {now.Add(time.Hour).Format(time.RFC3339)}}.Encode()
}

// longForm is set for runs that may take minutes.
const longForm = "BRIM_TEST_LONG"

//nolint:tparallel // the log of one server does not name users
func TestRoleOfServe(t *testing.T) {
	t.Parallel()
	all := newSite(t)
	t.Run("nothing is refused with it", func(t *testing.T) {
		n := all.in(t).tenant(role(t, roles.Serve))
		require.NoError(t, liveAll(n))
		assert.Empty(t, n.refused())
	})
	// Without any one of its actions, something is refused: otherwise the role is too wide.
	for action, less := range lessOf(t, roles.Serve) {
		if os.Getenv(longForm) == "" && !slices.Contains([]string{"dropCollection", "serverStatus", "replSetGetConfig"}, action) {
			continue
		}
		t.Run("without "+action, func(t *testing.T) {
			err := liveAll(all.in(t).tenant(less))
			t.Log(err)
			assert.Error(t, err)
		})
	}
	t.Run("a missing right is reported, and nothing is lost", func(t *testing.T) { withoutRights(t, all.in(t).tenant(role(t, roles.Serve))) })
	// Without a cluster, the server can only check that the resources and actions exist.
	t.Run("roles of a cluster can be made", func(t *testing.T) {
		for _, name := range []string{roles.Shard, roles.Shards} {
			all.in(t).tenant(role(t, name))
		}
	})
}

// lessOf returns a role without one of its actions, for each of them.
func lessOf(t *testing.T, name string) map[string]roles.Role {
	t.Helper()
	out := make(map[string]roles.Role)
	for i, p := range role(t, name).Privileges {
		for j, action := range p.Actions {
			less := role(t, name)
			less.Privileges[i].Actions = slices.Delete(less.Privileges[i].Actions, j, j+1)
			out[action] = less
		}
	}
	return out
}

// withoutRights revokes privileges from a running daemon, and restores them.
func withoutRights(t *testing.T, n *tenant) {
	t.Helper()
	d := n.serve(filepath.Join(t.TempDir(), "data"), "stored-timeout: 100ms\nstreams:\n  readings: {}\n  series: {storage: timeseries}\n")
	d.AwaitLog("ready")
	n.grant(lessOf(t, roles.Serve)["update"])
	answer, err := d.ask(http.MethodPost, d.http+"/v1/readings?ack=stored", `{"sensorId":"s-1","fields":{"t":1}}`)
	require.NoError(t, err)
	assert.Contains(t, answer, `"ack":"journaled"`, "it waits, and is no poison")
	n.grant(lessOf(t, roles.Serve)["remove"])
	for _, stream := range []string{"readings", "series"} {
		answer, err = d.ask(http.MethodDelete, d.http+"/v1/sensors/s-1?stream="+stream, "")
		require.ErrorContains(t, err, "403", answer)
		require.ErrorContains(t, err, "delete_not_granted", "and not that it is unknown")
	}
	mongodtest.Native(t, "the doctor cannot sample its disk")
	n.grant(lessOf(t, roles.Serve)["serverStatus"])
	said := d.AwaitLog("doctor: cannot sample")
	assert.Contains(t, said["why"], "serverStatus")
	_, err = d.ask(http.MethodPost, d.admin+"/flush?timeout=30s", "")
	require.NoError(t, err)
	d.Await("signals that cannot be seen", func() bool {
		metrics, err := d.ask(http.MethodGet, d.admin+"/metrics", "")
		return err == nil && strings.Contains(metrics, `brim_storage_health{signal="cache_dirty"} -1`)
	})
	count, err := n.owner.Client().Database(n.name).Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "sensorId", Value: "s-1"}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, count)
}

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// Ports of the image.
const (
	httpPort  nat.Port = "8430/tcp"
	grpcPort  nat.Port = "8431/tcp"
	adminPort nat.Port = "8432/tcp"
)

// An imageScene is a network with a MongoDB, and a volume for Brim's journal.
type imageScene struct {
	t       *testing.T
	network *testcontainers.DockerNetwork
	mongo   testcontainers.Container
	volume  string
}

func newImageScene(t *testing.T) *imageScene {
	t.Helper()
	image := images.Mongo(t) // skips the test if there is no engine
	said := testcontainers.WithLogger(log.TestLogger(t))
	n, err := network.New(t.Context())
	require.NoError(t, err)
	testcontainers.CleanupNetwork(t, n)
	s := &imageScene{t: t, network: n, volume: fmt.Sprintf("brim-test-%d", time.Now().UnixNano())}
	s.mongo, err = testcontainers.Run(t.Context(), image, testcontainers.WithCmd("mongod", "--replSet", "rs0", "--bind_ip_all", "--wiredTigerCacheSizeGB", "0.25"),
		testcontainers.WithExposedPorts("27017/tcp"), network.WithNetwork([]string{"mongo"}, n), said,
		testcontainers.WithWaitStrategyAndDeadline(brimtest.Patience, wait.ForLog("Waiting for connections")))
	testcontainers.CleanupContainer(t, s.mongo)
	require.NoError(t, err)
	member := bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: "mongo:27017"}}
	initiate := bson.D{{Key: "replSetInitiate", Value: bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{member}}}}}
	require.NoError(t, s.client().Database("admin").RunCommand(t.Context(), initiate).Err())
	return s
}

// client connects to MongoDB from outside. Its port changes with each start.
func (s *imageScene) client() *mongo.Client {
	s.t.Helper()
	endpoint, err := s.mongo.PortEndpoint(s.t.Context(), "27017/tcp", "")
	require.NoError(s.t, err)
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + endpoint + "/?directConnection=true").SetTimeout(brimtest.Patience))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// A daemon is a container of Brim.
type daemon struct {
	testcontainers.Container

	t     *testing.T
	ready time.Duration // from the run command until it accepts readings
}

// brim runs Brim's image as a cautious operator would: read-only except for the
// volume, and without privileges.
func (s *imageScene) brim() *daemon {
	s.t.Helper()
	image := images.Brim(s.t)
	begin := time.Now()
	c, err := testcontainers.Run(s.t.Context(), image,
		testcontainers.WithEnv(map[string]string{"BRIM_MONGO_URI": "mongodb://mongo:27017/?replicaSet=rs0", "BRIM_ALLOW_UNAUTHENTICATED": "on", "BRIM_LOG_FORMAT": "json", "BRIM_STORED_TIMEOUT": brimtest.Patience.String()}),
		testcontainers.WithExposedPorts(string(httpPort), string(grpcPort), string(adminPort)), network.WithNetwork([]string{"brim"}, s.network),
		testcontainers.WithMounts(testcontainers.VolumeMount(s.volume, "/data")),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.ReadonlyRootfs, h.CapDrop, h.SecurityOpt = true, []string{"ALL"}, []string{"no-new-privileges:true"}
		}),
		testcontainers.WithLogger(log.TestLogger(s.t)),
		testcontainers.WithWaitStrategyAndDeadline(brimtest.Patience, wait.ForHTTP("/readyz").WithPort(adminPort).WithPollInterval(20*time.Millisecond)))
	testcontainers.CleanupContainer(s.t, c, testcontainers.RemoveVolumes(s.volume))
	require.NoError(s.t, err)
	d := &daemon{Container: c, t: s.t, ready: time.Since(begin)}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("log of Brim:\n%s", d.logged())
		}
	})
	return d
}

func (d *daemon) logged() string {
	reader, err := d.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	text, _ := io.ReadAll(reader)
	return string(text)
}

// ask sends a request to a port and requires this status code.
func (d *daemon) ask(code int, method string, port nat.Port, path, body string) string {
	d.t.Helper()
	endpoint, err := d.PortEndpoint(d.t.Context(), port, "http")
	require.NoError(d.t, err)
	got, answer, err := brimtest.Ask(method, endpoint+path, body)
	require.NoError(d.t, err)
	require.Equal(d.t, code, got, answer)
	return answer
}

// post sends n readings of a sensor, from second on, one each second.
func (d *daemon) post(sensor string, second, n int, query string) {
	d.t.Helper()
	var body strings.Builder
	from := time.Now().Add(-time.Hour).Truncate(time.Hour)
	for i := range n {
		fmt.Fprintf(&body, `{"sensorId":%q,"ts":%d,"fields":{"n":%d}}`+"\n", sensor, from.Add(time.Duration(second+i)*time.Second).UnixMilli(), second+i)
	}
	answer := d.ask(http.StatusOK, http.MethodPost, httpPort, "/v1/readings"+query, body.String())
	require.Contains(d.t, answer, fmt.Sprintf(`"accepted":%d,"rejected":0`, n))
}

// readBack returns the values of a sensor's field n in time order.
func (d *daemon) readBack(sensor string) (values []int) {
	d.t.Helper()
	answer := d.ask(http.StatusOK, http.MethodGet, httpPort, "/v1/sensors/"+sensor+"/readings?limit=100000&from=2020-01-01T00:00:00Z", "")
	var page struct {
		Readings []struct{ Fields struct{ N int } }
	}
	require.NoError(d.t, json.Unmarshal([]byte(answer), &page), answer)
	for _, r := range page.Readings {
		values = append(values, r.Fields.N)
	}
	return values
}

// stop ends the container like `docker stop`, with more patience for a busy
// machine, and returns how long that took.
func (d *daemon) stop() time.Duration {
	d.t.Helper()
	begin, grace := time.Now(), brimtest.Patience
	require.NoError(d.t, d.Stop(d.t.Context(), &grace))
	took := time.Since(begin)
	state, err := d.State(d.t.Context())
	require.NoError(d.t, err)
	require.Zero(d.t, state.ExitCode, d.logged())
	require.Contains(d.t, d.logged(), `"msg":"stopped"`)
	return took
}

package deploy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// maxImageBytes is the size limit of the image, which is little more than the binary.
const maxImageBytes = 60 << 20

// The image has what it should and no more.
func TestImageIsSmallAndHasNoRoot(t *testing.T) {
	t.Parallel()
	image := images.Brim(t)
	out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", image).Output()
	require.NoError(t, err)
	var found []struct {
		Size   int64
		Config struct {
			User         string
			Entrypoint   []string
			Cmd          []string
			ExposedPorts map[string]struct{}
			Volumes      map[string]struct{}
		}
	}
	require.NoError(t, json.Unmarshal(out, &found))
	require.Len(t, found, 1)
	t.Logf("the image has %.1f MB", float64(found[0].Size)/1e6)
	assert.Less(t, found[0].Size, int64(maxImageBytes))
	config := found[0].Config
	assert.Equal(t, "65532:65532", config.User)
	assert.Equal(t, []string{"brim"}, config.Entrypoint)
	assert.Equal(t, []string{"serve"}, config.Cmd)
	assert.Contains(t, config.Volumes, "/data")
	for _, port := range []nat.Port{httpPort, grpcPort, adminPort} {
		assert.Contains(t, config.ExposedPorts, string(port))
	}
}

// runOnce runs one command in the image and returns its output.
func runOnce(t *testing.T, options []string, args ...string) (code int, said string) {
	t.Helper()
	image := images.Brim(t)
	ctx, cancel := context.WithTimeout(t.Context(), brimtest.Patience)
	defer cancel()
	all := append(append([]string{"run", "--rm", "--network", "none", "--read-only"}, options...), image)
	cmd := exec.CommandContext(ctx, "docker", append(all, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestImageSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		options, args []string
		code          int
		says          string
	}{
		"a version is printed":                    {nil, []string{"version"}, 0, "linux/"},
		"the image's settings are known":          {nil, []string{"config", "print"}, 0, "/data"},
		"access without tokens has to be allowed": {[]string{"-e", "BRIM_MONGO_URI=mongodb://mongo"}, nil, 2, "--allow-unauthenticated on"},
		"another command takes them, too":         {nil, []string{"query", "s-1"}, 1, "no daemon answers"},
		"there is no mongod":                      {[]string{"-e", "BRIM_ALLOW_UNAUTHENTICATED=on"}, nil, 1, `use mongod "mongod"`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			code, said := runOnce(t, row.options, row.args...)
			assert.Equal(t, row.code, code, said)
			assert.Contains(t, said, row.says)
		})
	}
}

func TestImageTakesReadingsAndKeepsThemOverItsEnd(t *testing.T) {
	t.Parallel()
	s := newImageScene(t)
	b := s.brim()
	t.Logf("ready %s after the order to run it", b.ready.Round(time.Millisecond))
	b.post("s-1", 0, 500, "?ack=stored")
	writeByGRPC(t, b)
	metrics := b.ask(http.StatusOK, http.MethodGet, adminPort, "/metrics", "")
	assert.Contains(t, metrics, `brim_ingest_readings_total{protocol="http"} 500`)
	assert.Contains(t, metrics, `brim_ingest_readings_total{protocol="grpc"} 1`)

	// MongoDB goes away; readings acknowledged from now on are only in the volume.
	grace := brimtest.Patience
	require.NoError(t, s.mongo.Stop(t.Context(), &grace))
	b.post("s-1", 500, 200, "")
	t.Logf("stopped within %s, without MongoDB", b.stop().Round(time.Millisecond))
	require.NoError(t, b.Terminate(t.Context()))

	// The next daemon finds them there, and is killed.
	b = s.brim()
	b.post("s-1", 700, 100, "")
	_, err := exec.CommandContext(t.Context(), "docker", "kill", b.GetContainerID()).Output()
	require.NoError(t, err)
	require.NoError(t, b.Terminate(t.Context()))

	require.NoError(t, s.mongo.Start(t.Context()))
	b = s.brim()
	b.ask(http.StatusOK, http.MethodPost, adminPort, "/flush?timeout=60s", "")
	want := make([]int, 800)
	for i := range want {
		want[i] = i
	}
	assert.Equal(t, want, b.readBack("s-1"))
	assert.Equal(t, 801, s.stored())
	b.stop()
}

func writeByGRPC(t *testing.T, b *daemon) {
	t.Helper()
	endpoint, err := b.PortEndpoint(t.Context(), grpcPort, "")
	require.NoError(t, err)
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	response, err := telemetrypb.NewIngestServiceClient(conn).Write(t.Context(), &telemetrypb.WriteRequest{
		Readings: []*telemetrypb.Reading{{SensorId: "grpc", Fields: []*telemetrypb.Field{{Name: "t", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 3}}}}},
	})
	require.NoError(t, err)
	assert.EqualValues(t, 1, response.GetAccepted())
}

// stored counts the readings in MongoDB's documents.
func (s *imageScene) stored() (n int) {
	s.t.Helper()
	cursor, err := s.client().Database("brim").Collection("readings").Find(s.t.Context(), bson.D{})
	require.NoError(s.t, err)
	var buckets []struct {
		Measurements []bson.Raw
	}
	require.NoError(s.t, cursor.All(s.t.Context(), &buckets))
	for _, b := range buckets {
		n += len(b.Measurements)
	}
	return n
}

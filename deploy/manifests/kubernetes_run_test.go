package manifests_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	core "k8s.io/api/core/v1"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A pod is a container's environment on this machine: its volumes are folders
// in a test folder, laid out like the kubelet's.
type pod struct {
	t      testing.TB
	root   string
	spec   core.PodSpec
	secret map[string]map[string]string // contents of Secrets, by name
	extra  []string                     // variables in addition to the manifest's
}

// pod creates the environment, with the example secrets.
func (c *cluster) pod(spec core.PodSpec) *pod {
	c.t.Helper()
	secrets := make(map[string]map[string]string)
	for name := range c.objects {
		if name, ok := strings.CutPrefix(name, "Secret "); ok {
			secrets[name] = of[*core.Secret](c, "Secret "+name).StringData
		}
	}
	return c.podWith(c.t.TempDir(), spec, secrets)
}

// podWith creates it in a folder, with other secrets.
func (c *cluster) podWith(root string, spec core.PodSpec, secrets map[string]map[string]string) *pod {
	c.t.Helper()
	p := &pod{t: c.t, root: root, spec: spec, secret: secrets}
	for _, m := range spec.Containers[0].VolumeMounts {
		require.NoError(c.t, os.MkdirAll(p.path(m.MountPath), 0o750))
		for _, v := range spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.ConfigMap != nil:
				files := make(map[string]string)
				for name, text := range of[*core.ConfigMap](c, "ConfigMap "+v.ConfigMap.Name).Data {
					files[name] = p.place(text)
				}
				p.project(m.MountPath, files)
			case v.Secret != nil:
				p.project(m.MountPath, secrets[v.Secret.SecretName])
			}
		}
	}
	return p
}

// path maps a path in the container to this machine.
func (p *pod) path(inside string) string { return filepath.Join(p.root, inside) }

// place maps the paths in a text to this machine.
func (p *pod) place(text string) string {
	return strings.ReplaceAll(text, "/etc/brim/", p.path("/etc/brim")+"/")
}

// project writes the files of a volume like the kubelet: into a timestamped
// folder that the link ..data is then switched to atomically.
func (p *pod) project(mount string, files map[string]string) {
	p.t.Helper()
	at := p.path(mount)
	now, err := os.MkdirTemp(at, "..2026_11_22_")
	require.NoError(p.t, err)
	require.NoError(p.t, os.Chmod(now, 0o755))
	for name, text := range files {
		require.NoError(p.t, os.WriteFile(filepath.Join(now, name), []byte(text), 0o440))
		link := filepath.Join(at, name)
		if _, err := os.Lstat(link); err != nil {
			require.NoError(p.t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	require.NoError(p.t, os.Symlink(filepath.Base(now), filepath.Join(at, "..data_tmp")))
	require.NoError(p.t, os.Rename(filepath.Join(at, "..data_tmp"), filepath.Join(at, "..data")))
}

// env is the environment of image and manifest, and what Kubernetes adds for
// Services in a pod that enables it.
func (p *pod) env() []string {
	p.t.Helper()
	env := []string{"BRIM_SERVICE_HOST=10.0.0.7", "BRIM_PORT_8430_TCP=tcp://10.0.0.7:8430"}
	for _, pair := range imageEnv(p.t) {
		env = append(env, strings.Replace(pair, "=/data", "="+p.path("/data"), 1))
	}
	fields := map[string]string{"metadata.name": "brim-0", "metadata.namespace": "brim"}
	var known []string // for references in later ones
	for _, e := range p.spec.Containers[0].Env {
		value := strings.NewReplacer(known...).Replace(e.Value)
		if e.ValueFrom != nil {
			require.Contains(p.t, fields, e.ValueFrom.FieldRef.FieldPath)
			value = fields[e.ValueFrom.FieldRef.FieldPath]
		}
		known = append(known, "$("+e.Name+")", value)
		env = append(env, e.Name+"="+value)
	}
	return append(env, p.extra...)
}

func (p *pod) args() (args []string) {
	for _, arg := range p.spec.Containers[0].Args {
		args = append(args, p.place(arg))
	}
	return args
}

// start runs the container's command.
func (p *pod) start() *brimtest.Process {
	p.t.Helper()
	cmd := exec.Command(binary.Path(p.t), p.args()...)
	cmd.Env = append(brimtest.Env(), p.env()...)
	return brimtest.Start(p.t, cmd, syscall.SIGKILL)
}

// A caller sends requests to a daemon over TLS.
type caller struct {
	t     testing.TB
	trust *tls.Config
	token string
}

func (c caller) ask(method, url, body string) (code int, answer string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), brimtest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(c.t, err)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	transport := &http.Transport{TLSClientConfig: c.trust}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode, string(text)
}

// TestAPodsLife runs the daemon like a pod: probes succeed, Prometheus gets
// metrics, readings are accepted, and a changed Secret takes effect. Then the pod
// is lost, and the Job, with its own volumes, stores what the journal holds.
func TestAPodsLife(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	c := readCluster(t)
	authority := accesstest.NewAuthority(t, "test")
	pair := authority.Server("brim", time.Now().Add(time.Hour))
	file := filepath.Join(t.TempDir(), "access.yaml")
	token := func(name, scope string) string {
		cmd := exec.CommandContext(t.Context(), binary.Path(t), "token", "create", name, "--scope", scope, "--access-file", file)
		cmd.Env = brimtest.Env()
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	sensors, prometheus := token("sensors", "ingest"), token("prometheus", "read")
	secrets := map[string]map[string]string{
		"brim-mongo":  {"uri": mongodtest.URI(t) + "\n"},
		"brim-access": {"access.yaml": readText(t, file)},
		"brim-tls":    {"tls.crt": string(pair.Cert), "tls.key": string(pair.Key), "ca.crt": string(authority.PEM)},
	}
	spec := c.daemons().Spec.Template.Spec
	p := c.podWith(t.TempDir(), spec, secrets)
	p.extra = []string{
		"BRIM_HTTP_ADDR=127.0.0.1:0", "BRIM_GRPC_ADDR=127.0.0.1:0", "BRIM_ADMIN_ADDR=127.0.0.1:0", // the ports may be in use here
		"BRIM_DATABASE=" + db.Name(), "BRIM_FLUSH_INTERVAL=1h", // leaves something to adopt
	}
	brim := p.start()
	brim.AwaitLog("ready")
	listening := brim.AwaitLog("listening")
	admin, data := "https://"+listening["admin"].(string), "https://"+listening["http"].(string)

	kubelet := caller{t: t, trust: &tls.Config{InsecureSkipVerify: true}} // as the kubelet does
	for _, probe := range []*core.Probe{spec.Containers[0].StartupProbe, spec.Containers[0].ReadinessProbe, spec.Containers[0].LivenessProbe} {
		code, answer := kubelet.ask(http.MethodGet, admin+probe.HTTPGet.Path, "")
		assert.Equal(t, http.StatusOK, code, answer)
	}
	endpoint := of[*monitoring.ServiceMonitor](c, "ServiceMonitor brim").Spec.Endpoints[0]
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(secrets[endpoint.TLSConfig.CA.Secret.Name][endpoint.TLSConfig.CA.Secret.Key])))
	trust := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	code, answer := caller{t, trust, prometheus}.ask(http.MethodGet, admin+endpoint.Path, "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, answer, "brim_journal_bytes")
	code, _ = caller{t, trust, ""}.ask(http.MethodGet, admin+endpoint.Path, "")
	assert.Equal(t, http.StatusUnauthorized, code)

	client := caller{t, trust, sensors}
	code, answer = client.ask(http.MethodPost, data+"/v1/readings", `[{"sensorId":"a","fields":{"t":1}},{"sensorId":"a","fields":{"t":2}},{"sensorId":"b","fields":{"t":3}}]`)
	require.Equal(t, http.StatusOK, code, answer)
	p.project("/etc/brim/access", map[string]string{"access.yaml": "identities: []\n"})
	taken := 3
	brim.Await("the token to be taken away", func() bool {
		code, _ = client.ask(http.MethodPost, data+"/v1/readings", `{"sensorId":"c","fields":{"t":4}}`)
		if code == http.StatusOK {
			taken++
		}
		return code == http.StatusUnauthorized
	})
	brim.Kill()
	for _, warning := range []string{"may read", "may write", "travel in clear", "open beyond this machine"} {
		assert.NotContains(t, brim.Logged(), warning, "what the manifests do is nothing to be warned of")
	}
	require.Zero(t, storedIn(t, db), "nothing was flushed yet")

	require.NoError(t, os.RemoveAll(p.path("/etc"))) // the Job mounts less
	job := c.podWith(p.root, c.adopting().Spec.Template.Spec, secrets)
	require.NoDirExists(t, job.path("/etc/brim/access"))
	job.extra = []string{"BRIM_DATABASE=" + db.Name()}
	out, err := binary.Run(t, job.env(), job.args()...)
	require.NoError(t, err, out)
	assert.Regexp(t, fmt.Sprintf(`(?m)^%s readings stored in .*, 0 left in the journal$`, humanize.Comma(int64(taken))), out)
	assert.Equal(t, taken, storedIn(t, db))
	out, err = binary.Run(t, job.env(), job.args()...)
	require.NoError(t, err, out)
	assert.Regexp(t, `(?m)^0 readings stored in .*, 0 left in the journal$`, out, "the Job may run again")
	assert.Equal(t, taken, storedIn(t, db), "and stores nothing twice")
}

// storedIn counts the readings in a database's bucket documents.
func storedIn(t testing.TB, db *mongo.Database) (n int) {
	t.Helper()
	cursor, err := db.Collection("readings").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var buckets []struct{ Count int }
	require.NoError(t, cursor.All(t.Context(), &buckets))
	for _, b := range buckets {
		n += b.Count
	}
	return n
}

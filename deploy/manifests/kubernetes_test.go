package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A cluster is the objects in the manifests, by kind and name.
type cluster struct {
	t       testing.TB
	objects map[string]runtime.Object
}

// add decodes manifests into the types of the Kubernetes API and rejects
// unknown and duplicate keys.
func (c *cluster) add(source, text string) {
	c.t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		object, err := strictly(document)
		require.NoError(c.t, err, "%s\n%s", source, document)
		named, ok := object.(meta.Object)
		require.True(c.t, ok, source)
		kind := object.GetObjectKind().GroupVersionKind().Kind
		c.objects[kind+" "+named.GetName()] = object
		assert.Contains(c.t, named.GetLabels(), "app.kubernetes.io/name", "%s %s", kind, named.GetName())
		assert.Empty(c.t, named.GetNamespace(), "they go where they are put")
	}
}

func strictly(document string) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := decoder.Decode([]byte(document), nil, nil)
	return object, err
}

// readCluster decodes everything: the output of the two kustomizations, and the
// two files that are applied on their own.
func readCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, objects: make(map[string]runtime.Object)}
	for _, dir := range []string{"kubernetes", "kubernetes/monitoring"} {
		c.add(dir, kustomized(t, dir))
	}
	for _, path := range []string{"kubernetes/adopt-journal.yaml", "kubernetes/secrets.example.yaml"} {
		c.add(path, readText(t, path))
	}
	return c
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// kustomized is what `kubectl apply -k` would apply. Without kubectl it is
// assembled here, to the extent that these kustomizations need.
func kustomized(t testing.TB, dir string) string {
	t.Helper()
	if path, err := exec.LookPath("kubectl"); err == nil {
		out, err := exec.CommandContext(t.Context(), path, "kustomize", dir).Output()
		require.NoError(t, err)
		return string(out)
	}
	var k struct {
		APIVersion         string `yaml:"apiVersion"`
		Kind               string
		Resources          []string
		ConfigMapGenerator []struct {
			Name    string
			Files   []string
			Options struct {
				DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
				Labels                map[string]string
			}
		} `yaml:"configMapGenerator"`
	}
	decode(t, filepath.Join(dir, "kustomization.yaml"), &k)
	var documents []string
	for _, resource := range k.Resources {
		documents = append(documents, readText(t, filepath.Join(dir, resource)))
	}
	for _, g := range k.ConfigMapGenerator {
		require.True(t, g.Options.DisableNameSuffixHash)
		document := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  labels: {app.kubernetes.io/name: brim}\ndata:\n", g.Name)
		for _, file := range g.Files {
			document += fmt.Sprintf("  %s: |\n    %s\n", file, strings.ReplaceAll(readText(t, filepath.Join(dir, file)), "\n", "\n    "))
		}
		documents = append(documents, document)
	}
	return strings.Join(documents, "\n---\n")
}

// of returns the object with this kind and name.
func of[T runtime.Object](c *cluster, name string) T {
	c.t.Helper()
	object, ok := c.objects[name].(T)
	require.True(c.t, ok, "%s is %T", name, c.objects[name])
	return object
}

func (c *cluster) daemons() *apps.StatefulSet { return of[*apps.StatefulSet](c, "StatefulSet brim") }
func (c *cluster) adopting() *batch.Job       { return of[*batch.Job](c, "Job brim-adopt-2") }
func (c *cluster) service(name string) *core.Service {
	return of[*core.Service](c, "Service "+name)
}

func TestManifestsDecodeStrictly(t *testing.T) {
	t.Parallel()
	assert.ElementsMatch(t, []string{
		"ConfigMap brim", "Service brim", "Service brim-pods", "StatefulSet brim", "PodDisruptionBudget brim", "NetworkPolicy brim",
		"ServiceMonitor brim", "PrometheusRule brim", "Job brim-adopt-2",
		"Secret brim-mongo", "Secret brim-access", "Secret brim-tls", "Secret brim-prometheus",
	}, slices.Collect(maps.Keys(readCluster(t).objects)))

	files, err := filepath.Glob("kubernetes/*/*.yaml")
	require.NoError(t, err)
	more, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	for _, path := range append(files, more...) {
		if name := filepath.Base(path); name == "kustomization.yaml" || name == "brim.yaml" {
			continue
		}
		(&cluster{t: t, objects: make(map[string]runtime.Object)}).add(path, readText(t, path))
	}

	stateful := readText(t, "kubernetes/statefulset.yaml")
	for old, wrong := range map[string]string{"replicas: 2": "replica: 2", "readOnlyRootFilesystem": "readonlyRootFilesystem", "kind: StatefulSet": "kind: StatefulSets", "replicas: 2 ": "replicas: 2\n  replicas: 3 "} {
		_, err := strictly(strings.Replace(stateful, old, wrong, 1))
		assert.Error(t, err, wrong)
	}
}

// TestManifestsFitTogether: names, labels and ports match.
func TestManifestsFitTogether(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	pod := c.daemons().Spec.Template
	selects := func(selector *meta.LabelSelector, of map[string]string) bool {
		s, err := meta.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		return !s.Empty() && s.Matches(labels.Set(of))
	}
	adopting := c.adopting().Spec.Template
	selectors := map[string]*meta.LabelSelector{
		"StatefulSet":         c.daemons().Spec.Selector,
		"PodDisruptionBudget": of[*policy.PodDisruptionBudget](c, "PodDisruptionBudget brim").Spec.Selector,
		"NetworkPolicy":       &of[*networking.NetworkPolicy](c, "NetworkPolicy brim").Spec.PodSelector,
		"Service brim":        {MatchLabels: c.service("brim").Spec.Selector},
		"Service brim-pods":   {MatchLabels: c.service("brim-pods").Spec.Selector},
	}
	for i, spread := range pod.Spec.TopologySpreadConstraints {
		selectors[fmt.Sprintf("spread %d", i)] = spread.LabelSelector
	}
	for who, selector := range selectors {
		assert.True(t, selects(selector, pod.Labels), "%s selects the daemons", who)
		assert.False(t, selects(selector, adopting.Labels), "%s does not select the pod of the Job", who)
	}
	assert.Equal(t, core.ClusterIPNone, c.service(c.daemons().Spec.ServiceName).Spec.ClusterIP)
	assert.Equal(t, core.ServiceAffinityClientIP, c.service("brim").Spec.SessionAffinity)

	ports := make(map[string]int32)
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, name := range []string{"brim", "brim-pods"} {
		for _, p := range c.service(name).Spec.Ports {
			assert.Equal(t, ports[p.TargetPort.StrVal], p.Port, "%s %s", name, p.Name)
			assert.Equal(t, p.Name, p.TargetPort.StrVal)
		}
	}
	for _, rule := range of[*networking.NetworkPolicy](c, "NetworkPolicy brim").Spec.Ingress {
		for _, p := range rule.Ports {
			assert.Contains(t, ports, p.Port.StrVal)
			assert.Equal(t, p.Port.StrVal == "admin", len(rule.From) > 0, "the admin listener is not everybody's, the others are")
		}
	}
	c.monitorFits(ports)
	c.claimFits()
	c.referencesExist(pod.Spec)
	c.referencesExist(adopting.Spec)
}

// monitorFits: Prometheus scrapes one Service, which selects pods.
func (c *cluster) monitorFits(ports map[string]int32) {
	c.t.Helper()
	monitor := of[*monitoring.ServiceMonitor](c, "ServiceMonitor brim")
	selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(c.t, err)
	assert.True(c.t, selector.Matches(labels.Set(c.service("brim-pods").Labels)))
	assert.False(c.t, selector.Matches(labels.Set(c.service("brim").Labels)), "each pod is scraped once")
	require.Len(c.t, monitor.Spec.Endpoints, 1)
	endpoint := monitor.Spec.Endpoints[0]
	assert.Contains(c.t, ports, endpoint.Port)
	assert.True(c.t, slices.ContainsFunc(c.service("brim-pods").Spec.Ports, func(p core.ServicePort) bool { return p.Name == endpoint.Port }))
	require.Len(c.t, endpoint.RelabelConfigs, 1)
	assert.Equal(c.t, "job", endpoint.RelabelConfigs[0].TargetLabel)
	assert.Equal(c.t, "brim", *endpoint.RelabelConfigs[0].Replacement, "what alerts and dashboards ask for")
	c.hasKey(endpoint.Authorization.Credentials.Name, endpoint.Authorization.Credentials.Key)
	c.hasKey(endpoint.TLSConfig.CA.Secret.Name, endpoint.TLSConfig.CA.Secret.Key)
}

// hasKey checks that a Secret has a key.
func (c *cluster) hasKey(secret, key string) {
	c.t.Helper()
	assert.Contains(c.t, of[*core.Secret](c, "Secret "+secret).StringData, key, secret)
}

// claimFits: the Job's claim is one that the StatefulSet creates, and both have
// the same image and privileges.
func (c *cluster) claimFits() {
	c.t.Helper()
	daemons, job := c.daemons().Spec, c.adopting()
	require.Len(c.t, daemons.VolumeClaimTemplates, 1)
	_, number, _ := strings.Cut(job.Name, "brim-adopt-")
	var claim string
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	assert.Equal(c.t, daemons.VolumeClaimTemplates[0].Name+"-"+c.daemons().Name+"-"+number, claim)
	n, err := strconv.Atoi(number)
	require.NoError(c.t, err)
	assert.GreaterOrEqual(c.t, n, int(*daemons.Replicas), "the example is of a pod that is not there")
	pod, adopting := daemons.Template.Spec, job.Spec.Template.Spec
	assert.Equal(c.t, pod.Containers[0].Image, adopting.Containers[0].Image)
	assert.Regexp(c.t, `^ghcr\.io/brim-telemetry/brim:v\d+\.\d+\.\d+$`, pod.Containers[0].Image)
	assert.Equal(c.t, pod.SecurityContext, adopting.SecurityContext)
	assert.Equal(c.t, pod.Containers[0].SecurityContext, adopting.Containers[0].SecurityContext)
	assert.Equal(c.t, apps.RetainPersistentVolumeClaimRetentionPolicyType, daemons.PersistentVolumeClaimRetentionPolicy.WhenScaled)
	assert.Equal(c.t, apps.RetainPersistentVolumeClaimRetentionPolicyType, daemons.PersistentVolumeClaimRetentionPolicy.WhenDeleted)
}

// referencesExist: volumes refer to existing ConfigMaps and Secrets, and mounts
// to volumes.
func (c *cluster) referencesExist(pod core.PodSpec) {
	c.t.Helper()
	volumes := map[string]bool{"data": true}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		switch {
		case v.ConfigMap != nil:
			assert.Contains(c.t, c.objects, "ConfigMap "+v.ConfigMap.Name)
		case v.Secret != nil:
			assert.Contains(c.t, c.objects, "Secret "+v.Secret.SecretName)
			assert.Zero(c.t, *v.Secret.DefaultMode&0o037, "of %s others than the daemon's group", v.Name)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		assert.True(c.t, volumes[m.Name], m.Name)
		assert.Empty(c.t, m.SubPath, "it would never change")
		delete(volumes, m.Name)
	}
	assert.Empty(c.t, volumes, "mounted nowhere")
}

// TestPodsAreConfined to the restricted pod security standard, with a read-only
// root file system.
func TestPodsAreConfined(t *testing.T) {
	t.Parallel()
	pod := readCluster(t).daemons().Spec.Template.Spec // the Job's is the same
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Contains(t, readDockerfile(t), fmt.Sprintf("\nUSER %d:%d\n", *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup))
	assert.Equal(t, pod.SecurityContext.RunAsGroup, pod.SecurityContext.FSGroup)
	assert.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.False(t, *pod.AutomountServiceAccountToken)
	c := pod.Containers[0].SecurityContext
	assert.False(t, *c.AllowPrivilegeEscalation)
	assert.True(t, *c.ReadOnlyRootFilesystem)
	assert.Equal(t, []core.Capability{"ALL"}, c.Capabilities.Drop)
	assert.Empty(t, c.Capabilities.Add)
}

// TestPodFitsTheDaemon: the daemon's settings in the image, with the manifests'
// arguments and configuration, match what the manifests rely on.
func TestPodFitsTheDaemon(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	spec := c.daemons().Spec.Template.Spec
	container := spec.Containers[0]
	p := c.pod(spec)
	require.Equal(t, "serve", container.Args[0])
	set := binary.Settings(t, p.env(), p.args()[1:]...)

	for i, name := range listenerSettings() {
		assert.Equal(t, strconv.Itoa(int(container.Ports[i].ContainerPort)), portOf(set[name]), name)
		assert.Equal(t, ":"+portOf(set[name]), set[name], "others reach it")
	}
	assert.Equal(t, "brim-0."+c.daemons().Spec.ServiceName+".brim.svc:"+portOf(set["http-addr"]), set["advertise-addr"], "one of the certificate's names")
	assert.Equal(t, p.path("/data"), set["data-dir"])
	stop, err := time.ParseDuration(set["stop-timeout"])
	require.NoError(t, err)
	pause := time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	assert.GreaterOrEqual(t, time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second, pause+stop+10*time.Second)
	claim := c.daemons().Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[core.ResourceStorage]
	var gib int64
	_, err = fmt.Sscanf(set["journal-max-bytes"], "%dGiB", &gib)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, claim.Value(), 2*gib<<30, "the journal has room, and what MongoDB refused")
	limit := container.Resources.Limits[core.ResourceMemory]
	var mib int64
	_, err = fmt.Sscanf(container.Env[0].Value, "%dMiB", &mib)
	require.NoError(t, err)
	assert.Equal(t, "GOMEMLIMIT", container.Env[0].Name)
	assert.Less(t, mib<<20, limit.Value())

	written := make(map[string]any)
	decode(t, "kubernetes/brim.yaml", &written)
	for key, value := range written {
		if text, ok := value.(string); ok {
			assert.Equal(t, p.place(text), set[key], "%s counts, and nothing that wins over the file says otherwise", key)
		}
	}
	for _, probe := range []*core.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		assert.Equal(t, core.URISchemeHTTPS, probe.HTTPGet.Scheme)
		assert.Equal(t, intstr.FromString("admin"), probe.HTTPGet.Port)
	}
	out, err := binary.Run(t, nil, "config", "check", p.path("/etc/brim/config/brim.yaml"))
	require.NoError(t, err, out)
}

// The Prometheus operator gets the same alerts as Prometheus; `make generate` copies them.
func TestPrometheusRuleIsTheAlerts(t *testing.T) {
	t.Parallel()
	type rule struct {
		Alert, Record, Expr, For string
		Labels, Annotations      map[string]string
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	decode(t, "prometheus/alerts.yml", &file)
	var want, got []rule
	for _, g := range file.Groups {
		want = append(want, g.Rules...)
	}
	for _, g := range of[*monitoring.PrometheusRule](readCluster(t), "PrometheusRule brim").Spec.Groups {
		for _, r := range g.Rules {
			one := rule{Alert: r.Alert, Record: r.Record, Expr: r.Expr.String(), Labels: r.Labels, Annotations: r.Annotations}
			if r.For != nil {
				one.For = string(*r.For)
			}
			got = append(got, one)
		}
	}
	assert.Equal(t, want, got)
}

// The README's commands refer to existing files and objects.
func TestReadmeOfKubernetes(t *testing.T) {
	t.Parallel()
	c, readme := readCluster(t), readText(t, "README.md")
	for name := range c.objects {
		if secret, ok := strings.CutPrefix(name, "Secret "); ok {
			assert.Regexp(t, `kubectl -n brim create secret (generic|tls) `+secret+` `, readme)
		}
	}
	assert.NotContains(t, readme, "--from-file=token", "the line break of a file would be sent with the token")
	assert.Less(t, strings.LastIndex(readme, "brim token create"), strings.Index(readme, "create secret generic brim-access "), "the Secret has all tokens")
	for _, path := range []string{"kubernetes", "kubernetes/monitoring", "kubernetes/adopt-journal.yaml"} {
		assert.Contains(t, readme, "deploy/"+path)
	}
}

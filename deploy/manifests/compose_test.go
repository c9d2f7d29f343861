package manifests_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const composeFile = "compose/compose.yaml"

// readCompose reads compose.yaml and .env like `docker compose`. Unknown keys
// are errors.
func readCompose(t testing.TB) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithProfiles([]string{"*"}))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

// imageEnv is the environment set by the Dockerfile.
func imageEnv(t testing.TB) []string {
	t.Helper()
	var env []string
	for _, m := range regexp.MustCompile(`(?m)^(?:ENV| {3}) (BRIM_\w+=\S+)`).FindAllStringSubmatch(readDockerfile(t), -1) {
		env = append(env, m[1])
	}
	require.Len(t, env, 6)
	return env
}

func readDockerfile(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("docker/Dockerfile")
	require.NoError(t, err)
	return string(text)
}

// portOf returns what follows the last colon.
func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// listenerSettings are the settings with listen addresses.
func listenerSettings() []string { return []string{"http-addr", "grpc-addr", "admin-addr"} }

func TestComposeFitsTheDaemon(t *testing.T) {
	t.Parallel()
	project := readCompose(t)
	assert.Equal(t, "brim", project.Name)
	brim, err := project.GetService("brim")
	require.NoError(t, err)
	uri := filepath.Join(t.TempDir(), "mongo-uri")
	require.NoError(t, os.WriteFile(uri, []byte("mongodb://brim-serve:p@mongo:27017/?replicaSet=rs0&authSource=admin\n"), 0o600))
	env := imageEnv(t)
	for name, value := range brim.Environment {
		if name == "BRIM_MONGO_URI_FILE" {
			assert.Contains(t, mountsOf(brim), filepath.Dir(*value))
			value = &uri
		}
		env = append(env, name+"="+*value)
	}
	settings := binary.Settings(t, env, brim.Command...)
	assert.Contains(t, mountsOf(brim), settings["data-dir"], "the journal outlives the container")
	assert.Equal(t, "on", settings["allow-unauthenticated"])

	plain := binary.Settings(t, nil)
	require.Len(t, brim.Ports, 3)
	for i, name := range listenerSettings() {
		port := brim.Ports[i]
		assert.Equal(t, portOf(settings[name]), portOf(":"+uint32Text(port.Target)), name)
		assert.Equal(t, portOf(plain[name]), port.Published, "%s is where it is without a container", name)
	}
	require.NotNil(t, brim.StopGracePeriod)
	stop, err := time.ParseDuration(settings["stop-timeout"])
	require.NoError(t, err)
	assert.Less(t, stop, time.Duration(*brim.StopGracePeriod), "the daemon ends before it is killed")
	assert.Less(t, stop, 10*time.Second, "the same with docker stop")

	load, err := project.GetService("load")
	require.NoError(t, err)
	out, err := binary.Run(t, imageEnv(t), append(slices.Clone([]string(load.Command)), "--help")...)
	require.NoError(t, err, out)
}

func uint32Text(n uint32) string {
	text, _ := yaml.Marshal(n)
	return strings.TrimSpace(string(text))
}

// mountsOf returns the mount points of a service.
func mountsOf(s types.ServiceConfig) (targets []string) {
	for _, v := range s.Volumes {
		targets = append(targets, v.Target)
	}
	return targets
}

func TestComposeIsCareful(t *testing.T) {
	t.Parallel()
	project := readCompose(t)
	version := regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)
	for name, s := range project.Services {
		if s.Image == "brim:latest" {
			assert.True(t, s.ReadOnly, name)
			assert.Equal(t, []string{"ALL"}, s.CapDrop, name)
			assert.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		} else {
			assert.Regexp(t, version, s.Image, name)
		}
		for _, p := range s.Ports {
			assert.Equal(t, "127.0.0.1", p.HostIP, "%s: no credentials are required", name)
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				_, err := os.Stat(v.Source)
				assert.NoError(t, err, name)
				assert.True(t, v.ReadOnly, "%s: %s", name, v.Source)
			}
		}
		if s.Restart != "no" && len(s.Profiles) == 0 {
			assert.Equal(t, "unless-stopped", s.Restart, name)
			assert.Positive(t, s.MemLimit, name)
		}
	}
	assert.ElementsMatch(t, []string{"secrets", "mongo", "mongo-setup", "brim", "load", "prometheus", "grafana"}, slices.Collect(maps.Keys(project.Services)))
}

// TestComposeWatchesAsTheFilesBesideIt: its Prometheus and Grafana differ from
// those for one machine only in names.
func TestComposeWatchesAsTheFilesBesideIt(t *testing.T) {
	t.Parallel()
	same := func(of, here string, names map[string]string) {
		t.Helper()
		var parsed [2]any
		for i, path := range []string{of, here} {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			changed := string(text)
			for from, to := range names {
				if i == 0 {
					require.Contains(t, changed, from)
					changed = strings.ReplaceAll(changed, from, to)
				}
			}
			require.NoError(t, yaml.Unmarshal([]byte(changed), &parsed[i]))
		}
		assert.Equal(t, parsed[0], parsed[1], here)
	}
	same("prometheus/prometheus.yml", "compose/prometheus.yml", map[string]string{`"127.0.0.1:8432"`: `"brim:8432"`, `"127.0.0.1:8433"`: `"load:8433"`})
	same("grafana/provisioning/datasources/prometheus.yml", "compose/grafana-datasource.yml", map[string]string{"http://127.0.0.1:9090": "http://prometheus:9090", "http://127.0.0.1:8430": "http://brim:8430"})

	project := readCompose(t)
	load, err := project.GetService("load")
	require.NoError(t, err)
	assert.Contains(t, load.Command, ":8433")
	grafana, err := project.GetService("grafana")
	require.NoError(t, err)
	require.NotNil(t, grafana.Environment["DASHBOARDS"])
	assert.Contains(t, mountsOf(grafana), *grafana.Environment["DASHBOARDS"])
}

// TestComposeSetsUpOneUser: three files agree on Brim's user and the role's name.
func TestComposeSetsUpOneUser(t *testing.T) {
	t.Parallel()
	for path, words := range map[string][]string{
		"compose/secrets.sh":     {"brim-serve:", "brim-password", "owner-password", "@mongo:27017/?replicaSet=rs0&"},
		"compose/mongo-setup.js": {`"brim-serve"`, `"brim-password"`, `"owner-password"`, `"brimServe"`, `"mongo:27017"`, `"rs0"`, "roles.js"},
		"mongosetup/main.go":     {`"brim-serve"`, `"brim-password"`, `"owner-password"`, "roles.Serve", `"mongo:27017"`, `"rs0"`},
		composeFile:              {"/setup/secrets.sh", "/setup/mongo-setup.js", "/setup/roles.js", `"rs0"`, "hostname: mongo"},
	} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, word := range words {
			assert.Contains(t, string(text), word, path)
		}
	}
}

func TestImageFitsTheDaemon(t *testing.T) {
	t.Parallel()
	text := readDockerfile(t)
	settings := binary.Settings(t, append(imageEnv(t), "BRIM_ALLOW_UNAUTHENTICATED=on", "BRIM_MONGO_URI=mongodb://mongo"))
	expose := "EXPOSE"
	for _, name := range listenerSettings() {
		expose += " " + portOf(settings[name])
		assert.Equal(t, ":"+portOf(settings[name]), settings[name], "the listener is open to other containers")
	}
	assert.Contains(t, text, "\n"+expose+"\n")
	assert.Contains(t, text, "\nVOLUME "+settings["data-dir"]+"\n")
	assert.Contains(t, text, "\nUSER 65532:65532\n")
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	require.NotNil(t, wanted)
	assert.Regexp(t, `(?m)^FROM golang:`+regexp.QuoteMeta(wanted[1])+`\.\d+ AS build$`, text, "the compiler is pinned, and the one of go.mod")
}

// TestBothImagesHaveTheSame files: `docker build` compiles inside what `make
// docker` brings.
func TestBothImagesHaveTheSame(t *testing.T) {
	t.Parallel()
	ends := func(stage string) (places []string) {
		_, after, found := strings.Cut(readDockerfile(t), "FROM base AS "+stage+"\n")
		require.True(t, found, stage)
		body, _, _ := strings.Cut(after, "\nFROM ")
		for line := range strings.Lines(body) {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] == "#" {
				continue
			}
			places = append(places, words[0]+" "+filepath.Base(words[max(len(words)-2, 1)])+" "+words[len(words)-1])
		}
		return places
	}
	assert.Equal(t, ends("local"), ends("image"))
	assert.Len(t, ends("local"), 4)
}

// TestNoRubbishIsSentToTheEngine: files that Git ignores stay out of images.
func TestNoRubbishIsSentToTheEngine(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile("../.gitignore")
	require.NoError(t, err)
	left, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	for line := range strings.Lines(string(ignored)) {
		pattern := strings.Trim(strings.TrimSpace(line), "/")
		if strings.HasPrefix(pattern, "*.") {
			pattern = "**/" + pattern
		}
		if pattern == "" || strings.HasPrefix(pattern, "#") || strings.Contains(pattern, "testdata") {
			continue
		}
		assert.Contains(t, string(left), "\n"+pattern+"\n", "a line of .dockerignore")
	}
}

package deploy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod"
)

const (
	askTimeout  = 20 * time.Second // engines answer at once or not at all
	workTimeout = 5 * time.Minute  // to read and write images on a busy machine
)

// setTestcontainers configures testcontainers for this process. Tests remove their containers
// themselves, since the image of testcontainers' reaper would have to be pulled.
func setTestcontainers() error {
	err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	if engine := os.Getenv("DOCKER_HOST"); err == nil && (engine == "" || strings.HasPrefix(engine, "unix:")) {
		// Published ports are on this machine. Inside a container the library
		// would otherwise use a gateway, and the wrong one if a bridge is new.
		err = os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
	return err
}

// requireEngine skips the test where no container engine answers; with
// BRIM_REQUIRE_DOCKER=1 it fails. The engine is the one that `docker` finds
// (DOCKER_HOST); tools/docker/engine starts one.
func requireEngine(t testing.TB) {
	t.Helper()
	if _, err := command(t.Context(), askTimeout, nil, "docker", "info", "--format", "{{.ServerVersion}}"); err != nil {
		missing(t, "container engine (tools/docker/engine starts one)", err)
	}
}

func missing(t testing.TB, what string, err error) {
	t.Helper()
	brimtest.Missing(t, "DOCKER", fmt.Sprintf("%s: %v", what, err))
}

// command runs a program and returns its stdout. Errors have its whole output.
func command(ctx context.Context, patience time.Duration, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		said := string(out)
		if errors.As(err, &exit) {
			said = string(exit.Stderr) + "\n" + said
		}
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(said))
	}
	return strings.TrimSpace(string(out)), nil
}

// A project is a set of compose files under a unique project name.
type project struct {
	t       testing.TB
	command []string // with its arguments so far
	env     []string
}

// composeProject returns the project of some files, later ones overriding earlier ones,
// with these variables (NAME=value). It is removed after the test with everything it
// stored. Without docker compose or an engine the test is skipped.
func composeProject(t testing.TB, env []string, files ...string) *project {
	t.Helper()
	requireEngine(t)
	p := &project{t: t, command: []string{"docker", "compose"}, env: env}
	if _, err := command(t.Context(), askTimeout, nil, "docker", "compose", "version"); err != nil {
		if _, err := exec.LookPath("docker-compose"); err != nil {
			missing(t, "docker compose (Debian: apt-get install docker-compose)", err)
		}
		p.command = []string{"docker-compose"}
	}
	p.command = append(p.command, "--project-name", "brimtest-"+strings.ToLower(rand.Text()[:12])) // a test may have several projects
	for _, file := range files {
		p.command = append(p.command, "--file", file)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := p.run(context.Background(), "logs", "--no-color", "--tail", "100")
			t.Logf("logs of the project:\n%s", logs)
		}
		_, err := p.run(context.Background(), "down", "--volumes", "--remove-orphans", "--timeout", "10")
		require.NoError(t, err)
	})
	return p
}

// do runs a command of the project, such as up, and returns its stdout.
func (p *project) do(args ...string) string {
	p.t.Helper()
	out, err := p.run(p.t.Context(), args...)
	require.NoError(p.t, err)
	return out
}

func (p *project) run(ctx context.Context, args ...string) (string, error) {
	return command(ctx, workTimeout, p.env, p.command[0], slices.Concat(p.command[1:], args)...)
}

// imageSet has the images that tests need. Each is built when first requested,
// since a registry may be unreachable.
type imageSet struct{ brim, mongo, prometheus image }

// Brim returns the name of Brim's image: the Dockerfile's stage `local`, as
// built by `make docker`.
func (i *imageSet) Brim(t testing.TB) string { return i.brim.name(t, "brim", makeBrim) }

// Mongo returns the name of an image with the mongod that Brim embeds, the shell
// for deploy/compose/secrets.sh, and `mongo-setup`, which replaces
// deploy/compose/mongo-setup.js. It has no entrypoint.
func (i *imageSet) Mongo(t testing.TB) string { return i.mongo.name(t, "mongo", makeMongo) }

// Prometheus returns the name of an image with this machine's Prometheus.
func (i *imageSet) Prometheus(t testing.TB) string {
	return i.prometheus.name(t, "prometheus", makePrometheus)
}

// Remove removes the images that were built.
func (i *imageSet) Remove() {
	for _, one := range []*image{&i.brim, &i.mongo, &i.prometheus} {
		if one.tag != "" {
			_, _ = command(context.Background(), askTimeout, nil, "docker", "image", "rm", "--force", one.tag)
		}
	}
}

// An image is built once.
type image struct {
	once sync.Once
	tag  string
	err  error
}

// name builds the image from a folder that fill writes. The tag has the process
// id, so that test binaries do not replace each other's images.
func (i *image) name(t testing.TB, what string, fill func(ctx context.Context, dir string) (options []string, err error)) string {
	t.Helper()
	requireEngine(t)
	i.once.Do(func() {
		dir := t.TempDir()
		options, err := fill(t.Context(), dir)
		if err == nil {
			i.tag = fmt.Sprintf("brim-test-%s:%d", what, os.Getpid())
			_, err = command(t.Context(), workTimeout, nil, "docker", slices.Concat([]string{"build", "--quiet", "--tag", i.tag}, options, []string{dir})...)
		}
		if err != nil {
			i.err = fmt.Errorf("make the image of %s: %w", what, err)
		}
	})
	require.NoError(t, i.err)
	return i.tag
}

// program compiles one of the module's programs as a static binary.
func program(ctx context.Context, pkg, path string) error {
	_, err := command(ctx, workTimeout, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/brim-telemetry/brim/"+pkg)
	return err
}

func makeBrim(ctx context.Context, dir string) ([]string, error) {
	top, err := command(ctx, askTimeout, nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/brim-telemetry/brim")
	if err != nil {
		return nil, err
	}
	stage := filepath.Join(dir, "bin", "docker")
	if err := os.MkdirAll(filepath.Join(stage, "data"), 0o755); err != nil {
		return nil, err
	}
	if err := copyFile("/etc/ssl/certs/ca-certificates.crt", filepath.Join(stage, "ca-certificates.crt")); err != nil {
		return nil, err
	}
	return []string{"--target", "local", "--file", filepath.Join(top, "deploy", "docker", "Dockerfile")},
		program(ctx, "cmd/brim", filepath.Join(stage, "brim"))
}

func makeMongo(ctx context.Context, dir string) ([]string, error) {
	server, err := mongod.Obtain(ctx, mongod.Config{Bin: os.Getenv("BRIM_MONGOD_BIN")})
	if err != nil {
		return nil, err
	}
	if err := program(ctx, "deploy/mongosetup", filepath.Join(dir, "tree", "usr", "bin", "mongo-setup")); err != nil {
		return nil, err
	}
	programs := []string{server.Path, "bash", "head", "base64", "tr", "cat", "chmod", "chown", "mv"}
	return nil, plant(ctx, dir, "EXPOSE 27017\n", []string{"data/db", "data/configdb", "tmp"}, programs...)
}

func makePrometheus(ctx context.Context, dir string) ([]string, error) {
	return nil, plant(ctx, dir, "EXPOSE 9090\nENTRYPOINT [\"prometheus\"]\n", []string{"prometheus"}, "prometheus")
}

// library is a line of ldd's output: "libc.so.6 => /lib/… (0x…)", or only the
// loader.
var library = regexp.MustCompile(`(?m)^\s(?:\S+ => )?(/\S+) \(0x`)

// plant writes a Dockerfile for an image of empty folders and this machine's
// programs, with the libraries that they load.
func plant(ctx context.Context, dir, dockerfile string, folders []string, programs ...string) error {
	tree := filepath.Join(dir, "tree")
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(tree, folder), 0o755); err != nil {
			return err
		}
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("%w (Debian has packages of bash, coreutils and prometheus)", err)
		}
		out, err := command(ctx, askTimeout, nil, "ldd", path)
		if err != nil {
			return err
		}
		for _, m := range library.FindAllStringSubmatch("\n\t"+out+"\n", -1) {
			if err := copyFile(m[1], filepath.Join(tree, m[1])); err != nil {
				return err
			}
		}
		name, _, _ := strings.Cut(filepath.Base(path), "-") // mongod-6.0.5 becomes mongod
		if err := copyFile(path, filepath.Join(tree, "usr", "bin", name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY tree /\n"+dockerfile), 0o600)
}

// copyFile copies a file, following links, with read and execute permission for all.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755) //nolint:gosec // programs, libraries and public certificates
}

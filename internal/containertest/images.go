package containertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
)

// Images are those that the tests of a package work with, each made when the
// first test asks. A test package has one and removes it when its tests have run.
type Images struct {
	brim, mongo, prometheus image
}

// Brim returns the name of Brim's image: the Dockerfile's stage `local`, as
// `make docker` makes it.
func (i *Images) Brim(t testing.TB) string { return i.brim.name(t, "brim", makeBrim) }

// Mongo returns the name of an image with the mongod that Brim runs itself, with
// the shell that deploy/compose/secrets.sh needs and with `mongo-setup`, which does
// what deploy/compose/mongo-setup.js does. It has no entrypoint.
func (i *Images) Mongo(t testing.TB) string { return i.mongo.name(t, "mongo", makeMongo) }

// Prometheus returns the name of an image with this machine's Prometheus.
func (i *Images) Prometheus(t testing.TB) string {
	return i.prometheus.name(t, "prometheus", makePrometheus)
}

// Remove takes away those that were made.
func (i *Images) Remove() {
	for _, one := range []*image{&i.brim, &i.mongo, &i.prometheus} {
		if one.tag != "" {
			_, _ = command(context.Background(), askTimeout, "docker", "image", "rm", "--force", one.tag)
		}
	}
}

// An image is made once.
type image struct {
	once sync.Once
	tag  string
	err  error
}

func (i *image) name(t testing.TB, what string, fill func(ctx context.Context, dir string) (options []string, err error)) string {
	t.Helper()
	Require(t)
	i.once.Do(func() { i.tag, i.err = build(t.Context(), what, fill) })
	require.NoError(t, i.err)
	return i.tag
}

// build fills a folder with what an image is made from, and makes it. The name
// has the process in it, so that test binaries do not exchange each other's.
func build(ctx context.Context, what string, fill func(ctx context.Context, dir string) ([]string, error)) (tag string, err error) {
	dir, err := os.MkdirTemp("", "brim-image-")
	if err != nil {
		return "", fmt.Errorf("make directory for an image: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left of it hurts nobody
	options, err := fill(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("fill the image of %s: %w", what, err)
	}
	tag = fmt.Sprintf("brim-test-%s:%d", what, os.Getpid())
	_, err = command(ctx, workTimeout, "docker", append(append([]string{"build", "--quiet", "--tag", tag}, options...), dir)...)
	return tag, err
}

// root is the top of the repository.
func root(ctx context.Context) (string, error) {
	file, err := command(ctx, askTimeout, "go", "env", "GOMOD")
	return filepath.Dir(file), err
}

// program compiles one of the module's as a static binary.
func program(ctx context.Context, pkg, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/brim-telemetry/brim/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func makeBrim(ctx context.Context, dir string) ([]string, error) {
	top, err := root(ctx)
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
	tree := filepath.Join(dir, "tree")
	for _, folder := range []string{"data/db", "data/configdb", "tmp"} {
		if err := os.MkdirAll(filepath.Join(tree, folder), 0o755); err != nil {
			return nil, err
		}
	}
	if err := plant(ctx, tree, map[string]string{server.Path: "/usr/bin/mongod"}); err != nil {
		return nil, err
	}
	for _, tool := range []string{"bash", "head", "base64", "tr", "cat", "chmod", "chown", "mv"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return nil, err
		}
		if err := plant(ctx, tree, map[string]string{path: "/usr/bin/" + tool}); err != nil {
			return nil, err
		}
	}
	if err := program(ctx, "internal/containertest/mongosetup", filepath.Join(tree, "usr", "bin", "mongo-setup")); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY tree /\nEXPOSE 27017\n"), 0o600)
}

func makePrometheus(ctx context.Context, dir string) ([]string, error) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install prometheus)", err)
	}
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "prometheus"), 0o755); err != nil {
		return nil, err
	}
	if err := plant(ctx, tree, map[string]string{path: "/usr/bin/prometheus"}); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY tree /\nEXPOSE 9090\nENTRYPOINT [\"prometheus\"]\n"), 0o600)
}

// library is a line of ldd about a file: "libc.so.6 => /lib/… (0x…)", or the
// loader alone.
var library = regexp.MustCompile(`(?m)^\s(?:\S+ => )?(/\S+) \(0x`)

// plant copies programs into a tree, with the libraries that they load.
func plant(ctx context.Context, tree string, programs map[string]string) error {
	for from, to := range programs {
		out, err := command(ctx, askTimeout, "ldd", from)
		if err != nil {
			return err
		}
		for _, m := range library.FindAllStringSubmatch("\n"+out+"\n", -1) {
			if err := copyFile(m[1], filepath.Join(tree, m[1])); err != nil {
				return err
			}
		}
		if err := copyFile(from, filepath.Join(tree, to)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies what a path leads to, for all to read and run.
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

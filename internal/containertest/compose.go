package containertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Project is what compose files describe, under a name of its own.
type Project struct {
	t    testing.TB
	args []string // before the command
	env  []string
}

// Compose returns the project of some files, the later ones changing the earlier,
// with these variables (NAME=value) for what is left open in them. At the test's
// end it is removed with all that it stored. Where there is neither the plugin nor
// docker-compose the test is skipped, as where there is no engine.
func Compose(t testing.TB, env []string, files ...string) *Project {
	t.Helper()
	Require(t)
	p := &Project{t: t, args: composer(t), env: append(os.Environ(), env...)}
	name := make([]byte, 4) // not the process's alone: a test may have several
	_, err := rand.Read(name)
	require.NoError(t, err)
	p.args = append(p.args, "--project-name", fmt.Sprintf("brimtest%d-%x", os.Getpid(), name))
	for _, file := range files {
		p.args = append(p.args, "--file", file)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := p.try(context.Background(), "logs", "--no-color", "--tail", "100")
			t.Logf("logs of the project:\n%s", logs)
		}
		_, err := p.try(context.Background(), "down", "--volumes", "--remove-orphans", "--timeout", "10")
		require.NoError(t, err)
	})
	return p
}

// composer is the command that reads compose files.
func composer(t testing.TB) []string {
	t.Helper()
	if _, err := command(t.Context(), askTimeout, "docker", "compose", "version"); err == nil {
		return []string{"docker", "compose"}
	}
	if _, err := exec.LookPath("docker-compose"); err == nil {
		return []string{"docker-compose"}
	}
	require.NotEqual(t, "1", os.Getenv("BRIM_REQUIRE_DOCKER"), "BRIM_REQUIRE_DOCKER is set and there is neither docker compose nor docker-compose (Debian: apt-get install docker-compose)")
	fmt.Fprintf(os.Stderr, "SKIP: no docker compose for %s\n", t.Name())
	t.Skip("no docker compose")
	return nil
}

// Do carries out a command of the project, like up, and returns what it printed.
func (p *Project) Do(args ...string) string {
	p.t.Helper()
	out, err := p.try(p.t.Context(), args...)
	require.NoError(p.t, err)
	return out
}

func (p *Project) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	all := append(append([]string(nil), p.args...), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%v: %w\n%s", all, err, out)
	}
	return string(out), nil
}

package checkpoint

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// inLab runs a part of the experiment with mongods of its own.
func inLab(t *testing.T, run func(ctx context.Context, lab *bench.Lab)) (*bench.Result, error) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = run
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Quick: true, Repeats: 1, Seed: 1, Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN")})
	left, readErr := os.ReadDir(dir)
	require.NoError(t, readErr)
	require.Empty(t, left, "scratch data is removed")
	return r, err
}

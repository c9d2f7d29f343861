package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// exported returns a folder with the export of a thousand readings of four sensors over
// two days.
func exported(t *testing.T) string {
	t.Helper()
	d := startDaemon(t)
	start := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	var sent []telemetry.Reading
	for i := range 1000 {
		fields := []telemetry.Field{{Name: "h", Value: telemetry.IntValue(int64(i))}, {Name: "t", Value: telemetry.FloatValue(float64(i) / 4)}}
		if i == 3 { // where others have a double
			fields[1].Value = telemetry.IntValue(7)
		}
		if i%2 == 0 {
			fields = append(fields, telemetry.Field{Name: "ok", Value: telemetry.BoolValue(i%4 == 0)}, telemetry.Field{Name: "note", Value: telemetry.TextValue("n")})
		}
		sent = append(sent, telemetry.Reading{
			Sensor: fmt.Sprintf("s-%d", i%4), Time: start.Add(time.Duration(i) * 10 * time.Second), Fields: fields,
			Tags: []telemetry.Tag{{Name: "site", Value: []string{"north", "south"}[i%2]}},
		})
	}
	_, err := d.client(t, "http://"+d.http).Write(t.Context(), sent...)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "readings")
	export := exec.CommandContext(t.Context(), binary.Path(t), "export", "readings", "--out", out)
	export.Env = d.env()
	said, err := export.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return out
}

func TestPandas(t *testing.T) {
	t.Parallel()
	path := python(t, "pandas", "pyarrow")
	cmd := exec.CommandContext(t.Context(), path, "pandas.py", exported(t))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	out := strings.Join(strings.Fields(string(said)), " ")
	assert.Contains(t, out, "1000 readings of 4 sensors, 2026-11-01T22:00:00+00:00 to 2026-11-02T00:46:30+00:00")
	for _, column := range []string{"ts datetime64[ms, UTC]", "h int64", "t float64"} {
		assert.Contains(t, out, column)
	}
	assert.Contains(t, out, "north 2026-11-01 360 32310.00 89.750000") // (0 + 2 + … + 718) / 4
	assert.Contains(t, out, "south 2026-11-01 360 32406.25 ")          // (1 + 3 + … + 719) / 4, with 7 for 0.75
}

func TestDuckDB(t *testing.T) {
	t.Parallel()
	path := python(t, "duckdb")
	sql, err := filepath.Abs("duckdb.sql")
	require.NoError(t, err)
	const run = "import duckdb, sys\nfor s in duckdb.extract_statements(open(sys.argv[1]).read()):\n    for row in duckdb.execute(s).fetchall(): print(*row)\n"
	cmd := exec.CommandContext(t.Context(), path, "-c", run+"print(*duckdb.execute('SELECT typeof(t), typeof(h), typeof(ok), typeof(note), typeof(ts) FROM readings WHERE note IS NOT NULL LIMIT 1').fetchone())", sql)
	cmd.Dir = filepath.Dir(exported(t))
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	out := string(said)
	assert.Contains(t, out, "1000 4 124881.25 499500\n") // 999 * 1000 / 2 / 4, with 7 for 0.75
	assert.Contains(t, out, "north 2026-11-01 360 89.75\n")
	assert.Contains(t, out, "2026-11-01 22:00:00 44.75\n") // (1 + 5 + … + 357) / 4
	assert.Contains(t, out, "DOUBLE BIGINT BOOLEAN VARCHAR TIMESTAMP WITH TIME ZONE\n")
}

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/maintain"
)

func TestRecompressRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says string
		args []string
	}{
		{"--to is missing", nil},
		{"allowed: zstd, snappy, none", []string{"--to", "lz4"}},
		{"take one of them", []string{"--abort", "--drop-old"}},
		{"take one of them", []string{"--to", "zstd", "--drop-old"}},
		{"allowed: atomic, replace, renames", []string{"--to", "zstd", "--swap", "twice"}},
		{"is neither 0 nor a size from 4KiB to 1TiB", []string{"--to", "zstd", "--rate", "1"}},
	} {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"recompress"}, c.args...), nil, nil, &out, &out)
		require.ErrorContains(t, err, c.says)
		assert.Equal(t, exitUsage, exitCode(err), c.args)
	}
}

func TestMoveLineTellsPhaseRateAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	line := newOldMoveProgress(&out)
	now := time.Unix(0, 0)
	line.now = func() time.Time { return now }
	line.show(maintain.Progress{Phase: "copy", Done: 0, Total: 100e6})
	now = now.Add(time.Second)
	line.show(maintain.Progress{Phase: "copy", Done: 10e6, Total: 100e6}) // too soon for another line
	now = now.Add(9 * time.Second)
	line.show(maintain.Progress{Phase: "copy", Done: 50e6, Total: 100e6, Documents: 1234, Behind: 3 * time.Second})
	line.show(maintain.Progress{Phase: "fence", Note: "daemons wait"})
	_, err := line.Write([]byte("level=INFO msg=done\n"))
	require.NoError(t, err)
	assert.Equal(t, "copy\ncopy  50%  5.0 MB/s  10s left  1,234 documents  3s behind\nfence (daemons wait)\nlevel=INFO msg=done\n", out.String())
}

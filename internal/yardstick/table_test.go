package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	runs := []float64{5, 1, 3}
	assert.Equal(t, 3.0, median(runs))
	assert.Equal(t, []float64{5, 1, 3}, runs, "left as they were")
	assert.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	assert.Equal(t, 0.0, median(nil))
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0": thousands(0, 0), "999": thousands(999, 0), "1,000": thousands(999.9, 0), "1,234,567.50": thousands(1234567.5, 2), "-12,345": thousands(-12345, 0),
	} {
		assert.Equal(t, want, got)
	}
}

func TestTableCanBePastedIntoAREADME(t *testing.T) {
	t.Parallel()
	ratio := newRow("lines against raw", ">= 1.0x", "x", 2, []float64{1.5, 0.5, 1.1})
	ratio.remark("merge factor %.1f", 60.0)
	ratio.remark("CPU")
	memory := newRow("memory", "<= 256 MiB", "MiB", 0, []float64{1200})
	r := report{Setting: setting{Cores: 2, MemoryMiB: 24103, Go: "go1.26", Pairs: 3, Time: "10s"}, Rows: []row{ratio, memory}, Notes: []string{"Raw is so and so."}}
	var out strings.Builder
	require.NoError(t, r.printText(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 10)
	assert.Contains(t, lines[0], "2 cores, (unknown), 24,103 MiB memory")
	assert.Contains(t, lines[2], "3 pairs or runs of at least 10s")
	assert.Equal(t, []string{
		"| what | bar | measured (median) | runs | remarks |",
		"|---|---|---|---|---|",
		"| lines against raw | >= 1.0x | **1.10x** | 1.50 0.50 1.10 | merge factor 60.0; CPU |",
		"| memory | <= 256 MiB | **1,200 MiB** (missed) | 1,200 |  |",
		"", "Raw is so and so.",
	}, lines[4:])
}

package report

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadReturnsWhatJSONWrote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.json")
	var b bytes.Buffer
	require.NoError(t, JSON(&b, anOverload()))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	r, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, anOverload(), r)
	for _, key := range []string{"offered_rate", "achieved_rate", "sent", "acked", "failed", "dropped", "response_seconds", "service_seconds", "response_strict_seconds", "drain_seconds", "interrupted", "by_fill", "store_by_fill", "fill_from", "p999"} {
		assert.Contains(t, b.String(), `"`+key+`"`)
	}
}

func TestReadRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Read(filepath.Join(dir, "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read(dir)
	require.ErrorContains(t, err, dir)
	for name, content := range map[string]string{"empty": "", "text": "Load on", "other": `{"experiment":"x"}`, "array": "[]", "type": `{"sent":"many"}`, "rows": `{"began":"2026-01-01T00:00:00Z","setup":{"protocol":"http"},"by_fill":[]}`} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := Read(path)
		require.ErrorContains(t, err, path, name)
		require.ErrorContains(t, err, "not what brim load --output json prints", name)
	}
}

// The file is read as the plotter of HdrHistogram does: lines of numbers in
// four columns, whatever begins with # aside.
func TestHGRMIsReadByThePlotter(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := aResult()
	require.NoError(t, HGRM(&b, r))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	assert.Equal(t, []string{"Value", "Percentile", "TotalCount", "1/(1-Percentile)"}, strings.Fields(lines[0]))
	n, last := 0, -1.0
	for _, line := range lines[1:] {
		if line == "" || line[0] == '#' {
			continue
		}
		cells := strings.Fields(line)
		require.Len(t, cells, 4)
		var numbers [4]float64
		for i, cell := range cells {
			v, err := strconv.ParseFloat(cell, 64)
			require.NoError(t, err)
			numbers[i] = v
		}
		assert.InDelta(t, r.Curve[n].Seconds*1000, numbers[0], 0.001)
		assert.InDelta(t, r.Curve[n].Percent/100, numbers[1], 1e-11)
		assert.EqualValues(t, r.Curve[n].Count, numbers[2])
		if r.Curve[n].Percent < 100 {
			assert.InEpsilon(t, 1/(1-r.Curve[n].Percent/100), numbers[3], 0.01)
		} else {
			assert.True(t, math.IsInf(numbers[3], 1))
		}
		assert.Greater(t, numbers[1], last)
		last = numbers[1]
		n++
	}
	assert.Equal(t, len(r.Curve), n)
	assert.Contains(t, b.String(), "       1.283 0.311100000000      37406           1.45\n")
	assert.Contains(t, b.String(), "#[Max     =      104.300, Total count    =       120240]")
}

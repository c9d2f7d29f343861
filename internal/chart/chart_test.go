package chart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// TestUPlotIsThePublishedOne compares the files with the checksums of `make uplot`.
func TestUPlotIsThePublishedOne(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("uplot/SHA256SUMS")
	require.NoError(t, err)
	listed := map[string]bool{"SHA256SUMS": true}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join("uplot", name))
		require.NoError(t, err)
		sum := sha256.Sum256(content)
		assert.Equal(t, want, hex.EncodeToString(sum[:]), name)
		listed[name] = true
	}
	files, err := os.ReadDir("uplot")
	require.NoError(t, err)
	for _, f := range files {
		assert.True(t, listed[f.Name()], "%s has no checksum", f.Name())
	}
	assert.Contains(t, UPlot(), "The MIT License")
}

func TestValuesThatAreNotFiniteAreNull(t *testing.T) {
	t.Parallel()
	out, err := json.Marshal(Values{0, 1.5, math.NaN(), math.Inf(1), 1e-7, 1234567.89, 1795427137.8921})
	require.NoError(t, err)
	assert.Equal(t, "[0,1.5,null,null,1e-07,1234568,1795427137.892]", string(out))
	out, err = json.Marshal(Values(nil))
	require.NoError(t, err)
	assert.Equal(t, "[]", string(out))
}

func TestMergedSeriesShareAnAxis(t *testing.T) {
	t.Parallel()
	all, merged := Merge([]Values{{1, 3}, {2, 3}}, []Values{{10, 30}, {21, 31}})
	assert.Equal(t, Values{1, 2, 3}, all)
	require.Len(t, merged, 2)
	assert.True(t, math.IsNaN(merged[0][1]))
	merged[0][1], merged[1][0] = 0, 0
	assert.Equal(t, []Values{{10, 0, 30}, {0, 21, 31}}, merged)
}

func TestRarity(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []float64{1, 2, 100, 1000}, []float64{Rarity(0), Rarity(50), Rarity(99), Rarity(99.9)})
}

func TestNamesInChartsAreEscaped(t *testing.T) {
	t.Parallel()
	const evil = `</script><script>alert(1)</script>`
	html, err := Chart{Title: evil, X: X{Kind: Names, Names: []string{evil}}, Panels: []Panel{{Series: []Series{{Name: evil}}}}}.HTML()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(html), "<script"))
	assert.Equal(t, 1, strings.Count(string(html), "</script>"))
}

// TestBrowsersFormatAlike compares chart.js with Format.
func TestBrowsersFormatAlike(t *testing.T) {
	t.Parallel()
	path := brimtest.Program(t, "node")
	type example struct {
		Unit  Unit    `json:"unit"`
		Value float64 `json:"value"`
	}
	var examples []example
	var want []string
	for u := Seconds; u <= DecimalBytes; u++ {
		for _, v := range []float64{
			0, 0.00085, 0.0012345, 0.0009999, 0.25, 0.999, 1, 12.345, 59.96, 99.96, 119, 150, 999.6, 1000, 1024, 2004, 3600, 7200, 9999, 12345, 259200, 1234567, 1 << 30, 5.5e9, 7.7e12,
		} {
			examples, want = append(examples, example{u, v}), append(want, Format(u, v))
		}
	}
	input, err := json.Marshal(examples)
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), path, "--input-type=module")
	command.Stdin = strings.NewReader(Module() + "\nfor (const e of " + string(input) + ") console.log(format(e.unit, e.value));")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, stderr.String())
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, got, len(want))
	for i := range want {
		assert.Equal(t, want[i], got[i], "%v of unit %v", examples[i].Value, examples[i].Unit)
	}
}

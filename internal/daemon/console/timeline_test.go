package console

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// node runs a JavaScript module and returns its output.
func node(t *testing.T, module string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), brimtest.Program(t, "node"), "--input-type=module")
	command.Stdin = strings.NewReader(module)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// importing returns the statement that imports names from a file of the page.
func importing(t *testing.T, names, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("page", file))
	require.NoError(t, err)
	return fmt.Sprintf("import { %s } from %q;\n", names, "file://"+filepath.ToSlash(path))
}

// show prints a line that tells nulls, gaps and bridged values apart.
const show = `const show = (y) => console.log(y.map((v) => (v === undefined ? "_" : v === null ? "gap" : v)).join(" "));
`

func TestGapsBetweenSamples(t *testing.T) {
	t.Parallel()
	out := node(t, importing(t, "ofSeconds", "timeline.js")+show+`
const { x, line } = ofSeconds({ at: [1000, 2000, 12000, 13000], now: 14000, interval: 1 }, 900);
show(x.at); show(line([1, 2, 12, 13])); show(x.range);
show(ofSeconds({ at: [1000, 900000], now: 900000, interval: 1 }, 300).x.range);`)
	assert.Equal(t, "1 2 7 12 13\n1 2 gap 12 13\n-46 14\n600 900\n", out)
}

// TestShortPausesAreBridged up to ten seconds.
func TestShortPausesAreBridged(t *testing.T) {
	t.Parallel()
	out := node(t, importing(t, "ofSeconds", "timeline.js")+show+`
const at = Array.from({ length: 13 }, (_, i) => i * 1000);
const { line } = ofSeconds({ at, now: 12000, interval: 1 }, 900);
for (const apart of [3, 10, 11]) {
  const values = Array(13).fill(null);
  values[1] = 1, values[1 + apart] = 2;
  show(line(values));
}`)
	assert.Equal(t, `gap 1 _ _ 2 gap gap gap gap gap gap gap gap
gap 1 _ _ _ _ _ _ _ _ _ 2 gap
gap 1 gap gap gap gap gap gap gap gap gap gap 2
`, out)
}

func TestStepsOfASensor(t *testing.T) {
	t.Parallel()
	out := node(t, importing(t, "ofSteps", "timeline.js")+show+`
const t = (mean) => ({ t: { mean } }), at = [0, 60, 120, 180, 500];
const steps = [t(1), t(2), { t: { mean: null }, h: { mean: 7 } }, t(4), t(5)].map((fields, i) => ({ at: at[i] * 1000, fields }));
const { at: x, names, line } = ofSteps(steps, 60000);
show(x); show(names); show(line("t", "mean")); show(line("h", "mean"));
show(ofSteps([], 1000).names);`)
	assert.Equal(t, "0 60 120 180 340 500\nh t\n1 2 gap 4 gap 5\n_ _ 7 _ gap _\n\n", out)
}

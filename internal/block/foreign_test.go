package block_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// exact writes readings so that no bit is lost: a line each, as the programs of these
// tests do.
func exact(readings []telemetry.Reading) string {
	var out strings.Builder
	for _, r := range readings {
		fmt.Fprint(&out, r.Time.UnixMilli())
		for _, f := range r.Fields {
			fmt.Fprintf(&out, " %x=", f.Name)
			switch v := f.Value; v.Kind() {
			case telemetry.Int:
				fmt.Fprintf(&out, "%di", v.Int())
			case telemetry.Bool:
				fmt.Fprint(&out, v.Bool())
			case telemetry.Text:
				fmt.Fprintf(&out, "%x", v.Text())
			default:
				fmt.Fprintf(&out, "%016xf", math.Float64bits(v.Float()))
			}
		}
		if !slices.Equal(r.Tags, documentTags) {
			fmt.Fprint(&out, " own")
			for _, tag := range r.Tags {
				fmt.Fprintf(&out, " %x=%x", tag.Name, tag.Value)
			}
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// foreign decodes blocks with another program, which reads a block a line in hexadecimal.
func foreign(t *testing.T, name string, args ...string) func(blocks []string) string {
	t.Helper()
	path := brimtest.Program(t, name)
	return func(blocks []string) string {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(brimtest.Env(), "PYTHONDONTWRITEBYTECODE=1")
		cmd.Stdin = strings.NewReader(strings.Join(blocks, "\n") + "\n")
		var failure strings.Builder
		cmd.Stderr = &failure
		out, err := cmd.Output()
		require.NoError(t, err, "%s", failure.String())
		return string(out)
	}
}

func testForeign(t *testing.T, decode func([]string) string, variants []block.Options) {
	var blocks []string
	var want strings.Builder
	add := func(readings []telemetry.Reading) {
		for _, o := range variants {
			blocks = append(blocks, hex.EncodeToString(built(t, readings, o)))
			want.WriteString(exact(readings))
		}
	}
	for name, readings := range shapes() {
		if name != "not a number" && name != "any times" { // Brim takes neither, JavaScript has neither
			add(readings)
		}
	}
	for _, set := range dataSets {
		w := windowsOf(t, set.name, set.window)[0]
		for i := range w.readings {
			w.readings[i].Tags = documentTags
		}
		add(w.readings)
	}
	got := decode(blocks)
	if got != want.String() { // a difference of megabytes would tell nothing
		gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want.String(), "\n")
		for i := range min(len(gotLines), len(wantLines)) {
			require.Equal(t, wantLines[i], gotLines[i], "line %d", i)
		}
		require.Len(t, gotLines, len(wantLines))
	}
}

const python = `
import struct, sys
sys.path.insert(0, sys.argv[1])
from blocks import readings

def exact(v):
    if isinstance(v, bool): return str(v).lower()
    if isinstance(v, int): return f"{v}i"
    if isinstance(v, str): return v.encode().hex()
    return f"{struct.unpack('<Q', struct.pack('<d', v))[0]:016x}f"

for line in sys.stdin:
    for r in readings(bytes.fromhex(line)):
        own = [] if r.tags is None else ["own"] + [f"{k.encode().hex()}={v.encode().hex()}" for k, v in r.tags.items()]
        print(r.time, *[f"{k.encode().hex()}={exact(v)}" for k, v in r.fields.items()], *own)
`

func TestPythonReadsBlocks(t *testing.T) {
	t.Parallel()
	decode := foreign(t, "python3", "-c", python, filepath.Join("..", "..", "examples"))
	variants := variants
	if exec.CommandContext(t.Context(), "python3", "-c", "import zstandard").Run() != nil {
		t.Log("the package zstandard is not installed, so compressed blocks are NOT TESTED with Python")
		variants = variants[:2]
	}
	testForeign(t, decode, variants)
}

const node = `
const hex = s => Buffer.from(s).toString("hex");
const bits = v => { const b = Buffer.alloc(8); b.writeDoubleBE(v); return b.toString("hex") + "f"; };
const exact = v => typeof v === "object" ? v.long + "i" : typeof v === "boolean" ? v : typeof v === "string" ? hex(v) : bits(v);
const out = [];
for (const line of require("fs").readFileSync(0, "utf8").trim().split("\n")) {
  const binData = {base64: () => Buffer.from(line, "hex").toString("base64")};
  for (const r of decodeBlocks([binData], digits => ({long: digits}))) {
    const {ts, sensor, ...fields} = r;
    const words = [ts.getTime(), ...Object.entries(fields).map(([k, v]) => hex(k) + "=" + exact(v))];
    if (sensor) words.push("own", ...Object.entries(sensor.tags || {}).map(([k, v]) => hex(k) + "=" + hex(v)));
    out.push(words.join(" ") + "\n");
  }
}
process.stdout.write(out.join(""));
`

func TestJavaScriptReadsBlocks(t *testing.T) {
	t.Parallel()
	decode := foreign(t, "node", "-e", block.JavaScript+node)
	testForeign(t, decode, variants[:2])
}

func TestJavaScriptNamesFieldsThatItCannotRead(t *testing.T) {
	t.Parallel()
	decode := foreign(t, "node", "-e", block.JavaScript+`
		for (const line of require("fs").readFileSync(0, "utf8").trim().split("\n")) {
			const readings = decodeBlocks([Buffer.from(line, "hex")], Number);
			console.log(readings.length, readings[readings.length - 1].unread);
		}`)
	root := func(i int) float64 { return math.Sqrt(float64(uint64(i) * 0x9e3779b97f4a7c15 >> 58)) }
	var alike []telemetry.Reading
	for i := range 30 { // columns that are worth compressing together, and none by itself
		alike = append(alike, reading(int64(i), "a", int(root(i)), "b", int(root(i)), "c", int(root(i)), "d", int(root(i))))
	}
	var blocks []string
	for _, readings := range [][]telemetry.Reading{alike, series(1000, func(i int) any { return root(i) })} {
		blocks = append(blocks, hex.EncodeToString(built(t, readings, block.Options{Compress: true})))
	}
	assert.Equal(t, "1 30\n1000 [ 'v' ]\n", decode(blocks))
}

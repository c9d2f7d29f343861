package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/sabotage/patch"
)

const root = "../.."

// TestSabotagesApply asserts that each patch applies to the source as it is, that the
// result is Go, and that there are the tests that it names. Whether they notice it is
// shown by `make sabotage`.
func TestSabotagesApply(t *testing.T) {
	t.Parallel()
	all, err := patch.Load(filepath.Join("testdata", "sabotage"))
	require.NoError(t, err)
	for _, s := range all {
		changed, err := s.Apply(root)
		if !assert.NoError(t, err) {
			continue
		}
		for path, content := range changed {
			_, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
			assert.NoError(t, err, s.Name)
		}
		for _, c := range s.Tests {
			assert.True(t, exists(t, c), "sabotage %s: there is no test %s", s.Name, c)
		}
	}
}

// exists reports whether a package has a test that the check runs.
func exists(t *testing.T, c patch.Check) bool {
	t.Helper()
	top, _, _ := strings.Cut(c.Run, "/") // the rest is for subtests
	run, err := regexp.Compile(top)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, c.Package, "*_test.go"))
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") && run.MatchString(f.Name.Name) {
				return true
			}
		}
	}
	return false
}

// A module with one protection, and tests for and beside it.
var module = map[string]string{
	"go.mod": "module example.com/tank\n\ngo 1.26\n",
	"tank.go": `package tank

// Fill returns how much is in a tank of ten.
func Fill(level int) int {
	if level > 10 {
		return 10
	}
	return level
}
`,
	"tank_test.go": `package tank

import (
	"os"
	"testing"
)

func TestFull(t *testing.T) {
	if got := Fill(12); got != 10 {
		t.Errorf("it overflows: %d", got)
	}
}

func TestHalf(t *testing.T) {
	if got := Fill(5); got != 5 {
		t.Errorf("it is %d", got)
	}
}

func TestOverlay(t *testing.T) {
	if name := os.Getenv("BRIM_OVERLAY"); name != "" {
		text, err := os.ReadFile(name)
		t.Fatalf("overlay %s %v", text, err)
	}
}
`,
}

const overflow = `diff --git a/tank.go b/tank.go
--- a/tank.go
+++ b/tank.go
@@ -33,6 +33,3 @@ the line numbers are wrong
 func Fill(level int) int {
-	if level > 10 {
-		return 10
-	}
 	return level
 }
`

// sabotaged runs a patch for the module, and returns the end and what is printed.
func sabotaged(t *testing.T, header, diff string) (output string, err error) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"patches/limit.patch": header + "\n\n" + diff}
	for name, content := range module {
		files[name] = content
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "patches"), 0o700))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	var out bytes.Buffer
	r := runner{root: dir, dir: filepath.Join(dir, "patches"), pkg: "./...", out: &out}
	err = r.run(t.Context())
	for name, content := range module {
		now, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, content, string(now), "the source is left alone")
	}
	return out.String(), err
}

func TestASabotageIsCaughtByATestThatFailsAsItSays(t *testing.T) {
	t.Parallel()
	output, err := sabotaged(t, `Protection: a tank does not overflow.
Test: . ^TestFull$
Says: it overflows: 12
Test: . ^TestOverlay$
Says: tank\.go":".*/0-tank\.go"`, overflow)
	require.NoError(t, err, output)
	assert.Regexp(t, `(?m)^ +\d/2 +[0-9.]+ s  limit: \. \^TestFull\$  caught$`, output)
	assert.Regexp(t, `(?m)^ +\d/2 +[0-9.]+ s  limit: \. \^TestOverlay\$  caught$`, output, "tests are told the overlay")
	assert.Contains(t, output, "1 sabotages")
}

func TestASabotageIsNotCaught(t *testing.T) {
	t.Parallel()
	notGo := strings.Replace(overflow, "+33,3", "+33,4", 1)
	notGo = strings.Replace(notGo, " \treturn level", "+\tempty :=\n \treturn level", 1)
	for name, one := range map[string]struct{ test, diff, says string }{
		"a test that passes":                  {"^TestHalf$", overflow, "NOT CAUGHT: the test passes"},
		"a test that fails for other reasons": {"^TestOverlay$", overflow, `NOT CAUGHT: the test fails, but does not say "it overflows"`},
		"a patch that does not compile":       {"^TestFull$", notGo, "NOT CAUGHT: it does not compile"},
		"no test":                             {"^TestEmpty$", overflow, "NOT CAUGHT: there is no such test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := sabotaged(t, "Protection: a tank does not overflow.\nTest: . "+one.test+"\nSays: it overflows|syntax error", one.diff)
			require.ErrorContains(t, err, "1 tests did not notice a sabotage: limit: . "+one.test)
			assert.Contains(t, strings.ReplaceAll(output, "|syntax error", ""), one.says)
		})
	}
}

func TestPackagesAreChosen(t *testing.T) {
	t.Parallel()
	c := patch.Check{Package: "./internal/store"}
	for pkg, want := range map[string]bool{
		"./...": true, "./internal/...": true, "./internal/store/...": true, "./internal/store": true,
		"./internal": false, "./internal/st/...": false, "./internal/store/bucket/...": false,
	} {
		assert.Equal(t, want, c.In(pkg), pkg)
	}
}

func TestAPatchThatDoesNotApplyFails(t *testing.T) {
	t.Parallel()
	const header = "Protection: a tank does not overflow.\nTest: . ^TestFull$\nSays: it overflows"
	for name, one := range map[string]struct{ from, to, says string }{
		"other lines":       {"return 10", "return 11", "the lines of fragment 1 of tank.go, with their context, occur 0 times"},
		"other context":     {"func Fill(level int)", "func Fill(l int)", "occur 0 times"},
		"part of a line":    {" func Fill", " unc Fill", "occur 0 times"},
		"no such file":      {"tank.go", "basin.go", "basin.go: no such file"},
		"a wrong line head": {"-33,6", "-33,5", "read the diff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sabotaged(t, header, strings.ReplaceAll(overflow, one.from, one.to))
			require.ErrorContains(t, err, "limit")
			assert.ErrorContains(t, err, one.says)
		})
	}
	t.Run("lines that occur several times", func(t *testing.T) {
		t.Parallel()
		_, err := sabotaged(t, header, "diff --git a/tank_test.go b/tank_test.go\n--- a/tank_test.go\n+++ b/tank_test.go\n@@ -1,2 +1,1 @@\n-\t}\n }\n")
		assert.ErrorContains(t, err, "occur 3 times; they must occur once")
	})
}

func TestABadHeaderIsRefused(t *testing.T) {
	t.Parallel()
	for header, says := range map[string]string{
		"Test: . ^TestFull$\nSays: x":                             `no line "Protection: SENTENCE"`,
		"Protection: p":                                           `no line "Test: PACKAGE REGEXP"`,
		"Protection: p\nTest: . ^TestFull$":                       `no line "Says: REGEXP" follows the test . ^TestFull$`,
		"Protection: p\nTest: ^TestFull$\nSays: x":                "a test has the form PACKAGE REGEXP",
		"Protection: p\nSays: x\nTest: . ^TestFull$":              `allowed: "Protection: SENTENCE" and "Test: PACKAGE REGEXP"`,
		"Protection: p\nTest: . ^TestFull$\nSays: x*":             "it matches any output",
		"Protection: p\nTest: . ^TestFull$\nSays: (":              "missing closing )",
		"Protection: p\nTest: . ^TestFull$\nSays: x\nRuns: never": `"never" is not a number from 1`,
		"Protection: p\nTest: . ^TestFull$\nHears: x":             "allowed: Protection, Test, Says, Runs and Short",
		"Protection: p\nTest: . ^TestFull$\nSays: x\nShort: no":   `"no" is not allowed; allowed: yes`,
	} {
		_, err := sabotaged(t, header, overflow)
		assert.ErrorContains(t, err, says, header)
	}
	_, err := patch.Load(filepath.Join("testdata", "sabotage"), "gravity")
	assert.ErrorContains(t, err, `there is no sabotage "gravity"; there are `)
}

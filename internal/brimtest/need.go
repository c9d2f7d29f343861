package brimtest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// programs are those whose package in Debian, or whose variable, has another name.
var programs = map[string]struct{ pack, variable string }{
	"nginx":           {pack: "nginx-light"},
	"node":            {pack: "nodejs"},
	"promtool":        {pack: "prometheus", variable: "PROMETHEUS"},
	"systemd-analyze": {pack: "systemd", variable: "SYSTEMD"},
}

// Program returns the path of a program of this machine. Where there is none, the test is
// skipped, and says so; with BRIM_REQUIRE_NAME=1, as in BRIM_REQUIRE_NGINX=1, it fails.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		p := programs[name]
		Missing(t, cmp.Or(p.variable, strings.ToUpper(name)), name+" (Debian: apt-get install "+cmp.Or(p.pack, name)+")")
	}
	return path
}

// Missing skips a test because this machine lacks something, and says so on stderr; with
// BRIM_REQUIRE_NAME=1 it fails.
func Missing(t testing.TB, name, what string) {
	t.Helper()
	if variable := "BRIM_REQUIRE_" + name; os.Getenv(variable) == "1" {
		t.Fatalf("%s is set and there is no %s", variable, what)
	}
	fmt.Fprintf(os.Stderr, "SKIP: no %s for %s\n", what, t.Name())
	t.Skip("no " + what)
}

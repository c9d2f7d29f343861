package faulttest_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(attackerMode) != "" {
		if err := attackMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "attackers:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(moverMode) != "" {
		if err := moveMain(); err != nil {
			fmt.Fprintln(os.Stderr, "move:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// The tests mostly wait, so more than one per CPU can run.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code)
}

package containertest_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/containertest"
)

var images containertest.Images

func TestMain(m *testing.M) {
	code := containertest.Run(m)
	images.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		code = 1
	}
	os.Exit(code)
}

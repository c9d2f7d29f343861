package deploy_test

import (
	"os"
	"testing"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) {
	code := mongodtest.Run(m, mongodtest.NoLeaks())
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}

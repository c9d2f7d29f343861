package speed

import (
	"os"
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var program = brimtest.Binary{Plain: true}

func TestMain(m *testing.M) {
	code := mongodtest.Run(m)
	program.Remove()
	os.Exit(code)
}

package sealed

import (
	"os"
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// program is the program that is measured; with the race detector in it, it
// would be another.
var program = brimtest.Binary{Plain: true}

func TestMain(m *testing.M) {
	code := mongodtest.Run(m)
	program.Remove()
	os.Exit(code)
}

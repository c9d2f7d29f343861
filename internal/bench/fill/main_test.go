package fill

import (
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// program is measured, so it is built without the race detector.
var program = brimtest.Binary{Plain: true}

func TestMain(m *testing.M) { mongodtest.Main(m, program.Remove) }

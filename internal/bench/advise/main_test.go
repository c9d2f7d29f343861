package advise

import (
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// program is the brim binary for the experiments' daemons.
var program brimtest.Binary

func TestMain(m *testing.M) { mongodtest.Main(m, program.Remove) }

package speed

import (
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var program = brimtest.Binary{Plain: true}

func TestMain(m *testing.M) { mongodtest.Main(m, program.Remove) }

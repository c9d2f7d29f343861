package maintain

import (
	"flag"
	"testing"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most tests wait for a lease or a lock
	mongodtest.Main(m, mongodtest.NoLeaks())
}

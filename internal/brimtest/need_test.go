package brimtest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// A machine is a test that records how it ended.
type machine struct {
	testing.TB // that of the test, for its name

	failed, skipped bool
}

func (m *machine) Fatalf(string, ...any) { m.failed = true }
func (m *machine) Skip(...any)           { m.skipped = true }

func TestMissingProgramSkipsOrFails(t *testing.T) {
	assert.NotEmpty(t, brimtest.Program(t, "go"))
	m := &machine{TB: t}
	brimtest.Program(m, "no-such-program")
	assert.Equal(t, []bool{false, true}, []bool{m.failed, m.skipped})

	t.Setenv("PATH", t.TempDir())
	for variable, program := range map[string]string{"NO-SUCH-PROGRAM": "no-such-program", "PROMETHEUS": "promtool", "SYSTEMD": "systemd-analyze", "NODE": "node"} {
		t.Setenv("BRIM_REQUIRE_"+variable, "1")
		m := &machine{TB: t}
		brimtest.Program(m, program)
		assert.True(t, m.failed, variable)
	}
}

package access

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestSetDefaultKeepsUsage(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("own", northToken, "scopes: [ingest]", "quota: {readings_per_second: 10}")+entry("other", "brim_other"))
	own, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	other, err := g.Identify(Credentials{Secret: "brim_other"})
	require.NoError(t, err)
	require.NoError(t, other.Admit(1000, none))

	g.SetDefault(Quota{ReadingsPerSecond: 5, ActiveSensors: 1})
	require.NoError(t, other.Admit(6, none), "what one second brings, and a debt")
	wantRefusal(t, other.Admit(1, none), telemetry.Quota, codeReadings)
	require.NoError(t, own.Admit(10, of("a")), "its own holds")
	wantRefusal(t, own.Admit(1, of("a")), telemetry.Quota, codeReadings)
	g.write(t, entry("own", northToken, "scopes: [ingest]", "quota: {readings_per_second: 10}")+entry("other", "brim_other")+entry("new", "brim_new"))
	fresh, err := g.Identify(Credentials{Secret: "brim_new"})
	require.NoError(t, err)
	wantRefusal(t, fresh.Admit(1, of("a", "b")), telemetry.Quota, codeActive)

	g.SetDefault(Quota{})
	require.NoError(t, other.Admit(1_000_000, none), "no limit again")
}

// TestNewSensorsWithoutALimitAreNoDebt when a limit is set again.
func TestNewSensorsWithoutALimitAreNoDebt(t *testing.T) {
	t.Parallel()
	i, _ := quotaOf(t, Quota{NewSensorsPerSecond: 10, ActiveSensors: 10_000})
	require.NoError(t, i.Admit(1, of("first")))
	i.guard.SetDefault(Quota{ActiveSensors: 10_000})
	require.NoError(t, i.Admit(1000, fleet(0, 1000)))
	i.guard.SetDefault(Quota{NewSensorsPerSecond: 10, ActiveSensors: 10_000})
	require.NoError(t, i.Admit(1, of("second")))
}

func TestSetDefaultWithoutAuthentication(t *testing.T) {
	t.Parallel()
	i, _ := quotaOf(t, Quota{ReadingsPerSecond: 1000})
	i.guard.SetDefault(Quota{ReadingsPerSecond: 1})
	require.NoError(t, i.Admit(2, none))
	wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
	(*Guard)(nil).SetDefault(Quota{ReadingsPerSecond: 1})
}

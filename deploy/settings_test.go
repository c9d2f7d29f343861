package deploy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// effective returns what `brim serve` would run with, by names of settings,
// given these flags and variables.
func effective(t testing.TB, env []string, flags ...string) map[string]string {
	t.Helper()
	out, err := run(t, env, append([]string{"config", "print", "--output", "json"}, flags...)...)
	require.NoError(t, err, out)
	var printed struct {
		Settings []struct{ Name, Value string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &printed), out)
	settings := make(map[string]string)
	for _, s := range printed.Settings {
		settings[s.Name] = s.Value
	}
	return settings
}

//go:build fault

package daemon

import (
	"strings"

	"github.com/brim-telemetry/brim/internal/fault"
)

// envFault holds the faults that a test injects, see fault.Parse. Only a program built
// for tests reads it.
const envFault = envPrefix + "FAULT"

func Faults(env []string) (*fault.Injector, error) {
	for _, pair := range env {
		if text, ok := strings.CutPrefix(pair, envFault+"="); ok {
			return fault.Parse(text)
		}
	}
	return nil, nil //nolint:nilnil // a nil Injector is one that does nothing
}

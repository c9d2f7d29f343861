//go:build !fault

package daemon

import (
	"github.com/brim-telemetry/brim/internal/fault"
)

// envFault is no variable of this program; see the other file of this name.
const envFault = ""

// Faults returns none: this program was built without fault injection.
func Faults([]string) (*fault.Injector, error) {
	return nil, nil //nolint:nilnil // a nil Injector is one that does nothing
}

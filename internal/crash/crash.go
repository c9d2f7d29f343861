//go:build !fault

// Package crash ends the process where a fault test asks for it, in a program built
// with the tag fault. In any other program this file is the whole package, and does nothing.
package crash

import (
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/brim-telemetry/brim/internal/journal"
)

// Variable is the name of the environment variable; empty, because this program reads none.
const Variable = ""

// Files returns the files of a journal as they are.
func Files(files journal.Files) journal.Files { return files }

// Monitor returns a monitor of MongoDB commands for the driver; nil: none.
func Monitor() *event.CommandMonitor { return nil }

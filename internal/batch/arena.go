package batch

import "github.com/brim-telemetry/brim/pkg/telemetry"

// An Arena has memory for the fields of readings, allocated for many readings at once. The zero
// value is ready to use.
type Arena struct {
	memory, left []telemetry.Field // allocated last, and what is left of it
	least        int               // length of the next memory
}

// Take returns an empty slice with a capacity of n fields. If it has to allocate, it does so for
// that many readings.
func (a *Arena) Take(n, readings int) []telemetry.Field {
	if len(a.left) < n {
		a.memory = make([]telemetry.Field, max(a.least, n*readings))
		a.left = a.memory
	}
	return a.left[:0:n]
}

// Keep returns the fields that were appended to what Take returned. Their memory is not used
// again before Reuse.
func (a *Arena) Keep(fields []telemetry.Field) []telemetry.Field {
	n := len(fields)
	a.left = a.left[min(n, len(a.left)):]
	return fields[:n:n]
}

// Reuse makes the memory available again: the fields of all readings so far are no longer needed.
func (a *Arena) Reuse() { a.left, a.least = a.memory, 2*len(a.memory) }

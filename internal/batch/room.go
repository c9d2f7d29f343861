package batch

import "github.com/brim-telemetry/brim/pkg/telemetry"

// A Room is memory for the fields of readings, allocated for many readings at once. The zero
// value is ready to use.
type Room struct {
	memory, left []telemetry.Field // allocated last, and what is left of it
	least        int               // length of the next memory
}

// Take returns no fields, with a capacity of n. If it has to allocate, it does so for that many
// readings.
func (r *Room) Take(n, readings int) []telemetry.Field {
	if len(r.left) < n {
		r.memory = make([]telemetry.Field, max(r.least, n*readings))
		r.left = r.memory
	}
	return r.left[:0:n]
}

// Keep returns the fields that were appended to what Take returned. Their memory is not used
// again before Reuse.
func (r *Room) Keep(fields []telemetry.Field) []telemetry.Field {
	n := len(fields)
	r.left = r.left[min(n, len(r.left)):]
	return fields[:n:n]
}

// Reuse says that the fields of all readings so far are not needed any more.
func (r *Room) Reuse() { r.left, r.least = r.memory, 2*len(r.memory) }

package storage

import "github.com/brim-telemetry/brim/internal/doctor"

// A diskState is how a disk was in a stretch of time, in the units of the
// doctor's signals.
type diskState struct {
	busy, await doctor.Signal // with the means as their values
	operations  number        // per second
	bytes       number        // per second
}

// A limit is what holds a disk back.
type limit string

// The limits.
const (
	noLimit         limit = "not the limit"
	operationsBound limit = "bound by operations"
	throughputBound limit = "bound by throughput"
	latencyBound    limit = "bound by latency"
	unseenLimit     limit = "not to be seen"
)

// largeOperation is from which mean size on, in bytes, operations count as a
// stream of data: a disk that is busy with smaller ones is at its operations a
// second, with larger ones at its bytes a second.
const largeOperation = 128 << 10

// limit says which of the three published kinds of limit a disk is at: many
// operations or many bytes while it is busy, or long waits while it is not.
func (d diskState) limit() limit {
	busy, await := number(d.busy.Value), number(d.await.Value)
	switch {
	case !busy.known() || !await.known():
		return unseenLimit
	case float64(busy) > d.busy.Threshold.Bottleneck && d.bytes >= largeOperation*d.operations:
		return throughputBound
	case float64(busy) > d.busy.Threshold.Bottleneck:
		return operationsBound
	case float64(await) >= d.await.Threshold.Degrading:
		return latencyBound
	}
	return noLimit
}

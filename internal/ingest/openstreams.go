package ingest

import (
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A call that lasts takes memory for as long as its client wants, some 12 KiB if
// nothing happens on it. So of all connections together only so many may be open.
const (
	// maxOpen is twice as many as there may be connections by default.
	maxOpen = 8192
	// maxWatches is how many of them may wait for a change of the health.
	maxWatches = 512
)

// codeStreams is that of a call beyond these.
const codeStreams = "streams_too_many"

// openStreams counts the calls that last.
type openStreams struct{ all, watches atomic.Int64 }

// boundCall refuses a call that lasts where there are too many.
func (d *Door) boundCall(service any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer d.open.all.Add(-1)
	if d.open.all.Add(1) > maxOpen {
		return d.refuseCall(call, "calls that last", maxOpen)
	}
	if call.FullMethod == healthpb.Health_Watch_FullMethodName {
		defer d.open.watches.Add(-1)
		if d.open.watches.Add(1) > maxWatches {
			return d.refuseCall(call, "calls of Watch", maxWatches)
		}
	}
	return next(service, stream)
}

func (d *Door) refuseCall(call *grpc.StreamServerInfo, what string, most int) error {
	err := telemetry.Errorf(telemetry.Quota, codeStreams, "%d %s are open, which is the most of all clients together; end some, or try again later", most, what)
	err.RetryAfter = time.Second
	known := d.knownError(protoGRPC, err)
	if strings.HasPrefix(call.FullMethod, "/"+serviceName+"/") {
		d.metrics.answered(protoGRPC, quota, 0, &answer{})
	}
	return statusError(quota, known)
}

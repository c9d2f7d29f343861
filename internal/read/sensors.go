package read

import (
	"context"
	"strings"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// MaxSensors is how many sensors one page lists at most.
const MaxSensors = 10_000

// sensors answers GET /v1/sensors.
func (q *question) sensors(ctx context.Context) error {
	ask := q.params.list
	limit := ask.Limit
	ask.Limit++
	out := q.newWriter(`{"sensors":[`)
	next, last := "", ""
	if narrow(access.From(q.r.Context()), &ask) {
		n := 0
		for s, err := range q.params.source.Sensors(ctx, ask) {
			if err != nil {
				return err
			}
			if n == limit || out.full() {
				next = last
				break
			}
			n, last = n+1, s.Sensor
			out.next()
			out.body = appendSensor(out.body, s)
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
	return out.end(next)
}

// narrow leaves the sensors of the identity; false if none of those that are
// asked for can be.
func narrow(id *access.Identity, ask *telemetry.SensorQuery) bool {
	own := id.Prefix()
	switch {
	case strings.HasPrefix(ask.Prefix, own):
	case strings.HasPrefix(own, ask.Prefix):
		ask.Prefix = own
	default:
		return false
	}
	return true
}

// by names who asks, for the log.
func (q *question) by() string {
	if name := access.From(q.r.Context()).Name; name != "" {
		return name
	}
	return "anyone"
}

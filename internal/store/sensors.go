package store

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A SensorIndex finds sensors in the order of their ids' bytes.
type SensorIndex struct {
	// Next returns the first sensor of the span, "" if there is none.
	Next func(ctx context.Context, span NameSpan) (string, error)
	// Newest returns the time of a sensor's newest reading, in milliseconds since
	// 1970, and whether it has one: it may have been removed in between.
	Newest func(ctx context.Context, sensor string) (ms int64, found bool, err error)
}

// Sensors yields the sensors that a query asks for, in the order of their ids'
// bytes, each with the time of its newest reading. It skips from sensor to
// sensor, so that one costs the same however many readings it has. It ends with
// an error if one occurs.
func (x SensorIndex) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		if err := x.skip(ctx, q, yield); err != nil {
			yield(telemetry.SensorSeen{}, fmt.Errorf("list sensors: %w", err))
		}
	}
}

func (x SensorIndex) skip(ctx context.Context, q telemetry.SensorQuery, yield func(telemetry.SensorSeen, error) bool) error {
	span := SpanOf(q)
	for left := q.Limit; ; {
		id, err := x.Next(ctx, span)
		if err != nil || id == "" {
			return err
		}
		span.From, span.Behind = id, true
		if !strings.HasPrefix(id, q.Prefix) {
			continue
		}
		newest, found, err := x.Newest(ctx, id)
		if err != nil {
			return fmt.Errorf("look at sensor %q: %w", id, err)
		}
		if !found {
			continue
		}
		if !yield(telemetry.SensorSeen{Sensor: id, Newest: newest}, nil) {
			return nil
		}
		if left--; left == 0 {
			return nil
		}
	}
}

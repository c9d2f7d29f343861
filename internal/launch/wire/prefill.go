package wire

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	prefillRequest = 10_000           // readings of a request, at most
	prefillCalls   = 3                // at a time
	storedTimeout  = 15 * time.Minute // in which all that was taken must be stored
)

var errPrefill = errors.New("prefill: rows from 0, to at least one more, and an interval above 0 are needed")

// Prefill says which readings are there before a measurement begins.
type Prefill struct {
	Sensors  *load.Sensors
	Begin    time.Time // of reading 0 of each sensor
	Interval time.Duration
	From, To int // readings of each sensor, by number; To is not included
}

// Run sends the readings to a daemon's default stream, many of a sensor at
// once, and returns when they are stored. They are those that `brim load`
// makes with the same seed, prefix and number of sensors.
func (p Prefill) Run(ctx context.Context, d *launch.Daemon) error {
	rows := p.To - p.From
	if p.From < 0 || rows < 1 || p.Interval <= 0 {
		return errPrefill
	}
	perRequest := max(1, prefillRequest/rows)
	var next atomic.Int64
	calls, under := errgroup.WithContext(ctx)
	for range prefillCalls {
		calls.Go(func() error {
			var wrong error
			err := Stream(under, d.GRPC, func(int64) (text []byte, ok bool) {
				first := int(next.Add(int64(perRequest))) - perRequest
				if first >= p.Sensors.Len() || under.Err() != nil {
					return nil, false
				}
				text, wrong = p.body(first, min(first+perRequest, p.Sensors.Len()))
				return text, wrong == nil
			})
			if wrong != nil {
				return wrong
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return fmt.Errorf("fill buckets: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.Flush(ctx, storedTimeout)
}

// body is a request with the readings of the sensors from first up to, not
// including, end.
func (p Prefill) body(first, end int) ([]byte, error) {
	request := &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED}
	var fields []telemetry.Field
	for sensor := first; sensor < end; sensor++ {
		series := &telemetrypb.Series{SensorId: p.Sensors.ID(sensor)}
		for _, tag := range p.Sensors.Tags(sensor) {
			series.Tags = append(series.Tags, &telemetrypb.Tag{Name: tag.Name, Value: tag.Value})
		}
		for row := p.From; row < p.To; row++ {
			at := p.Begin.Add(time.Duration(row) * p.Interval)
			series.TsMs = append(series.TsMs, at.UnixMilli())
			fields = p.Sensors.AppendFields(fields[:0], sensor, uint64(row), at) //nolint:gosec // counts from 0
			for i, f := range fields {
				if row == p.From {
					series.Columns = append(series.Columns, &telemetrypb.Column{Name: f.Name})
				}
				series.Columns[i].Doubles = append(series.Columns[i].Doubles, f.Value.Float())
			}
		}
		request.Series = append(request.Series, series)
	}
	text, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	return text, nil
}

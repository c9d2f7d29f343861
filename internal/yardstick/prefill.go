package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// prefillRequest is how many readings a request has at most.
const prefillRequest = 10_000

// prefill gives each of the sensors of `brim load` so many readings from the
// window's begin on, the same fields as that, many of a sensor at once.
func prefill(ctx context.Context, r *rig, window time.Time, rows int) error {
	perRequest := max(1, prefillRequest/rows)
	var next atomic.Int64
	calls, under := errgroup.WithContext(ctx)
	for range rawWriters {
		calls.Go(func() error {
			var wrong error
			err := stream(under, r.GRPC, func(int64) (text []byte, ok bool) {
				first := int(next.Add(int64(perRequest))) - perRequest
				if first >= prefilledSensors || under.Err() != nil {
					return nil, false
				}
				text, wrong = prefillBody(first, min(first+perRequest, prefilledSensors), window, rows)
				return text, wrong == nil
			})
			if wrong != nil {
				return wrong
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	return r.Flush(ctx, storedTimeout)
}

// prefillBody is the readings of the sensors from first up to, not including,
// end.
func prefillBody(first, end int, window time.Time, rows int) ([]byte, error) {
	request := &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED}
	for sensor := first; sensor < end; sensor++ {
		random := rand.New(rand.NewPCG(uint64(sensor), 5)) //nolint:gosec // pretended load
		series := &telemetrypb.Series{SensorId: prefilledPrefix + strconv.Itoa(sensor+1)}
		for row := range rows {
			series.TsMs = append(series.TsMs, window.Add(time.Duration(row)*prefilledInterval).UnixMilli())
		}
		for _, name := range []string{"t", "h", "p", "v"} {
			column := &telemetrypb.Column{Name: name}
			for range rows {
				column.Doubles = append(column.Doubles, float64(random.IntN(1000))/10)
			}
			series.Columns = append(series.Columns, column)
		}
		request.Series = append(request.Series, series)
	}
	text, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	return text, nil
}

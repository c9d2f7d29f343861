package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// usage makes the readings of the growth: hosts with so many integer fields.
type usage struct{ fields []string }

func newUsage(fields int) *usage {
	u := &usage{fields: make([]string, fields)}
	for f := range u.fields {
		u.fields[f] = fmt.Sprintf("usage_%02d", f)
	}
	return u
}

// ID implements lane.Source.
func (*usage) ID(sensor int) string { return fmt.Sprintf("cpu,hostname=host_%d", sensor) }

// Tags implements lane.Source.
func (*usage) Tags(int) []telemetry.Tag { return []telemetry.Tag{{Name: "region", Value: "eu-west-1"}} }

// AppendFields implements lane.Source.
func (u *usage) AppendFields(dst []telemetry.Field, sensor int, _ uint64, at time.Time) []telemetry.Field {
	for f, name := range u.fields {
		value := (at.Unix() + int64(sensor*7+f*13)) % (mostUsage + 1)
		dst = append(dst, telemetry.Field{Name: name, Value: telemetry.IntValue(value)})
	}
	return dst
}

// A growthWriter writes its part of the sensors, in turn, as a lane does that
// has merged so many readings of each.
type growthWriter struct {
	shape
	lane     *lane.Lane
	sensors  []int
	next     int    // the sensor whose turn it is
	step     uint64 // of event time, that its next reading has
	portions []lane.Portion
}

// writers share the sensors out in an order that is not that of their ids, as
// lanes have them by hash: neighbours in the index are not written together.
func (s shape) writers(st lane.Store) []*growthWriter {
	source := newUsage(s.Fields)
	begin := time.Now().Truncate(time.Hour).Add(-monthsBack * month)
	writers := make([]*growthWriter, s.Writers)
	for w := range writers {
		writers[w] = &growthWriter{shape: s, lane: lane.New(lane.Config{
			Store: st, Source: source, Stream: collection, Granularity: time.Hour, Begin: begin, Interval: interval,
		})}
	}
	stride := coprime(s.Sensors)
	for i := range s.Sensors {
		w := writers[i%s.Writers]
		w.sensors = append(w.sensors, i*stride%s.Sensors)
	}
	return writers
}

// coprime returns a number that, taken n times modulo n, leads everywhere.
func coprime(n int) int {
	divisor := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	at := max(int(float64(n)*0.618), 1)
	for divisor(at, n) != 1 {
		at++
	}
	return at
}

// A written is what a writer has done.
type written struct {
	readings, updates int64
	touched           int // sensors
}

// fill writes until the time is over.
func (w *growthWriter) fill(ctx context.Context, until time.Time) (done written, err error) {
	for time.Now().Before(until) {
		shares, updates, err := w.write(ctx)
		if err != nil {
			return done, err
		}
		done.readings += int64(shares * w.PerUpdate)
		done.updates += int64(updates)
		done.touched = min(done.touched+shares, len(w.sensors))
	}
	return done, nil
}

// write makes shares for the sensors whose turn it is, and writes them until
// nothing is left. It never goes beyond the last sensor, so that a bucket has
// one share.
func (w *growthWriter) write(ctx context.Context) (shares, updates int, err error) {
	n := min(len(w.sensors)-w.next, lane.Together(w.PerUpdate))
	w.portions = w.portions[:0]
	for _, sensor := range w.sensors[w.next : w.next+n] {
		w.portions = append(w.portions, lane.Portion{Sensor: sensor, First: w.step, Count: w.PerUpdate})
	}
	if w.next += n; w.next == len(w.sensors) {
		w.next, w.step = 0, w.step+uint64(w.PerUpdate) //nolint:gosec // it counts from 1
	}
	updates, err = w.lane.Write(ctx, w.portions)
	return n, updates, err
}

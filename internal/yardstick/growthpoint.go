package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// warmUp is for how many times the time of a point its buckets are created at
// most.
const warmUp = 20

// A growthPoint is what came of writing one shape.
type growthPoint struct {
	shape
	Created  int     `json:"created"` // sensors that had a bucket when the clock began
	Touched  int     `json:"touched"` // sensors that were written after that
	Readings int64   `json:"readings"`
	Updates  int64   `json:"updates"`
	Seconds  float64 `json:"seconds"`

	Rate    float64 `json:"readings_per_second"`
	Updated float64 `json:"updates_per_second"`
	// Processor time in microseconds.
	MongodReading float64 `json:"mongod_us_per_reading"`
	MongodUpdate  float64 `json:"mongod_us_per_update"`
	ClientReading float64 `json:"client_us_per_reading"`
	// Round trips of commands, in microseconds; of an update it is its part of
	// the command that carried it.
	TripP50    float64 `json:"round_trip_us_p50"`
	TripP99    float64 `json:"round_trip_us_p99"`
	TripUpdate float64 `json:"round_trip_us_per_update"`

	Documents int64   `json:"documents"`      // at the end
	Bytes     float64 `json:"document_bytes"` // of a document, before compression
	Held      float64 `json:"document_readings"`
}

// measure writes a shape into a fresh collection, in which each sensor has a
// bucket beforehand.
func (m *growthMongod) measure(ctx context.Context, s shape, duration time.Duration) (p *growthPoint, err error) {
	st, err := m.store(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		under, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, m.database().Drop(under))
	}()
	writers := s.writers(st)
	p = &growthPoint{shape: s}
	if p.Created, err = createAll(ctx, m.database().Collection(collection), writers, warmUp*duration); err != nil {
		return nil, err
	}
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	if err := m.clock(ctx, p, writers, duration); err != nil {
		return nil, err
	}
	documents, bytes, readings, err := m.sizes(ctx)
	if err != nil {
		return nil, err
	}
	if sent := p.Readings + int64(p.Created); readings != sent {
		return nil, fmt.Errorf("MongoDB has %d readings of %d that were written", readings, sent)
	}
	p.Documents, p.Bytes, p.Held = documents, float64(bytes)/float64(documents), float64(readings)/float64(documents)
	return p, nil
}

// clock lets the writers write and notes what it took.
func (m *growthMongod) clock(ctx context.Context, p *growthPoint, writers []*growthWriter, duration time.Duration) error {
	before, err := m.usage()
	if err != nil {
		return err
	}
	m.trips.take() // those of the warm-up
	start := time.Now()
	done := make([]written, len(writers))
	group, under := errgroup.WithContext(ctx)
	for i, w := range writers {
		group.Go(func() (err error) {
			done[i], err = w.fill(under, start.Add(duration))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := m.usage()
	if err != nil {
		return err
	}
	for _, d := range done {
		p.Readings, p.Updates, p.Touched = p.Readings+d.readings, p.Updates+d.updates, p.Touched+d.touched
	}
	p.tell(after.since(before), took, m.trips.take())
	return nil
}

// tell computes what a point tells of itself.
func (p *growthPoint) tell(used cpu, took time.Duration, trips []time.Duration) {
	p.Seconds = took.Seconds()
	p.Rate, p.Updated = float64(p.Readings)/p.Seconds, float64(p.Updates)/p.Seconds
	p.MongodReading, p.MongodUpdate = per(used.mongod, p.Readings), per(used.mongod, p.Updates)
	p.ClientReading = per(used.generator, p.Readings)
	slices.Sort(trips)
	p.TripP50, p.TripP99 = quantile(trips, 0.5), quantile(trips, 0.99)
	var all time.Duration
	for _, trip := range trips {
		all += trip
	}
	p.TripUpdate = per(all, p.Updates)
}

// quantile of sorted times, in microseconds; 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at].Nanoseconds()) / 1e3
}

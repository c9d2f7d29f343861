package advise

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// updateOf says which update is to be measured.
type updateOf struct {
	storage             store.Storage
	resident, perUpdate int
	sensors             int // at most
}

const (
	manySensors  = 1000
	fewSensors   = 8
	mostRounds   = 64
	singleRounds = 300 // of a single sensor, whose commands have one update
)

// update measures what it costs to add readings to documents that have some. All
// documents have as many, and all grow alike.
func (s *session) update(ctx context.Context, of updateOf) (u Update, err error) {
	sensors := min(max(s.grownReadings/of.resident, fewSensors), of.sensors)
	rounds := mostRounds
	if sensors == 1 {
		rounds = singleRounds
	}
	// All of a document's readings are in one window.
	interval := max(time.Millisecond, (time.Hour / time.Duration(of.resident+rounds*of.perUpdate+1)).Truncate(time.Millisecond))
	r, err := s.readings(sensors, of.resident, interval)
	if err != nil {
		return u, err
	}
	c, err := s.collection(ctx, Candidate{
		Storage: of.storage, Granularity: time.Hour, Compressor: store.Snappy, MaxReadings: 1_000_000, MaxBytes: mostBytes,
	}, r, of.resident)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, c.Drop(context.WithoutCancel(ctx))) }()
	if _, err := c.Load(ctx); err != nil {
		return u, err
	}
	if err := s.m.Checkpoint(ctx); err != nil {
		return u, err
	}
	before, err := s.used(ctx)
	if err != nil {
		return u, err
	}
	began, done := time.Now(), 0
	for done < rounds && (done < 2 || time.Since(began) < s.updating) {
		if err := c.Write(ctx, portions(sensors, of.resident+done*of.perUpdate, of.perUpdate)); err != nil {
			return u, err
		}
		done++
	}
	took := time.Since(began)
	after, err := s.used(ctx)
	n := 1 / float64(done*sensors)
	return Update{
		Storage: of.storage, PerUpdate: of.perUpdate, Resident: float64(of.resident) + float64((done-1)*of.perUpdate)/2,
		CPU: CPU{after.Mongod - before.Mongod, after.Brim - before.Brim}.times(n), Seconds: took.Seconds() * n,
	}, err
}

// portions are as many readings of each sensor, from one on.
func portions(sensors, first, count int) []lane.Portion {
	out := make([]lane.Portion, sensors)
	for i := range out {
		out[i] = lane.Portion{Sensor: i, First: uint64(first), Count: count} //nolint:gosec // counts from 0
	}
	return out
}

// rewriteOf says which documents a checkpoint is to be measured with.
type rewriteOf struct {
	storage    store.Storage
	compressor store.Compressor
	resident   int
}

const (
	rewrittenDocuments = 2000
	fewestRewritten    = 20
	rewriteRounds      = 2
)

// rewrite measures what a checkpoint writes after each document got a reading,
// and what that costs.
func (s *session) rewrite(ctx context.Context, of rewriteOf) (out Rewrite, err error) {
	sensors := min(max(s.grownReadings/of.resident, fewestRewritten), rewrittenDocuments)
	interval := max(time.Millisecond, (time.Hour / time.Duration(of.resident+rewriteRounds+1)).Truncate(time.Millisecond))
	r, err := s.readings(sensors, of.resident, interval)
	if err != nil {
		return out, err
	}
	c, err := s.collection(ctx, Candidate{
		Storage: of.storage, Granularity: time.Hour, Compressor: of.compressor, MaxReadings: 1_000_000, MaxBytes: mostBytes,
	}, r, of.resident)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.Drop(context.WithoutCancel(ctx))) }()
	if _, err := c.Load(ctx); err != nil {
		return out, err
	}
	if err := s.m.Checkpoint(ctx); err != nil {
		return out, err
	}
	out = Rewrite{Storage: of.storage, Compressor: of.compressor, Resident: float64(of.resident)}
	for i := range rewriteRounds {
		if err := s.rewriteOnce(ctx, c, &out, portions(sensors, of.resident+i, 1)); err != nil {
			return out, err
		}
	}
	n := float64(sensors * rewriteRounds)
	out.Bytes, out.Mongod = out.Bytes/n, out.Mongod/n
	return out, nil
}

// rewriteOnce adds what one checkpoint took after the portions were written.
func (s *session) rewriteOnce(ctx context.Context, c *shape.Collection, out *Rewrite, p []lane.Portion) error {
	counted, err := s.m.Counters(ctx)
	if err != nil {
		return err
	}
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	before, err := s.m.CPU(ctx)
	if err != nil {
		return err
	}
	if err := s.m.Checkpoint(ctx); err != nil {
		return err
	}
	after, err := s.m.CPU(ctx)
	if err != nil {
		return err
	}
	now, err := s.m.Counters(ctx)
	out.Bytes += now.Since(counted, "block_written_bytes_total")
	out.Mongod += (after - before).Seconds()
	return err
}

package compression

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
)

// reads reads from the disk, then the same again from the cache.
func (t *trial) reads(ctx context.Context) error {
	if t.kept == nil {
		for at := range shapes() {
			t.lab.Step("load %s with each compressor", shapes()[at])
			if err := t.loadAll(ctx, at, Walk); err != nil {
				return err
			}
		}
		t.data.Sizes = nil // nobody asked for them
	}
	for at, s := range shapes() {
		for by, c := range compressors() {
			t.data.Reads = append(t.data.Reads, ReadData{Shape: s.String(), Compressor: c, at: at, by: by})
		}
	}
	cold := t.coldPossible()
	for repeat := range t.lab.Repeats {
		t.lab.Step("read %d readings at a time, cold and warm, repeat %d", readCount, repeat+1)
		if cold {
			if err := t.restart(ctx); err != nil {
				return err
			}
		}
		if err := t.readAll(ctx, repeat, cold); err != nil {
			return err
		}
	}
	return nil
}

// coldPossible says if not.
func (t *trial) coldPossible() bool {
	const what = "cold reads"
	if !t.lab.Own() {
		t.result.LeaveOut(what, bench.OwnOnly)
		return false
	}
	if err := provesCold(t.lab.Dir()); err != nil {
		t.result.LeaveOut(what, "the system's page cache cannot be dropped here: "+err.Error())
		return false
	}
	return true
}

// restart empties the server's cache.
func (t *trial) restart(ctx context.Context) error {
	if err := t.m.Restart(ctx, bench.Setting{}); err != nil {
		return err
	}
	var errs []error
	for _, row := range t.kept {
		for _, c := range row {
			errs = append(errs, c.Attach(t.m))
		}
	}
	return errors.Join(errs...)
}

// readAll reads every shape with each compressor.
func (t *trial) readAll(ctx context.Context, repeat int, cold bool) error {
	spans := t.spans(repeat)
	for at, row := range t.kept {
		took, warm := make([]reading, len(row)), make([]reading, len(row))
		for _, c := range row {
			// The first read opens the collection's files, and does not count.
			if err := (&reading{}).read(ctx, c, spans[:1], nil); err != nil {
				return err
			}
		}
		if err := t.inTurns(ctx, row, spans[1:], took, cold); err != nil {
			return err
		}
		if err := t.inTurns(ctx, row, spans[1:], warm, false); err != nil {
			return err
		}
		for by := range row {
			d := t.data.read(at, by)
			d.WarmP50, d.WarmP99 = append(d.WarmP50, warm[by].took.Quantile(0.5)), append(d.WarmP99, warm[by].took.Quantile(0.99))
			if cold {
				d.ColdP50, d.ColdP99 = append(d.ColdP50, took[by].took.Quantile(0.5)), append(d.ColdP99, took[by].took.Quantile(0.99))
				d.ColdBytes = append(d.ColdBytes, took[by].bytes/float64(len(took[by].took)))
			}
		}
	}
	return nil
}

// inTurns reads a few spans in one collection, the same in the next, and so on,
// so that a slow moment hits all.
func (t *trial) inTurns(ctx context.Context, row []*shape.Collection, spans []shape.Span, into []reading, cold bool) error {
	const turn = 6
	var before func() error
	if cold {
		dir := t.m.DBPath()
		before = func() error { return dropCache(dir) }
	}
	for some := range slices.Chunk(spans, turn) {
		for by, c := range row {
			from, err := t.m.Counters(ctx)
			if err != nil {
				return err
			}
			if err := into[by].read(ctx, c, some, before); err != nil {
				return err
			}
			to, err := t.m.Counters(ctx)
			if err != nil {
				return err
			}
			into[by].bytes += to.Since(from, "block_read_bytes_total")
		}
	}
	return nil
}

// spans are places to read: in every part of the time two, of sensors that are
// written far from each other, so that hardly two are on the same page; in random
// order.
func (t *trial) spans(repeat int) []shape.Span {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
	half := t.scale.sensors / 2
	var spans []shape.Span
	for first := 0; first+readCount <= t.scale.hours*hour; first += readCount {
		sensor := random.IntN(half)
		for _, s := range []int{sensor, sensor + half} {
			spans = append(spans, shape.Span{Sensor: s, First: uint64(first), Count: readCount}) //nolint:gosec // counts from 0
		}
	}
	random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	return spans
}

// reading is what reads took.
type reading struct {
	took  bench.Samples // seconds of each
	bytes float64       // from the files, of all
}

// read reads the spans one after another; before is called ahead of each, if it
// is not nil, and does not count.
func (r *reading) read(ctx context.Context, c *shape.Collection, spans []shape.Span, before func() error) error {
	for _, s := range spans {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		began := time.Now()
		n, err := c.Read(ctx, s)
		if err != nil {
			return err
		}
		if n != s.Count {
			return fmt.Errorf("read %s: %d readings came, not %d", c.Shape, n, s.Count)
		}
		r.took = append(r.took, time.Since(began).Seconds())
	}
	return nil
}

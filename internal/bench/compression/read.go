package compression

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		for by, c := range row {
			d := t.data.read(at, by)
			// The first read opens the collection's files, and does not count.
			if _, err := readSpans(ctx, c, spans[:1], nil); err != nil {
				return err
			}
			if cold {
				if err := t.readCold(ctx, c, spans[1:], d); err != nil {
					return err
				}
			} else if _, err := readSpans(ctx, c, spans, nil); err != nil {
				return err
			}
			took, err := readSpans(ctx, c, spans, nil)
			if err != nil {
				return err
			}
			d.WarmP50, d.WarmP99 = append(d.WarmP50, quantile(took, 0.5)), append(d.WarmP99, quantile(took, 0.99))
		}
	}
	return nil
}

func (t *trial) readCold(ctx context.Context, c *shape.Collection, spans []shape.Span, d *ReadData) error {
	before, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	dir := t.m.DBPath()
	took, err := readSpans(ctx, c, spans, func() error { return dropCache(dir) })
	if err != nil {
		return err
	}
	after, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	d.ColdP50, d.ColdP99 = append(d.ColdP50, quantile(took, 0.5)), append(d.ColdP99, quantile(took, 0.99))
	d.ColdBytes = append(d.ColdBytes, after.Since(before, "block_read_bytes_total")/float64(len(spans)))
	return nil
}

// spans are places to read, each in another part of the time, so that hardly two
// are on the same page, in random order.
func (t *trial) spans(repeat int) []shape.Span {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
	n := t.scale.hours * hour / readCount
	spans := make([]shape.Span, n)
	for to, from := range random.Perm(n) {
		spans[to] = shape.Span{Sensor: random.IntN(t.scale.sensors), First: uint64(from * readCount), Count: readCount} //nolint:gosec // counts from 0
	}
	return spans
}

// readSpans reads one after another and returns the seconds that each took;
// before is called ahead of each, if it is not nil, and does not count.
func readSpans(ctx context.Context, c *shape.Collection, spans []shape.Span, before func() error) (took bench.Samples, err error) {
	for _, s := range spans {
		if before != nil {
			if err := before(); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		n, err := c.Read(ctx, s)
		if err != nil {
			return nil, err
		}
		if n != s.Count {
			return nil, fmt.Errorf("read %s: %d readings came, not %d", c.Shape, n, s.Count)
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took, nil
}

package compression

import (
	"context"
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench/shape"
)

// sizes loads every shape with each compressor and both kinds of values. Those
// with a random walk are kept for the reads.
func (t *trial) sizes(ctx context.Context) error {
	for _, values := range []Values{Random, Walk} {
		for at := range shapes() {
			t.lab.Step("load %s of %s with each compressor", shapes()[at], values)
			if err := t.loadAll(ctx, at, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadAll loads a shape with each compressor.
func (t *trial) loadAll(ctx context.Context, at int, values Values) error {
	var loaded []*shape.Collection
	for by := range compressors() {
		c, err := t.load(ctx, at, by, values)
		if err != nil {
			return err
		}
		loaded = append(loaded, c)
	}
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	for by, c := range loaded {
		size, err := c.Size(ctx)
		if err != nil {
			return err
		}
		t.data.Sizes = append(t.data.Sizes, SizeData{
			Shape: c.Shape.String(), Values: values, Compressor: c.Compressor, Size: size, at: at, by: by,
		})
		if values != Walk {
			if err := c.Drop(ctx); err != nil {
				return err
			}
		}
	}
	if values == Walk {
		t.kept = append(t.kept, loaded)
	}
	return nil
}

func (t *trial) load(ctx context.Context, at, by int, values Values) (*shape.Collection, error) {
	c, err := shape.New(ctx, t.m, shape.Config{
		Name: fmt.Sprintf("shape%d_%s", at, compressors()[by]), Shape: shapes()[at], Compressor: compressors()[by],
		Readings: t.readings(values, t.scale.hours), PerUpdate: perUpdate,
	})
	if err != nil {
		return nil, err
	}
	_, err = c.Load(ctx)
	return c, err
}

package timeseries

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// loads loads every shape as often as there are repeats, turn by turn.
func (t *trial) loads(ctx context.Context) error {
	for repeat := range t.lab.Repeats {
		for _, s := range t.subject {
			t.lab.Step("load %d readings as %s, repeat %d", t.scale.readings, s.Shape, repeat+1)
			loaded, err := t.load(ctx, s)
			if err != nil {
				return err
			}
			s.Load = append(s.Load, loaded.Took.Seconds())
			s.Updates = loaded.Updates
			if err := t.size(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadOnce is for those who only read.
func (t *trial) loadOnce(ctx context.Context) error {
	for _, s := range t.subject {
		if _, err := t.load(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) load(ctx context.Context, s *subject) (l shape.Loaded, err error) {
	s.coll, err = shape.New(ctx, t.m, shape.Config{
		Name: s.name, Shape: s.Shape, Compressor: pinned, Readings: t.readings(t.scale.readings), PerUpdate: shape.CommandReadings,
	})
	if err != nil {
		return l, err
	}
	if err := t.m.Settle(ctx); err != nil {
		return l, err
	}
	return s.coll.Load(ctx)
}

func (t *trial) size(ctx context.Context, s *subject) (err error) {
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	if s.Size, err = s.coll.Size(ctx); err != nil {
		return err
	}
	s.Data = append(s.Data, float64(s.Size.Data()))
	s.Index = append(s.Index, float64(s.Size.Index()))
	s.Total = append(s.Total, float64(s.Size.Data()+s.Size.Index()))
	return nil
}

// otherCompressors are those that the pinned one is compared with.
func otherCompressors() []store.Compressor { return []store.Compressor{store.Zstd} }

// defaults loads every shape with the other compressors, once: bytes do not
// change from run to run. With the pinned one it is loaded already, or now.
func (t *trial) defaults(ctx context.Context) error {
	if t.subject[0].coll == nil {
		if err := t.loadOnce(ctx); err != nil {
			return err
		}
	}
	if t.subject[0].Size.Readings == 0 {
		for _, s := range t.subject {
			if err := t.size(ctx, s); err != nil {
				return err
			}
		}
	}
	for _, s := range t.subject {
		t.data.Compressors = append(t.data.Compressors, CompressorData{Shape: s.String(), Compressor: pinned, Size: s.Size})
		for _, compressor := range otherCompressors() {
			t.lab.Step("load %d readings as %s with %s", t.scale.readings, s.Shape, compressor)
			size, err := t.sized(ctx, s.Shape, compressor)
			if err != nil {
				return err
			}
			t.data.Compressors = append(t.data.Compressors, CompressorData{Shape: s.String(), Compressor: compressor, Size: size})
		}
	}
	return nil
}

func (t *trial) sized(ctx context.Context, s shape.Shape, compressor store.Compressor) (size shape.Size, err error) {
	c, err := shape.New(ctx, t.m, shape.Config{
		Name: "compressed", Shape: s, Compressor: compressor, Readings: t.readings(t.scale.readings), PerUpdate: shape.CommandReadings,
	})
	if err != nil {
		return size, err
	}
	if _, err := c.Load(ctx); err != nil {
		return size, err
	}
	if err := t.m.Checkpoint(ctx); err != nil {
		return size, err
	}
	if size, err = c.Size(ctx); err != nil {
		return size, err
	}
	return size, c.Drop(ctx)
}

// lateShares are the shares of readings that come late.
func lateShares() []float64 { return []float64{0, 0.01, 0.10, 0.30} }

// lates loads readings of which some come late, in the order in which they come.
// Only buckets and bytes are told of it, so that all shapes are loaded at once.
func (t *trial) lates(ctx context.Context) error {
	t.lab.Step("load %d readings of which some come late", t.scale.late)
	group, under := errgroup.WithContext(ctx)
	var at int
	t.data.Late = make([]LateData, len(lateShares())*(len(t.subject)-1))
	for _, s := range t.subject {
		if s.Kind == shape.Documents {
			continue // each is a document, whenever it comes
		}
		for i, share := range lateShares() {
			readings := t.readings(t.scale.late)
			readings.Late = shape.Late{Share: share, From: lateFrom, To: lateTo, Seed: t.lab.Seed}
			out := &t.data.Late[at]
			*out = LateData{Shape: s.String(), Share: share}
			at++
			group.Go(func() error { return t.late(under, s, i, out, readings) })
		}
	}
	return group.Wait()
}

const (
	lateFrom = 12 * interval * 60
	lateTo   = 36 * interval * 60
	// lateTogether is how many readings in time arrive together: those of an hour.
	lateTogether = 60
)

func (t *trial) late(ctx context.Context, s *subject, number int, out *LateData, readings shape.Readings) error {
	c, err := shape.New(ctx, t.m, shape.Config{
		Name: lateName(s.name, number), Shape: s.Shape, Compressor: pinned, Readings: readings, PerUpdate: lateTogether,
	})
	if err != nil {
		return err
	}
	loaded, err := c.Load(ctx)
	if err != nil {
		return err
	}
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	if out.Size, err = c.Size(ctx); err != nil {
		return err
	}
	out.Updates = loaded.Updates
	return c.Drop(ctx)
}

func lateName(of string, number int) string { return of + "_late_" + string(rune('a'+number)) }

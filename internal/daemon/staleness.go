package daemon

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/brim-telemetry/brim/internal/daemon/staleness"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// newStaleness makes the watch over sensors of which nothing comes any more.
func newStaleness(c *Settings, setup storageSetup) (*staleness.Watch, error) {
	after := make(map[string]time.Duration, len(c.Streams))
	for _, stream := range c.Streams {
		after[stream.Name] = stream.SilentAfter
	}
	w, err := staleness.New(staleness.Config{After: after, Logger: setup.logger, Registerer: setup.registry})
	if err != nil {
		return nil, fmt.Errorf("set up the watch over silent sensors: %w", err)
	}
	return w, nil
}

// watchStaleness recalls the sensors of each stream once it is prepared.
func (s *storage) watchStaleness(ctx context.Context) {
	s.staleness.Run(ctx, func(ctx context.Context, stream string) iter.Seq2[telemetry.SensorSeen, error] {
		return func(yield func(telemetry.SensorSeen, error) bool) {
			select {
			case <-s.ready[stream]:
			case <-ctx.Done():
				yield(telemetry.SensorSeen{}, ctx.Err())
				return
			}
			s.homes[stream].Sensors(ctx, telemetry.SensorQuery{})(yield)
		}
	})
}

// A watchedSource is a stream's store, whose deleted sensors are missed by
// nobody.
type watchedSource struct {
	read.Source

	staleness *staleness.Stream
}

// Delete implements read.Source.
func (w watchedSource) Delete(ctx context.Context, sensor string) (int64, error) {
	n, err := w.Source.Delete(ctx, sensor)
	if err == nil {
		w.staleness.Forget(sensor)
	}
	return n, err
}

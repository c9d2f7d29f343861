package staleness

import (
	"context"
	"iter"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors yields the sensors that a stream's store has. A failure is the last
// thing that it yields.
type Sensors func(ctx context.Context, stream string) iter.Seq2[telemetry.SensorSeen, error]

// A recall is gentle: after so many sensors it pauses, so that a million of them
// take two minutes, and readers and writers have the database for themselves in
// between.
const (
	recallAtOnce = 1000
	recallPause  = 100 * time.Millisecond
	recallAgain  = time.Minute // after one that failed
)

// recall brings back what was known before a restart, so that who fell silent
// while no daemon ran is counted, too. When a reading arrived is not stored; its
// time stands for that, but never lies ahead.
func (s *Stream) recall(ctx context.Context, sensors iter.Seq2[telemetry.SensorSeen, error]) {
	n := 0
	for seen, err := range sensors {
		if err != nil {
			if ctx.Err() == nil {
				s.watch.cfg.Logger.Warn("recall the sensors of a stream, to be tried again", "stream", s.name, "again_in", recallAgain.String(), "err", err)
			}
			return
		}
		now := time.Now()
		newest := time.UnixMilli(seen.Newest)
		if newest.After(now) {
			newest = now
		}
		if now.Sub(newest) <= s.watch.cfg.Remember {
			s.Came(seen.Sensor, newest)
		}
		if n++; n%recallAtOnce == 0 && machine.Pause(ctx, recallPause) != nil {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.recalled.Store(true)
	s.watch.cfg.Logger.Info("recalled the sensors of a stream", "stream", s.name, "sensors", n)
}

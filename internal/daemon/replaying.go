package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/brim-telemetry/brim/internal/queue"
)

// replayReport is how often the progress of a replay is told.
const replayReport = 5 * time.Second

// watchReplay tells how an earlier process's readings come to the store, until
// they are all there or ctx ends.
func watchReplay(ctx context.Context, j journalLog, q *queue.Queue, logger *slog.Logger) {
	oldest, end := j.Oldest(), j.End()
	if oldest >= end {
		return
	}
	total := q.Status().Readings
	logger.Info("replaying the journal", "readings", total)
	began := time.Now()
	ticker := time.NewTicker(replayReport)
	defer ticker.Stop()
	passed := q.Passed(end)
	for {
		select {
		case <-passed:
			took := time.Since(began)
			logger.Info("journal replayed", "readings", total, "took", took.Round(time.Millisecond), "readings_per_second", int(float64(total)/took.Seconds()))
			return
		case <-ticker.C:
			s := q.Status()
			done := float64(s.Rest-oldest) / float64(end-oldest)
			logger.Info("replaying the journal", "percent", int(100*done), "readings_stored", s.Released,
				"readings_per_second", int(float64(s.Released)/time.Since(began).Seconds()))
		case <-ctx.Done():
			return
		}
	}
}

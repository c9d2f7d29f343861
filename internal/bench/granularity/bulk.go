package granularity

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A bulkPoint is what an append costs by the readings that its bucket holds, where
// a lane writes many buckets a command, with the concerns of the daemon's.
type bulkPoint struct {
	Residents float64 // mean while it was measured
	CPU, Time float64 // seconds an append: of mongod's CPU, and as one writer sees it
}

// bulkCost appends as a lane does and tells what it cost.
func bulkCost(ctx context.Context, m *bench.MongoDB, s *stock, appends int) (p bulkPoint, err error) {
	p.Residents = s.held()
	before, err := m.CPU(ctx)
	if err != nil {
		return p, err
	}
	began := time.Now()
	if err := s.bulk(ctx, appends); err != nil {
		return p, err
	}
	took := time.Since(began)
	after, err := m.CPU(ctx)
	if err != nil {
		return p, err
	}
	p.CPU, p.Time = (after-before).Seconds()/float64(appends), took.Seconds()/float64(appends)
	p.Residents = (p.Residents + s.held()) / 2
	return p, nil
}

package granularity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/fit"
)

// A Shape is what is appended, and to what.
type Shape struct {
	Fields    int   // of a reading, floating-point numbers; 0: 4
	PerUpdate int   // readings that an append brings; at least 1
	Residents []int // readings that the bucket holds before it; two numbers at least, each at least 1
	Seed      uint64
}

// A Cost is what an append costs by the readings that its bucket holds: a lane
// writes many buckets a command, with the concerns of the daemon's.
type Cost struct {
	Fields    int         `json:"fields"`
	PerUpdate int         `json:"per_update"`
	CPU       fit.Line    `json:"mongod_cpu"` // seconds of the server's CPU an append
	Time      fit.Line    `json:"time"`       // seconds that one writer takes for an append; the client's own work is in it
	Points    []CostPoint `json:"points"`
}

// A CostPoint is one measurement.
type CostPoint struct {
	Residents float64 `json:"residents"` // mean while it was measured
	CPU       float64 `json:"mongod_cpu"`
	Time      float64 `json:"time"`
	Bytes     int     `json:"document_bytes"` // in the beginning
}

const (
	costPasses   = 3   // over all numbers of residents
	costAppends  = 600 // of a pass over one, at most
	costReadings = 1 << 16
)

// Measure appends to buckets that hold so many readings, in collections that it
// makes and drops, and returns what that costs. It takes a few seconds.
func Measure(ctx context.Context, m *bench.MongoDB, shape Shape) (c *Cost, err error) {
	if shape.PerUpdate < 1 || len(shape.Residents) < 2 || slices.Min(shape.Residents) < 1 {
		return nil, fmt.Errorf("measure appends of %d readings to buckets of %v: at least 1, to buckets of two sizes with at least 1", shape.PerUpdate, shape.Residents)
	}
	c = &Cost{Fields: shape.Fields, PerUpdate: shape.PerUpdate}
	appends := min(costAppends, max(costReadings/shape.PerUpdate/costPasses, fewestBuckets))
	stocks := make([]*stock, len(shape.Residents))
	defer func() {
		for _, s := range stocks {
			if s != nil {
				under, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
				err = errors.Join(err, s.drop(under))
				cancel()
			}
		}
	}()
	for i, residents := range shape.Residents {
		stocks[i], err = newStock(ctx, stockConfig{
			database: m.Database(), collection: fmt.Sprintf("cost_%d", i), fields: shape.Fields, residents: residents,
			perUpdate: shape.PerUpdate, appends: costPasses * appends, seed: shape.Seed,
		})
		if err != nil {
			return nil, err
		}
	}
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	for range costPasses {
		for _, s := range stocks {
			p, err := bulkCost(ctx, m, s, appends)
			if err != nil {
				return nil, err
			}
			c.Points = append(c.Points, p)
		}
	}
	return c, c.conclude()
}

const dropTimeout = 10 * time.Second

// bulkCost appends as a lane does and tells what it cost.
func bulkCost(ctx context.Context, m *bench.MongoDB, s *stock, appends int) (p CostPoint, err error) {
	p.Residents, p.Bytes = s.held(), s.bytes
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

var errNoLine = errors.New("draw a line through the costs: the server's CPU could not be seen")

// conclude draws the lines.
func (c *Cost) conclude() error {
	var residents, cpu, took []float64
	for _, p := range c.Points {
		residents, cpu, took = append(residents, p.Residents), append(cpu, p.CPU), append(took, p.Time)
	}
	var ok bool
	if c.CPU, ok = fit.Through(residents, cpu); !ok {
		return errNoLine
	}
	if c.Time, ok = fit.Through(residents, took); !ok {
		return errNoLine
	}
	return nil
}

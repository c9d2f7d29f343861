package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A statusCost is what serverStatus took in one form and under one load, of each
// repeat.
type statusCost struct {
	Form  string        `json:"form"`
	Load  string        `json:"load"`
	P50   bench.Samples `json:"p50_seconds"`
	P99   bench.Samples `json:"p99_seconds"`
	Bytes number        `json:"answer_bytes"`
}

// Forms and loads of serverStatus.
const (
	fullForm   = "as a whole"
	doctorForm = "as the doctor asks"
	idleLoad   = "idle"
	someLoad   = "under load"
)

// statusAll times serverStatus on a MongoDB, each form by turns.
func statusAll(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, calls int) ([]*statusCost, error) {
	w, err := background(ctx, m, "status", lab.Seed)
	if err != nil {
		return nil, err
	}
	var all []*statusCost
	for _, load := range []string{idleLoad, someLoad} {
		lab.Step("status: %d calls of serverStatus in two forms, %s", calls*lab.Repeats, load)
		if err := m.Settle(ctx); err != nil {
			return nil, err
		}
		costs := []*statusCost{{Form: fullForm, Load: load}, {Form: doctorForm, Load: load}}
		err := w.around(ctx, load == someLoad, func(ctx context.Context) error {
			for range lab.Repeats {
				for _, c := range costs {
					if err := c.ask(ctx, m, calls); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, costs...)
	}
	return all, nil
}

// around does something, with a moderate load meanwhile if that is asked for.
func (w *writers) around(ctx context.Context, loaded bool, do func(context.Context) error) (err error) {
	if !loaded {
		return do(ctx)
	}
	t := w.begin(ctx, steadily())
	defer func() { err = errors.Join(err, t.end()) }()
	return do(t.ctx)
}

// ask times one repeat.
func (c *statusCost) ask(ctx context.Context, m *bench.MongoDB, calls int) error {
	took := make(sorted, calls)
	for i := range took {
		began := time.Now()
		size, err := c.once(ctx, m)
		if err != nil {
			return fmt.Errorf("ask for serverStatus: %w", err)
		}
		took[i] = time.Since(began).Seconds()
		c.Bytes = size
	}
	slices.Sort(took)
	c.P50, c.P99 = append(c.P50, took.p50()), append(c.P99, took.p99())
	return nil
}

// once asks once; the size of the answer is known of the whole only.
func (c *statusCost) once(ctx context.Context, m *bench.MongoDB) (size number, err error) {
	if c.Form == doctorForm {
		_, err := m.Counters(ctx)
		return unknown(), err
	}
	raw, err := m.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	return number(len(raw)), err
}

package checkpoint

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
)

// The two intervals that are told apart when settings are tried.
const (
	shorter = time.Second
	longer  = 2 * time.Second
)

// A way is one of setting an interval of a second.
type way struct {
	name    string
	setting bench.Setting
	runtime map[string]any // parameters that are set afterwards
}

// The ways, with the names that operators know.
const (
	wayPeriod  = "storage.syncPeriodSecs: 1"
	wayEngine  = `configString: "checkpoint=(wait=1)", syncPeriodSecs: 2`
	wayStart   = "--setParameter syncdelay=1"
	wayRuntime = "syncPeriodSecs: 2, setParameter syncdelay: 1 at run time"
)

func ways() []way {
	return []way{
		{name: wayPeriod, setting: bench.Setting{Standalone: true, CheckpointInterval: shorter}},
		{name: wayEngine, setting: bench.Setting{Standalone: true, CheckpointInterval: longer, EngineConfig: "checkpoint=(wait=1)"}},
		{name: wayStart, setting: bench.Setting{Standalone: true, Parameters: map[string]string{"syncdelay": "1"}}},
		{
			name: wayRuntime, setting: bench.Setting{Standalone: true, CheckpointInterval: longer},
			runtime: map[string]any{"syncdelay": int(shorter / time.Second)},
		},
	}
}

// Obeyed is how a way of setting an interval was obeyed.
type Obeyed struct {
	Way      string  `json:"way"`
	Asked    float64 `json:"asked_seconds"`
	Told     float64 `json:"told_seconds"` // as syncdelay by the server
	Counted  float64 `json:"checkpoints_counted"`
	Observed float64 `json:"observed_seconds"`
}

// Share is how many checkpoints came of each that was asked for.
func (o Obeyed) Share() float64 { return o.Counted * o.Asked / o.Observed }

// settings counts the checkpoints of mongods side by side, which do next to
// nothing else.
func settings(ctx context.Context, lab *bench.Lab, length time.Duration) (all []Obeyed, err error) {
	lab.Step("start a mongod for each way to set the interval")
	var open []*bench.MongoDB
	defer func() {
		for _, m := range open {
			err = errors.Join(err, m.Close())
		}
	}()
	for _, w := range ways() {
		m, err := lab.Start(ctx, w.setting)
		if err != nil {
			return nil, err
		}
		open = append(open, m)
		if w.runtime != nil {
			if err := m.Set(ctx, w.runtime); err != nil {
				return nil, err
			}
		}
	}
	lab.Step("count the checkpoints of each for %v", length)
	began := time.Now()
	before, err := looksAt(ctx, open, began)
	if err != nil {
		return nil, err
	}
	for until := began.Add(length); time.Now().Before(until); {
		for _, m := range open { // a mongod without writes has no checkpoint to make
			if _, err := m.Database().Collection(documents).InsertOne(ctx, bson.D{{Key: "a", Value: 1}}); err != nil {
				return nil, err
			}
		}
		if err := bench.Pause(ctx, 2*lookEvery); err != nil {
			return nil, err
		}
	}
	after, err := looksAt(ctx, open, began)
	if err != nil {
		return nil, err
	}
	for i, w := range ways() {
		o := Obeyed{
			Way: w.name, Asked: shorter.Seconds(),
			Counted: after[i].Checkpoints - before[i].Checkpoints, Observed: after[i].At - before[i].At,
		}
		if o.Told, err = parameter(ctx, open[i], "syncdelay"); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// looksAt looks at each.
func looksAt(ctx context.Context, all []*bench.MongoDB, began time.Time) ([]Look, error) {
	looks := make([]Look, len(all))
	for i, m := range all {
		c, err := m.Counters(ctx)
		if err != nil {
			return nil, err
		}
		looks[i] = lookOf(c, began)
	}
	return looks, nil
}

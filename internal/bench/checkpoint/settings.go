package checkpoint

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
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
	looks := make([][]Look, len(open))
	for until := began.Add(length); ; {
		for i, m := range open { // a mongod without writes has no checkpoint to make
			c, err := m.Counters(ctx)
			if err != nil {
				return nil, err
			}
			looks[i] = append(looks[i], lookOf(c, began))
			if _, err := m.Database().Collection(documents).InsertOne(ctx, bson.D{{Key: "a", Value: 1}}); err != nil {
				return nil, err
			}
		}
		if time.Now().After(until) {
			break
		}
		if err := machine.Pause(ctx, lookEvery); err != nil {
			return nil, err
		}
	}
	for i, w := range ways() {
		o := obeyedOf(looks[i])
		o.Way = w.name
		if o.Told, err = parameter(ctx, open[i], "syncdelay"); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// obeyedOf counts from the first checkpoint to the last, which is exact in short
// times too; where there are not two, over all looks.
func obeyedOf(looks []Look) Obeyed {
	o := Obeyed{Asked: shorter.Seconds()}
	if n, seconds := counted(looks); n > 0 {
		o.Counted, o.Observed = float64(n), seconds
		return o
	}
	first, last := looks[0], looks[len(looks)-1]
	o.Counted, o.Observed = last.Checkpoints-first.Checkpoints, last.At-first.At
	return o
}

package granularity

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
)

// What a variant appends: a reading to buckets that are neither small nor large.
const (
	variantResidents = 60
	historyResidents = 180
	variantPerUpdate = 1
)

// A variant is what an append costs under one of several conditions, by repeat,
// in seconds and bytes an append, in bulk.
type variant struct {
	Name  string        `json:"name"`
	CPU   bench.Samples `json:"mongod_cpu"`
	Time  bench.Samples `json:"time"`
	Bytes int           `json:"document_bytes"`
	// Old versions and bytes that appends and the checkpoint after them wrote; of
	// the history window alone.
	Versions bench.Samples `json:"history_store_inserts,omitempty"`
	Written  bench.Samples `json:"block_written_bytes,omitempty"`

	indexes []bson.D
	window  int
}

// changedKey is one that every append changes.
const changedKey = "last"

// unchanging are keys that an append leaves as they are.
func unchanging() []bson.D {
	return []bson.D{{{Key: "sensorId", Value: 1}}, {{Key: "bucketStart", Value: 1}}, {{Key: "tags.site", Value: 1}}}
}

// indexes measures appends with none, some and more of them; and with one on a
// field that every append changes, which is what an index costs.
func (t *trial) indexes(ctx context.Context, m *bench.MongoDB) error {
	t.lab.Step("further secondary indexes")
	for _, n := range t.indexed {
		t.Indexes = append(t.Indexes, &variant{Name: several(n, "further index"), indexes: unchanging()[:n]})
	}
	t.Indexes = append(t.Indexes, &variant{Name: "an index on " + changedKey + ", which appends change", indexes: []bson.D{{{Key: changedKey, Value: 1}}}})
	stocks, err := t.stocks(ctx, m, t.Indexes, variantResidents)
	if err != nil {
		return err
	}
	if err := m.Settle(ctx); err != nil {
		return err
	}
	turns := float64(t.turns)
	for range t.lab.Repeats {
		sums := make([]bulkPoint, len(stocks))
		for range t.turns {
			for i, s := range stocks {
				p, err := bulkCost(ctx, m, s, s.appends/t.lab.Repeats/t.turns)
				if err != nil {
					return err
				}
				sums[i].CPU, sums[i].Time = sums[i].CPU+p.CPU/turns, sums[i].Time+p.Time/turns
			}
		}
		for i, v := range t.Indexes {
			v.CPU, v.Time = append(v.CPU, sums[i].CPU), append(v.Time, sums[i].Time)
		}
	}
	return dropAll(ctx, stocks)
}

// stocks makes one for each variant.
func (t *trial) stocks(ctx context.Context, m *bench.MongoDB, variants []*variant, residents int) ([]*stock, error) {
	stocks := make([]*stock, len(variants))
	for i, v := range variants {
		c := stockConfig{
			database: m.Database(), collection: fmt.Sprintf("variant_%d_%d", residents, i), fields: publishedFields, residents: residents,
			perUpdate: variantPerUpdate, seed: t.lab.Seed, indexes: v.indexes,
		}
		s, err := newStock(ctx, t.fit(c, t.lab.Repeats*t.turns, t.varied))
		if err != nil {
			return nil, err
		}
		stocks[i], v.Bytes = s, s.bytes
	}
	return stocks, nil
}

func dropAll(ctx context.Context, stocks []*stock) (err error) {
	for _, s := range stocks {
		err = errors.Join(err, s.drop(ctx))
	}
	return err
}

// windowParameter is how long old versions of documents are kept for readers of
// the past.
const windowParameter = "minSnapshotHistoryWindowInSeconds"

// history measures appends, and the checkpoint after them, which is when old
// versions go to the history store.
func (t *trial) history(ctx context.Context, m *bench.MongoDB) (err error) {
	t.lab.Step("history windows of 300 s and 0 s")
	t.History = []*variant{{Name: "300 s", window: 300}, {Name: "0 s", window: 0}}
	stocks, err := t.stocks(ctx, m, t.History, historyResidents)
	if err != nil {
		return err
	}
	for range t.lab.Repeats {
		for i, v := range t.History {
			if err := t.window(ctx, m, v, stocks[i]); err != nil {
				return err
			}
		}
	}
	return dropAll(ctx, stocks)
}

// window does one repeat with one history window.
func (t *trial) window(ctx context.Context, m *bench.MongoDB, v *variant, s *stock) error {
	if err := m.Set(ctx, map[string]any{windowParameter: v.window}); err != nil {
		return err
	}
	if err := m.Settle(ctx); err != nil {
		return err
	}
	before, err := m.Counters(ctx)
	if err != nil {
		return err
	}
	start, err := m.CPU(ctx)
	if err != nil {
		return err
	}
	appends := s.appends / t.lab.Repeats
	cost, err := bulkCost(ctx, m, s, appends)
	if err != nil {
		return err
	}
	if err := m.Checkpoint(ctx); err != nil {
		return err
	}
	end, err := m.CPU(ctx)
	if err != nil {
		return err
	}
	after, err := m.Counters(ctx)
	if err != nil {
		return err
	}
	each := func(total float64) float64 { return total / float64(appends) }
	v.Time = append(v.Time, cost.Time)
	v.CPU = append(v.CPU, each((end - start).Seconds()))
	v.Versions = append(v.Versions, each(after.Since(before, "history_store_inserts_total")))
	v.Written = append(v.Written, each(after.Since(before, "block_written_bytes_total")))
	return m.Set(ctx, map[string]any{windowParameter: 0})
}

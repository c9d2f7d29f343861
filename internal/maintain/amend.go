package maintain

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// amend makes the new collection hold exactly what the groups become, by writing
// only the documents that differ: of an hour of small windows those are few. It
// returns what the collection holds then. It may be repeated.
func (m *move) amend(ctx context.Context, keys []groupKey, groups []group) ([]group, error) {
	copies, err := m.to.of(ctx, keys)
	if err != nil {
		return nil, err
	}
	documents, err := m.reshape(groups)
	if err != nil {
		return nil, err
	}
	changes := amendments(documents, copies)
	if len(changes) == 0 {
		return copies, nil
	}
	for len(changes) > 0 {
		n, size := 0, 0
		for n < len(changes) && (n == 0 || size < writeBytes) {
			size += changes[n].size
			n++
		}
		models := make([]mongo.WriteModel, n)
		for i, c := range changes[:n] {
			models[i] = c.model
		}
		opts := options.BulkWrite().SetOrdered(false)
		if m.bypass() {
			opts.SetBypassDocumentValidation(true)
		}
		err := m.job.send(ctx, func(ctx context.Context) error {
			_, err := m.to.coll.BulkWrite(ctx, models, opts)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("write to collection %q: %w", m.to.coll.Name(), err)
		}
		changes = changes[n:]
	}
	return m.to.of(ctx, keys)
}

// amendment is the write of one document.
type amendment struct {
	model mongo.WriteModel
	size  int
}

// amendments are the writes that make documents of what is there.
func amendments(documents []bson.Raw, there []group) []amendment {
	have := make(map[string]bson.Raw)
	for i := range there {
		for _, d := range there[i].documents {
			have[string(d.Lookup("_id").Value)] = d
		}
	}
	var changes []amendment
	for _, d := range documents {
		id := d.Lookup("_id")
		if old, ok := have[string(id.Value)]; !ok || !bytes.Equal(old, d) {
			model := mongo.NewReplaceOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).SetReplacement(d).SetUpsert(true)
			changes = append(changes, amendment{model, len(d)})
		}
		delete(have, string(id.Value))
	}
	for _, d := range have {
		id := d.Lookup("_id")
		changes = append(changes, amendment{mongo.NewDeleteOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}), len(id.Value)})
	}
	return changes
}

package maintain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// create makes the new collection with the options and the indexes of the
// source, and another compressor.
func (m *move) create(source *found) (*found, error) {
	db, name := m.cfg.Database, newName(m.cfg.Stream)
	if err := m.job.send(m.ctx, func(ctx context.Context) error { return db.Collection(name).Drop(ctx) }); err != nil { // of a copy that is begun anew
		return nil, fmt.Errorf("drop collection %q: %w", name, err)
	}
	command := bson.D{{Key: "create", Value: name}}
	elements, err := source.Options.Elements()
	if err != nil {
		return nil, fmt.Errorf("read the options of collection %q: %w", source.Name, err)
	}
	for _, e := range elements {
		switch e.Key() {
		case "storageEngine", "validator", "validationLevel", "validationAction", "uuid", "autoIndexId", "flags":
		default:
			command = append(command, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	if engine := engineOptions(source, m.cfg.Compressor); engine != nil {
		command = append(command, bson.E{Key: "storageEngine", Value: engine})
	}
	v := m.job.state.Original
	if v.Validator != nil {
		command = append(command, bson.E{Key: "validator", Value: v.Validator})
	}
	if v.Level != "" {
		command = append(command, bson.E{Key: "validationLevel", Value: v.Level})
	}
	if v.Action != "" {
		command = append(command, bson.E{Key: "validationAction", Value: v.Action})
	}
	command = append(command, majority())
	if err := m.job.send(m.ctx, func(ctx context.Context) error { return db.RunCommand(ctx, command).Err() }); err != nil {
		return nil, fmt.Errorf("create collection %q: %w", name, err)
	}
	if err := m.alignIndexes(); err != nil {
		return nil, err
	}
	f, err := lookUp(m.ctx, db, name)
	if err == nil && f == nil {
		err = fmt.Errorf("create collection %q: it vanished again", name)
	}
	return f, err
}

// engineOptions are the source's with another compressor, nil if there are none.
func engineOptions(source *found, compressor store.Compressor) any {
	const option = "block_compressor="
	config, _ := source.Options.Lookup("storageEngine", "wiredTiger", "configString").StringValueOK()
	if compressor == "" {
		if config == "" {
			return nil
		}
		return source.Options.Lookup("storageEngine")
	}
	parts := slices.DeleteFunc(topLevel(config), func(part string) bool {
		return part == "" || strings.HasPrefix(strings.TrimSpace(part), option)
	})
	parts = append(parts, option+string(compressor))
	return bson.D{{Key: "wiredTiger", Value: bson.D{{Key: "configString", Value: strings.Join(parts, ",")}}}}
}

// topLevel cuts a configuration of WiredTiger's at the commas that stand in no
// parentheses.
func topLevel(config string) []string {
	depth := 0
	return strings.FieldsFunc(config, func(r rune) bool {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// indexes returns the collection's, but that on _id.
func indexes(ctx context.Context, db *mongo.Database, name string) ([]bson.D, error) {
	cursor, err := db.Collection(name).Indexes().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the indexes of collection %q: %w", name, err)
	}
	var all []bson.D
	if err := cursor.All(ctx, &all); err != nil {
		return nil, fmt.Errorf("list the indexes of collection %q: %w", name, err)
	}
	return slices.DeleteFunc(all, func(index bson.D) bool { return valueOf(index, "name") == "_id_" }), nil
}

func valueOf(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// expiry is the option of an index that removes documents by their age.
const expiry = "expireAfterSeconds"

// still returns the index as it is while the copy is under way: it does not
// remove documents, for the source's does, and the copy follows.
func still(index bson.D) bson.D {
	return slices.DeleteFunc(slices.Clone(index), func(e bson.E) bool { return e.Key == expiry || e.Key == "v" || e.Key == "ns" })
}

// alignIndexes gives the new collection the indexes that the source has now.
func (m *move) alignIndexes() error {
	db, name := m.cfg.Database, newName(m.cfg.Stream)
	want, have, err := m.bothIndexes()
	if err != nil {
		return err
	}
	for key, index := range have {
		if _, ok := want[key]; ok {
			continue
		}
		command := bson.D{{Key: "dropIndexes", Value: name}, {Key: "index", Value: valueOf(index, "name")}, majority()}
		if err := db.RunCommand(m.ctx, command).Err(); err != nil {
			return fmt.Errorf("drop index %v of collection %q: %w", valueOf(index, "name"), name, err)
		}
	}
	missing := bson.A{}
	for key, index := range want {
		if _, ok := have[key]; !ok {
			missing = append(missing, still(index))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	command := bson.D{{Key: "createIndexes", Value: name}, {Key: "indexes", Value: missing}, majority()}
	if err := db.RunCommand(m.ctx, command).Err(); err != nil {
		return fmt.Errorf("create the indexes of collection %q: %w", name, err)
	}
	return nil
}

// bothIndexes returns the indexes of the source and of the new collection, by
// all that the copy has of them.
func (m *move) bothIndexes() (source, target map[string]bson.D, err error) {
	var maps [2]map[string]bson.D
	for i, name := range []string{m.cfg.Stream, newName(m.cfg.Stream)} {
		all, err := indexes(m.ctx, m.cfg.Database, name)
		if err != nil {
			return nil, nil, err
		}
		maps[i] = make(map[string]bson.D, len(all))
		for _, index := range all {
			raw, err := bson.Marshal(still(index))
			if err != nil {
				return nil, nil, fmt.Errorf("encode an index: %w", err)
			}
			maps[i][string(raw)] = index
		}
	}
	return maps[0], maps[1], nil
}

// errIndexes says that the indexes changed at the wrong moment.
var errIndexes = errors.New("the indexes of the collection were changed meanwhile")

// lastIndexes returns the source's indexes if the new collection has the same.
func (m *move) lastIndexes() ([]bson.D, error) {
	source, target, err := m.bothIndexes()
	if err != nil {
		return nil, err
	}
	if !maps.EqualFunc(source, target, func(bson.D, bson.D) bool { return true }) {
		return nil, errIndexes
	}
	return slices.Collect(maps.Values(source)), nil
}

// expire makes the indexes of the stream's new collection remove documents as
// those of the old one did. It may be repeated.
func (m *move) expire(all []bson.D) error {
	for _, index := range all {
		after, ok := seconds(valueOf(index, expiry))
		if !ok {
			continue
		}
		if key, _ := valueOf(index, "key").(bson.D); len(key) == 1 && key[0].Key == "bucketStart" {
			after = max(after, int64(m.cfg.ExpireAtLeast/time.Second))
		}
		command := bson.D{{Key: "collMod", Value: m.cfg.Stream}, {Key: "index", Value: bson.D{
			{Key: "name", Value: valueOf(index, "name")}, {Key: expiry, Value: after},
		}}, majority()}
		if err := m.cfg.Database.RunCommand(m.ctx, command).Err(); err != nil {
			return fmt.Errorf("make index %v of collection %q remove old documents: %w", valueOf(index, "name"), m.cfg.Stream, err)
		}
	}
	return nil
}

// seconds reads a number of any type.
func seconds(v any) (int64, bool) {
	switch n := v.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case float64:
		if n >= 0 && n <= math.MaxInt32 {
			return int64(n), true
		}
	}
	return 0, false
}

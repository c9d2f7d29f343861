package maintain

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

// Granularities returns those of some of the collection's documents, chosen by
// chance: cheap, and mostly all. One that it misses comes up as a *SpanError.
func Granularities(ctx context.Context, coll *mongo.Collection) ([]time.Duration, error) {
	const some = 100
	cursor, err := coll.Aggregate(ctx, bson.A{
		bson.D{{Key: "$sample", Value: bson.D{{Key: "size", Value: some}}}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$_id.g"}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("look for granularities in collection %q: %w", coll.Name(), err)
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("look for granularities in collection %q: %w", coll.Name(), err)
	}
	var out []time.Duration
	for _, d := range found {
		seconds, _ := d.Lookup("_id").Int32OK()
		// What else is there is named when it is to be moved.
		if g := time.Duration(seconds) * time.Second; store.CheckGranularity(g, store.Documents) == nil {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out, nil
}

// DropConfig says which tombstones are to go.
type DropConfig struct {
	Collection  *mongo.Collection // with the concerns of store.Connection.Database
	Granularity time.Duration     // of documents that stay as they are
	Progress    func(Progress)    // may be nil

	// send carries out what removes tombstones; nil: as it is.
	send func(context.Context, func(context.Context) error) error
}

// A DropResult is what became of the tombstones.
type DropResult struct {
	Dropped int64 // tombstones
	Windows int64 // of other granularities that hold readings, and keep their tombstones
}

// dropAtOnce is how many documents one command removes at least, if there are
// that many.
const dropAtOnce = 1000

// DropTombstones removes the tombstones of other granularities, of those
// windows that have nothing else. It reads the _id index rather than documents, and pauses
// for as long as it works. No daemon may still write these granularities, and all readings
// accepted under them must be stored: see Regroup.
func DropTombstones(ctx context.Context, cfg DropConfig) (*DropResult, error) {
	d := dropping{cfg: cfg, result: &DropResult{}}
	if d.cfg.send == nil {
		d.cfg.send = func(ctx context.Context, write func(context.Context) error) error { return write(ctx) }
	}
	cursor, err := otherParts(ctx, cfg.Collection, cfg.Granularity)
	if err != nil {
		return d.result, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		p, err := readPart(cursor.Current)
		if err != nil {
			return d.result, err
		}
		if len(d.ids) >= dropAtOnce && d.ids[len(d.ids)-1].window() != p.id.window() {
			if err := d.some(ctx); err != nil {
				return d.result, err
			}
		}
		d.ids = append(d.ids, p.id)
	}
	if err := cursor.Err(); err != nil {
		return d.result, fmt.Errorf("look for tombstones: %w", err)
	}
	return d.result, d.some(ctx)
}

type dropping struct {
	cfg    DropConfig
	ids    []partID // of whole windows, in order
	result *DropResult
}

// some removes what was gathered, but for windows that hold readings: without
// their tombstones, part numbers would begin anew below those that are there.
func (d *dropping) some(ctx context.Context) error {
	if len(d.ids) == 0 {
		return nil
	}
	began := time.Now()
	live, err := liveWindows(ctx, d.cfg.Collection, d.ids)
	if err != nil {
		return err
	}
	gone := make(bson.A, 0, len(d.ids))
	for _, id := range d.ids {
		if !live[id.window()] {
			gone = append(gone, bson.Raw(id.document()))
		}
	}
	d.ids = d.ids[:0]
	d.result.Windows += int64(len(live))
	err = d.cfg.send(ctx, func(ctx context.Context) error {
		r, err := d.cfg.Collection.DeleteMany(ctx, bson.D{
			{Key: "_id", Value: bson.D{{Key: "$in", Value: gone}}}, {Key: migratedKey, Value: true},
		})
		if err == nil {
			d.result.Dropped += r.DeletedCount
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove tombstones: %w", err)
	}
	if d.cfg.Progress != nil {
		d.cfg.Progress(Progress{Phase: "remove tombstones", Documents: d.result.Dropped})
	}
	return machine.Pause(ctx, time.Since(began)) // others have the server to themselves for as long
}

// liveWindows returns the windows, of those of the parts, that have parts with
// readings.
func liveWindows(ctx context.Context, coll *mongo.Collection, parts []partID) (map[partID]bool, error) {
	all := make(bson.A, len(parts))
	for i, id := range parts {
		all[i] = bson.Raw(id.document())
	}
	cursor, err := coll.Find(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: all}}}, {Key: migratedKey, Value: bson.D{{Key: "$ne", Value: true}}},
	}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("look for parts behind tombstones: %w", err)
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("look for parts behind tombstones: %w", err)
	}
	live := make(map[partID]bool)
	for _, raw := range found {
		p, err := readPart(raw)
		if err != nil {
			return nil, err
		}
		live[p.id.window()] = true
	}
	return live, nil
}

// otherParts finds the _id of all documents of other granularities, in order.
// The server reads the _id index, and no document.
func otherParts(ctx context.Context, coll *mongo.Collection, granularity time.Duration) (*mongo.Cursor, error) {
	cursor, err := coll.Aggregate(ctx, otherPartsIn(granularity), options.Aggregate().SetHint(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("look for documents of other granularities in collection %q: %w", coll.Name(), err)
	}
	return cursor, nil
}

// otherPartsIn has a limit that limits nothing: a $match before it would be made
// part of the query, which the index cannot answer by a field of the _id.
func otherPartsIn(granularity time.Duration) bson.A {
	return bson.A{
		bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
		bson.D{{Key: "$limit", Value: int64(math.MaxInt64)}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "_id.g", Value: bson.D{{Key: "$ne", Value: int32(granularity / time.Second)}}}}}},
	}
}

// others reports whether a document of another granularity holds readings.
func others(ctx context.Context, coll *mongo.Collection, granularity time.Duration) (bool, error) {
	cursor, err := otherParts(ctx, coll, granularity)
	if err != nil {
		return false, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for ids := []partID(nil); ; ids = ids[:0] {
		for len(ids) < dropAtOnce && cursor.Next(ctx) {
			p, err := readPart(cursor.Current)
			if err != nil {
				return false, err
			}
			ids = append(ids, p.id)
		}
		if err := cursor.Err(); err != nil {
			return false, fmt.Errorf("look for documents of other granularities in collection %q: %w", coll.Name(), err)
		}
		if len(ids) == 0 {
			return false, nil
		}
		live, err := liveWindows(ctx, coll, ids)
		if err != nil || len(live) > 0 {
			return err == nil, err
		}
	}
}

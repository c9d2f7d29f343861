package store

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/block"
)

// viewSuffix is appended to a bucket stream's name for the name of its view. No stream has such a
// name, because stream names have no dot.
const viewSuffix = ".flat"

// ViewName returns the name of a bucket stream's view.
func ViewName(stream string) string { return stream + viewSuffix }

// viewMark is in the pipeline of every view that Brim makes, and identifies it.
const viewMark = "made by brim: one reading a document"

// viewPipeline shows one reading per document: {_id, sensorId, ts, fields, tags}. Blocks are
// decoded by a JavaScript function, if the server runs JavaScript; otherwise they are not shown.
//
// A $project that keeps _id and sensorId unchanged lets the server move a $match on them before
// the $unwind, so that a range of _id is an index scan; if the readings were merged into the
// document itself, each query would read the whole collection. Another reason to keep the fields
// in a sub-document: one may be called sensorId. Tags are the reading's own if it has any,
// otherwise those of its part; if neither exists, there are no tags.
func viewPipeline(javaScript bool) mongo.Pipeline {
	const reading = "$measurements"
	without := func(field string, input any) bson.D {
		return bson.D{{Key: "$unsetField", Value: bson.D{{Key: "field", Value: field}, {Key: "input", Value: input}}}}
	}
	own := bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: reading + "." + SensorKey}}, "object"}}}
	measurements := bson.D{{Key: "$ifNull", Value: bson.A{reading, bson.A{}}}}
	if javaScript {
		packed := bson.D{{Key: "$cond", Value: bson.A{
			bson.D{{Key: "$isArray", Value: "$blocks"}}, decodeFunction("$blocks"), bson.A{},
		}}}
		measurements = bson.D{{Key: "$concatArrays", Value: bson.A{packed, measurements}}}
	}
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "$comment", Value: viewMark}}}},
		{{Key: "$project", Value: bson.D{{Key: "sensorId", Value: 1}, {Key: tagsKey, Value: 1}, {Key: "measurements", Value: measurements}}}},
		{{Key: "$unwind", Value: reading}},
		{{Key: "$project", Value: bson.D{
			{Key: "_id", Value: 1}, {Key: "sensorId", Value: 1}, {Key: "ts", Value: reading + "." + TimeKey},
			{Key: "fields", Value: without(SensorKey, without(TimeKey, reading))},
			{Key: "tags", Value: bson.D{{Key: "$cond", Value: bson.A{own, reading + "." + SensorKey + "." + tagsKey, "$" + tagsKey}}}},
		}}},
	}
}

// decodeFunction returns an expression that decodes the readings of blocks.
func decodeFunction(blocks any) bson.D {
	return bson.D{{Key: "$function", Value: bson.D{
		{Key: "body", Value: "function(blocks) {\n" + block.JavaScript + "return decodeBlocks(blocks, NumberLong);\n}"},
		{Key: "args", Value: bson.A{blocks}}, {Key: "lang", Value: "js"},
	}}}
}

// A View is a bucket stream's view.
type View struct {
	Database *mongo.Database
	Stream   string
	Blocks   bool // whether it shows readings in blocks; see RunsJavaScript
}

// RunsJavaScript reports whether the server runs functions in pipelines. An error
// means that it is not known yet; try again.
func (v View) RunsJavaScript(ctx context.Context) (bool, error) {
	cursor, err := v.Database.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$documents", Value: bson.A{bson.D{}}}},
		{{Key: "$project", Value: bson.D{{Key: "readings", Value: decodeFunction(bson.A{})}}}},
	})
	if err == nil {
		var answers []bson.Raw
		err = cursor.All(ctx, &answers)
	}
	if err != nil && Transient(err) {
		return false, fmt.Errorf("check whether the server runs JavaScript for view %q: %w", ViewName(v.Stream), err)
	}
	return err == nil, nil
}

// Ensure creates the view, or updates an older one. If something else has the view's name, it is
// left alone and reported as foreign.
func (v View) Ensure(ctx context.Context) (foreign bool, err error) {
	name, pipeline := ViewName(v.Stream), viewPipeline(v.Blocks)
	info, err := Collection{Database: v.Database, Name: name}.Lookup(ctx)
	switch {
	case err != nil:
		return false, err
	case info == nil:
		const namespaceExists = 48 // another daemon was quicker
		if err := v.Database.CreateView(ctx, name, v.Stream, pipeline); err != nil && !HasCode(err, namespaceExists) {
			return false, fmt.Errorf("create view %q: %w", name, err)
		}
		return false, nil
	case !info.ours(v.Stream):
		return true, nil
	case info.hasPipeline(pipeline):
		return false, nil
	}
	err = v.Database.RunCommand(ctx, bson.D{
		{Key: "collMod", Value: name}, {Key: "viewOn", Value: v.Stream}, {Key: "pipeline", Value: pipeline},
	}).Err()
	if err != nil {
		return false, fmt.Errorf("change view %q: %w", name, err)
	}
	return false, nil
}

// Remove drops the view if it is Brim's.
func (v View) Remove(ctx context.Context) error {
	name := ViewName(v.Stream)
	info, err := Collection{Database: v.Database, Name: name}.Lookup(ctx)
	if err != nil || info == nil || !info.ours(v.Stream) {
		return err
	}
	if err := v.Database.Collection(name).Drop(ctx); err != nil {
		return fmt.Errorf("drop view %q: %w", name, err)
	}
	return nil
}

// ours reports whether Brim made the view.
func (i *Info) ours(stream string) bool {
	on, _ := i.Options.Lookup("viewOn").StringValueOK()
	mark, _ := i.Options.Lookup("pipeline", "0", "$match", "$comment").StringValueOK()
	return i.Type == "view" && on == stream && mark == viewMark
}

// hasPipeline reports whether the view has this pipeline.
func (i *Info) hasPipeline(pipeline mongo.Pipeline) bool {
	have, ok := i.Options.Lookup("pipeline").ArrayOK()
	kind, want, err := bson.MarshalValue(pipeline)
	return ok && err == nil && kind == bson.TypeArray && bytes.Equal(have, want)
}

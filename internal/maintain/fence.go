package maintain

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A validation is what a collection requires of its documents.
type validation struct {
	Validator bson.Raw `bson:"validator,omitempty"`
	Level     string   `bson:"level,omitempty"`
	Action    string   `bson:"action,omitempty"`
}

// originalOf reads the validation from a collection's options.
func originalOf(f *found) validation {
	var v validation
	if raw, ok := f.Options.Lookup("validator").DocumentOK(); ok {
		v.Validator = raw
	}
	v.Level, _ = f.Options.Lookup("validationLevel").StringValueOK()
	v.Action, _ = f.Options.Lookup("validationAction").StringValueOK()
	return v
}

// fenceTitle stands in the validator of a fence, by which it is known.
const fenceTitle = "Brim keeps writes away"

// raiseFence makes the collection refuse every insert and update. Daemons take
// the server's validation error for a reason to wait, and journal meanwhile.
// Who reads the error, or the collection's options, is told what it is about.
func raiseFence(ctx context.Context, db *mongo.Database, name, kind string) error {
	words := "`brim " + kind + "` exchanges this collection for another, which takes seconds; daemons wait and then go on. " +
		"If it is not running, run the same command again, or with --abort. A collection whose name ends in .brim_old has been replaced, and stays like this."
	err := modify(ctx, db, name, validation{
		Validator: document("$jsonSchema", bson.D{
			{Key: "title", Value: fenceTitle},
			{Key: "description", Value: words},
			{Key: "not", Value: bson.D{}}, // nothing is right
		}),
		Level: "strict", Action: "error",
	})
	if err != nil {
		return fmt.Errorf("keep writes away from collection %q: %w", name, err)
	}
	return nil
}

// liftFence gives the collection its validation back.
func liftFence(ctx context.Context, db *mongo.Database, name string, original validation) error {
	if err := modify(ctx, db, name, original); err != nil {
		return fmt.Errorf("let writes into collection %q again: %w", name, err)
	}
	return nil
}

// fenced reports whether the collection refuses writes because of a fence.
func fenced(f *found) bool {
	title, _ := f.Options.Lookup("validator", "$jsonSchema", "title").StringValueOK()
	return title == fenceTitle
}

func modify(ctx context.Context, db *mongo.Database, name string, v validation) error {
	command := bson.D{{Key: "collMod", Value: name}, {Key: "validator", Value: bson.D{}}, {Key: "validationLevel", Value: "strict"}, {Key: "validationAction", Value: "error"}}
	if v.Validator != nil {
		command[1].Value = v.Validator
	}
	if v.Level != "" {
		command[2].Value = v.Level
	}
	if v.Action != "" {
		command[3].Value = v.Action
	}
	return db.RunCommand(ctx, append(command, majority())).Err()
}

// majority is the write concern of commands.
func majority() bson.E {
	return bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}}
}

// document is {key: value}, encoded.
func document(key string, value any) bson.Raw {
	raw, _ := bson.Marshal(bson.D{{Key: key, Value: value}}) // fails for no value that is given here
	return raw
}

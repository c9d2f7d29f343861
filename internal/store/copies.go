package store

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Origin is a collection whose readings are copied into another one of the same stream, see
// internal/store/generation. Copies are identified by their origin, and queries skip them until
// the origin has been removed from the stream.
type Origin struct {
	Collection string
	Number     int // of the generation; never reused
	UUID       bson.Binary
}

// ErrOtherCopies says that copies of a sensor from an earlier attempt do not match, because some
// of the readings have expired since. They must be removed before the sensor is copied again.
var ErrOtherCopies = errors.New("there are copies of the sensor that were made of other readings")

// fenceTitle marks the validator of a fenced collection.
const fenceTitle = "moved by brim move"

// Fence makes the collection refuse all inserts and updates, but no deletions. A time series
// cannot be fenced.
func (c Collection) Fence(ctx context.Context) error {
	info, err := c.Lookup(ctx)
	switch {
	case err != nil:
		return err
	case info == nil || info.fenced(): // it was removed by hand, or is fenced already
		return nil
	}
	if err := c.MayFence(info); err != nil {
		return err
	}
	return c.validate(ctx, bson.D{{Key: "$jsonSchema", Value: bson.D{
		{Key: "title", Value: fenceTitle},
		{Key: "description", Value: "the readings of this collection are being moved into another collection of the stream; run `brim move` again to finish"},
		{Key: "not", Value: bson.D{}},
	}}})
}

// MayFence returns an error if the collection has a validator that is not Brim's.
func (c Collection) MayFence(info *Info) error {
	if !info.HasValidator() || info.fenced() {
		return nil
	}
	return fmt.Errorf("collection %q has a validator, which `brim move` would replace: remove it first, in mongosh: db.runCommand({collMod: %q, validator: {}})", c.Name, c.Name)
}

// Unfence reverts Fence.
func (c Collection) Unfence(ctx context.Context) error {
	info, err := c.Lookup(ctx)
	if err != nil || info == nil || !info.fenced() {
		return err
	}
	return c.validate(ctx, bson.D{})
}

func (i *Info) fenced() bool {
	title, _ := i.Options.Lookup("validator", "$jsonSchema", "title").StringValueOK()
	return title == fenceTitle
}

func (c Collection) validate(ctx context.Context, validator bson.D) error {
	err := c.Database.RunCommand(ctx, bson.D{
		{Key: "collMod", Value: c.Name}, {Key: "validator", Value: validator},
		{Key: "validationLevel", Value: "strict"}, {Key: "validationAction", Value: "error"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: MajorityName}, {Key: "j", Value: true}}},
	}).Err()
	if err != nil {
		return fmt.Errorf("change the validator of collection %q: %w", c.Name, err)
	}
	return nil
}

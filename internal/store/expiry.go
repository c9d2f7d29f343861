package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// expiryName is the name of the index by which MongoDB removes old documents.
const expiryName = "brim_retention"

// EnsureExpiry makes the index on key remove documents after the given time,
// or removes that index if after is 0. It changes nothing that is right.
func (c Collection) EnsureExpiry(ctx context.Context, key string, after time.Duration) error {
	have, there, err := c.Expiry(ctx)
	if err != nil || have == after && there == (after > 0) {
		return err
	}
	seconds := int32(after / time.Second)
	switch {
	case after == 0:
		const gone, namespaceNotFound = 27, 26 // another daemon was quicker
		if err = c.Database.Collection(c.Name).Indexes().DropOne(ctx, expiryName); HasCode(err, gone, namespaceNotFound) {
			err = nil
		}
	case !there:
		err = c.CreateIndex(ctx, expiryName, bson.D{{Key: key, Value: 1}}, bson.E{Key: "expireAfterSeconds", Value: seconds})
		const indexOptionsConflict = 85
		if !HasCode(err, indexOptionsConflict) { // else another daemon was quicker
			break
		}
		fallthrough
	default:
		err = c.Database.RunCommand(ctx, bson.D{
			{Key: "collMod", Value: c.Name},
			{Key: "index", Value: bson.D{{Key: "name", Value: expiryName}, {Key: "expireAfterSeconds", Value: seconds}}},
		}).Err()
	}
	const indexNotFound = 27
	if HasCode(err, indexNotFound) {
		return &MismatchError{
			Collection: c.Name, What: "index", Have: "on " + key + " of another name", Want: expiryName,
			Hint: fmt.Sprintf("drop it, in mongosh: db.getCollection(%q).dropIndex({%s: 1})", c.Name, key),
		}
	}
	if err != nil {
		return fmt.Errorf("set retention of collection %q: %w", c.Name, err)
	}
	return nil
}

// Expiry returns after what time EnsureExpiry's index removes documents, if it
// is there; 0: it removes none.
func (c Collection) Expiry(ctx context.Context) (after time.Duration, there bool, err error) {
	cursor, err := c.Database.Collection(c.Name).Indexes().List(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("look at the indexes of collection %q: %w", c.Name, err)
	}
	var indexes []struct {
		Name    string `bson:"name"`
		Seconds int64  `bson:"expireAfterSeconds"`
	}
	if err := cursor.All(ctx, &indexes); err != nil {
		return 0, false, fmt.Errorf("look at the indexes of collection %q: %w", c.Name, err)
	}
	for _, i := range indexes {
		if i.Name == expiryName {
			return time.Duration(i.Seconds) * time.Second, true, nil
		}
	}
	return 0, false, nil
}

// lookForLonger is how long a look for longer buckets may take. It reads the
// whole collection where there are none.
const lookForLonger = 2 * time.Second

// LongestWindow returns the length of the longest window that the collection's
// buckets have, at least that of granularity. MongoDB counts from the start of
// a bucket's window: by a shorter one it would remove longer buckets, which an
// earlier granularity has left, before their youngest readings are old enough.
// Where that takes too long to find out, it is an hour, the longest that can be.
func (c Collection) LongestWindow(ctx context.Context, granularity time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, lookForLonger)
	defer cancel()
	longest := granularity
	for {
		var found struct {
			ID struct {
				Seconds int64 `bson:"g"`
			} `bson:"_id"`
		}
		err := c.Database.Collection(c.Name).FindOne(ctx,
			bson.D{{Key: "_id.g", Value: bson.D{{Key: "$gt", Value: int64(longest / time.Second)}}}},
			options.FindOne().SetProjection(bson.D{{Key: "_id.g", Value: 1}})).Decode(&found)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return longest, nil
		case err != nil && mongo.IsTimeout(err):
			return MaxGranularity, nil
		case err != nil:
			return 0, fmt.Errorf("look for longer buckets in collection %q: %w", c.Name, err)
		}
		longest = time.Duration(found.ID.Seconds) * time.Second
	}
}

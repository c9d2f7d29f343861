package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Compressor is WiredTiger's block compressor of a collection.
type Compressor string

// The compressors that a collection can have.
const (
	Snappy         Compressor = "snappy"
	Zstd           Compressor = "zstd"
	NoneCompressor Compressor = "none"
)

// StorageEngine returns the storageEngine option that asks for c.
func (c Compressor) StorageEngine() bson.D {
	return bson.D{{Key: "wiredTiger", Value: bson.D{{Key: "configString", Value: "block_compressor=" + string(c)}}}}
}

// A MismatchError says that a collection exists and is not what its stream is
// configured to be. Trying again does not help.
type MismatchError struct {
	Collection string
	What       string // which option
	Have, Want string
	Hint       string // what to do about it
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("collection %q exists with %s %s, the stream asks for %s: %s", e.Collection, e.What, e.Have, e.Want, e.Hint)
}

// A Collection describes what a stream needs.
type Collection struct {
	Database   *mongo.Database
	Name       string
	Compressor Compressor // "" leaves the server's default
}

// Info is what the server says of an existing collection.
type Info struct {
	Type    string   // collection, timeseries or view
	Options bson.Raw // as for the command create
}

// Look returns what the server knows of the collection, nil if it does not
// exist.
func (c Collection) Look(ctx context.Context) (*Info, error) {
	cursor, err := c.Database.ListCollections(ctx, bson.D{{Key: "name", Value: c.Name}})
	if err != nil {
		return nil, fmt.Errorf("look up collection %q: %w", c.Name, err)
	}
	var found []struct {
		Type    string   `bson:"type"`
		Options bson.Raw `bson:"options"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("look up collection %q: %w", c.Name, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &Info{Type: found[0].Type, Options: found[0].Options}, nil
}

// Ensure creates the collection with opts unless it exists, and returns what
// is there. Another daemon may create it at the same moment.
func (c Collection) Ensure(ctx context.Context, opts *options.CreateCollectionOptionsBuilder) (*Info, error) {
	info, err := c.Look(ctx)
	if err != nil || info != nil {
		return info, err
	}
	if c.Compressor != "" {
		opts = opts.SetStorageEngine(c.Compressor.StorageEngine())
	}
	const namespaceExists = 48
	if err := c.Database.CreateCollection(ctx, c.Name, opts); err != nil && !hasCode(err, namespaceExists) {
		return nil, fmt.Errorf("create collection %q: %w", c.Name, err)
	}
	info, err = c.Look(ctx)
	if err == nil && info == nil {
		err = fmt.Errorf("create collection %q: it vanished again", c.Name)
	}
	return info, err
}

// CheckType returns a mismatch unless the collection is of the wanted type.
func (c Collection) CheckType(info *Info, want string) error {
	if info.Type == want {
		return nil
	}
	hint := "choose another stream name or database"
	switch info.Type {
	case "collection":
		hint = "start with --storage bucket, or " + hint
	case "timeseries":
		hint = "start with --storage timeseries, or " + hint
	}
	return &MismatchError{Collection: c.Name, What: "type", Have: info.Type, Want: want, Hint: hint}
}

// CheckCompressor returns a mismatch if the collection was created with
// another compressor than the one asked for. One that was created without
// naming a compressor passes, since the server does not say what it got.
func (c Collection) CheckCompressor(info *Info) error {
	if c.Compressor == "" {
		return nil
	}
	config, ok := info.Options.Lookup("storageEngine", "wiredTiger", "configString").StringValueOK()
	if !ok {
		return nil
	}
	for part := range strings.SplitSeq(config, ",") {
		have, ok := strings.CutPrefix(strings.TrimSpace(part), "block_compressor=")
		if ok && have != string(c.Compressor) {
			return &MismatchError{
				Collection: c.Name, What: "compressor", Have: have, Want: string(c.Compressor),
				Hint: "start with --compressor " + have + ", or choose another stream name or database",
			}
		}
	}
	return nil
}

// EnsureExpiry makes the index on key remove documents after the given time,
// or removes that index if after is 0.
func (c Collection) EnsureExpiry(ctx context.Context, key string, after time.Duration) error {
	const name = "brim_retention"
	coll := c.Database.Collection(c.Name)
	if after == 0 {
		const indexNotFound, namespaceNotFound = 27, 26
		if err := coll.Indexes().DropOne(ctx, name); err != nil && !hasCode(err, indexNotFound, namespaceNotFound) {
			return fmt.Errorf("remove retention of collection %q: %w", c.Name, err)
		}
		return nil
	}
	seconds := int32(after / time.Second)
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: key, Value: 1}},
		Options: options.Index().SetName(name).SetExpireAfterSeconds(seconds),
	})
	const indexOptionsConflict = 85
	if hasCode(err, indexOptionsConflict) {
		err = c.Database.RunCommand(ctx, bson.D{
			{Key: "collMod", Value: c.Name},
			{Key: "index", Value: bson.D{{Key: "name", Value: name}, {Key: "expireAfterSeconds", Value: seconds}}},
		}).Err()
	}
	if err != nil {
		return fmt.Errorf("set retention of collection %q: %w", c.Name, err)
	}
	return nil
}

// hasCode reports whether err is a server's error with one of the codes.
func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	for _, c := range codes {
		if server.HasErrorCode(c) {
			return true
		}
	}
	return false
}

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
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

// A MismatchError says that an existing collection does not match its stream's configuration.
// Retrying does not help.
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
	Compressor Compressor  // "" leaves the server's default
	Only       bson.Binary // UUID of the one collection to make indexes for; empty: any of the name, or a new one
	// Expiring are the documents that EnsureExpiry's index removes; nil: all.
	Expiring bson.D
}

// MaintenanceName is a collection with a document for each stream that `brim recompress` or
// `brim migrate` of an earlier release worked on.
const MaintenanceName = "brim_maintenance"

// SensorsName returns the name of the collection with the catalog of a stream's sensors,
// see internal/catalog.
func SensorsName(stream string) string { return stream + ".sensors" }

// RollupName returns the name of the collection with a bucket stream's rollups.
func RollupName(stream string) string { return stream + ".rollup" }

// Info is what the server reports about an existing collection.
type Info struct {
	Type    string      // collection, timeseries or view
	Options bson.Raw    // as for the command create
	UUID    bson.Binary // of a time series: the UUID of its buckets collection; a view has none
	Created bool        // by the call that returned it
}

// Lookup returns the server's information about the collection; nil if it does not exist.
func (c Collection) Lookup(ctx context.Context) (*Info, error) {
	var found []struct {
		Name    string   `bson:"name"`
		Type    string   `bson:"type"`
		Options bson.Raw `bson:"options"`
		Info    struct {
			UUID bson.Binary `bson:"uuid"`
		} `bson:"info"`
	}
	cursor, err := c.Database.ListCollections(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{c.Name, seriesBuckets + c.Name}}}}})
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("look up collection %q: %w", c.Name, err)
	}
	var info *Info
	var buckets bson.Binary
	for _, f := range found {
		if f.Name != c.Name {
			buckets = f.Info.UUID
			continue
		}
		info = &Info{Type: f.Type, Options: f.Options, UUID: f.Info.UUID}
	}
	if info != nil && info.Type == seriesType && len(info.UUID.Data) == 0 {
		info.UUID = buckets
	}
	return info, nil
}

// A time-series collection is a view of one with the server's buckets.
const (
	seriesType    = "timeseries"
	seriesBuckets = "system.buckets."
)

// Ensure creates the collection with opts unless it exists, and returns the server's information
// about it. Another daemon may create it at the same moment.
func (c Collection) Ensure(ctx context.Context, opts *options.CreateCollectionOptionsBuilder) (*Info, error) {
	info, err := c.Lookup(ctx)
	if err != nil || info != nil {
		return info, err
	}
	if c.Compressor != "" {
		opts = opts.SetStorageEngine(c.Compressor.StorageEngine())
	}
	const namespaceExists = 48
	created := c.Database.CreateCollection(ctx, c.Name, opts)
	if created != nil && !HasCode(created, namespaceExists) {
		return nil, fmt.Errorf("create collection %q: %w", c.Name, created)
	}
	info, err = c.Lookup(ctx)
	switch {
	case err != nil:
		return nil, err
	case info == nil:
		return nil, fmt.Errorf("create collection %q: it was dropped at once", c.Name)
	}
	info.Created = created == nil
	return info, nil
}

// CreateIndex creates an index. If Only is set, it never creates the collection.
func (c Collection) CreateIndex(ctx context.Context, name string, keys bson.D, more ...bson.E) error {
	command := bson.D{
		{Key: "createIndexes", Value: c.Name},
		{Key: "indexes", Value: bson.A{append(bson.D{{Key: "key", Value: keys}, {Key: "name", Value: name}}, more...)}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: MajorityName}}},
	}
	if len(c.Only.Data) > 0 {
		command = append(command, bson.E{Key: uuidField, Value: c.Only})
	}
	return c.Database.RunCommand(ctx, command).Err()
}

// CheckType returns a mismatch unless the collection is of the wanted type.
func (c Collection) CheckType(info *Info, want string) error {
	if info.Type == want {
		return nil
	}
	hint := "choose another stream name or database"
	switch info.Type {
	case "collection":
		hint = "if it holds bucket documents, start with --storage bucket; if it was made by mistake, rename or drop it; or " + hint
	case seriesType:
		hint = "start with --storage timeseries, or " + hint
	}
	return &MismatchError{Collection: c.Name, What: "type", Have: info.Type, Want: want, Hint: hint}
}

// CheckCompressor returns a mismatch if the collection was created with another compressor than
// c's. A collection that was created without a compressor option passes, because the server does
// not say which one it uses.
func (c Collection) CheckCompressor(info *Info) error {
	if c.Compressor == "" {
		return nil
	}
	have := info.Compressor()
	if have == "" || have == c.Compressor {
		return nil
	}
	return &MismatchError{
		Collection: c.Name, What: "compressor", Have: string(have), Want: string(c.Compressor),
		Hint: "start with --compressor " + string(have),
	}
}

// Compressor returns the compressor that the collection was created with; empty if none was
// specified.
func (i *Info) Compressor() Compressor {
	config, _ := i.Options.Lookup("storageEngine", "wiredTiger", "configString").StringValueOK()
	for part := range strings.SplitSeq(config, ",") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(part), "block_compressor="); ok {
			return Compressor(name)
		}
	}
	return ""
}

// Storage returns the collection's kind of storage; empty if it is neither.
func (i *Info) Storage() Storage {
	switch i.Type {
	case "collection":
		return Bucket
	case seriesType:
		return TimeSeries
	}
	return ""
}

// CheckShape returns a mismatch if the collection is capped or has a collation: documents must be
// able to grow, and keys are compared as bytes.
func (c Collection) CheckShape(info *Info) error {
	mismatch := &MismatchError{Collection: c.Name, Hint: "choose another stream name or database, or copy the collection into one without it"}
	if capped, _ := info.Options.Lookup("capped").BooleanOK(); capped {
		mismatch.What, mismatch.Have, mismatch.Want = "capped", "true", "false"
		return mismatch
	}
	if locale, ok := info.Options.Lookup("collation", "locale").StringValueOK(); ok && locale != "simple" {
		mismatch.What, mismatch.Have, mismatch.Want = "collation", locale, "simple"
		return mismatch
	}
	return nil
}

// HasValidator reports whether the collection may refuse documents, which then wait
// in the daemon's journal.
func (i *Info) HasValidator() bool {
	const empty = 5 // bytes
	validator, ok := i.Options.Lookup("validator").DocumentOK()
	return ok && len(validator) > empty
}

// HasCode reports whether err is a server's error with one of the codes.
func HasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
}

// expiryName is the name of the index by which MongoDB removes old documents.
const expiryName = "brim_retention"

// EnsureExpiry makes the index on key remove documents after the given time, or
// drops that index if after is 0. An index for other documents than Expiring is replaced:
// in between, none are removed.
func (c Collection) EnsureExpiry(ctx context.Context, key string, after time.Duration) error {
	have, err := c.expiry(ctx)
	fits := have != nil && c.expires(have.Partial)
	seconds := int32(after / time.Second)
	if err != nil || have == nil && after == 0 || fits && after > 0 && have.Seconds == int64(seconds) {
		return err
	}
	if have != nil && !fits && after > 0 {
		if err := c.EnsureExpiry(ctx, key, 0); err != nil {
			return err
		}
		have = nil
	}
	switch {
	case after == 0:
		const gone, namespaceNotFound = 27, 26 // another daemon was quicker
		if err = c.Database.Collection(c.Name).Indexes().DropOne(ctx, expiryName); HasCode(err, gone, namespaceNotFound) {
			err = nil
		}
	case have == nil:
		more := []bson.E{{Key: "expireAfterSeconds", Value: seconds}}
		if c.Expiring != nil {
			more = append(more, bson.E{Key: partialFilter, Value: c.Expiring})
		}
		err = c.CreateIndex(ctx, expiryName, bson.D{{Key: key, Value: 1}}, more...)
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

// partialFilter is the index option that selects the documents to index.
const partialFilter = "partialFilterExpression"

// expires reports whether an index with this filter is for the documents of Expiring.
func (c Collection) expires(filter bson.Raw) bool {
	if c.Expiring == nil {
		return filter == nil
	}
	want, err := bson.Marshal(c.Expiring)
	return err == nil && bytes.Equal(want, filter)
}

// Expiry returns the age at which EnsureExpiry's index removes documents, and whether that index
// exists.
func (c Collection) Expiry(ctx context.Context) (after time.Duration, there bool, err error) {
	index, err := c.expiry(ctx)
	if err != nil || index == nil {
		return 0, false, err
	}
	return time.Duration(index.Seconds) * time.Second, true, nil
}

type expiryIndex struct {
	Name    string   `bson:"name"`
	Seconds int64    `bson:"expireAfterSeconds"`
	Partial bson.Raw `bson:"partialFilterExpression"`
}

// expiry returns EnsureExpiry's index; nil if it does not exist.
func (c Collection) expiry(ctx context.Context) (*expiryIndex, error) {
	var indexes []expiryIndex
	cursor, err := c.Database.Collection(c.Name).Indexes().List(ctx)
	if err == nil {
		err = cursor.All(ctx, &indexes)
	}
	if err != nil {
		return nil, fmt.Errorf("list the indexes of collection %q: %w", c.Name, err)
	}
	for i := range indexes {
		if indexes[i].Name == expiryName {
			return &indexes[i], nil
		}
	}
	return nil, nil //nolint:nilnil // there is none, and that is no error
}

// maxLookupTime bounds the search for longer buckets, which scans the whole collection if there
// are none.
const maxLookupTime = 2 * time.Second

// LongestWindow returns the length of the longest window of the collection's buckets, at least
// granularity. MongoDB counts a bucket's age from the start of its window. With an expiry based on
// a shorter window, it would remove longer buckets, from an earlier granularity, before their
// newest readings are old enough. If the search takes too long, the result is a day, the longest
// possible window.
func (c Collection) LongestWindow(ctx context.Context, granularity time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, maxLookupTime)
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
			return maxColumnsGranularity, nil
		case err != nil:
			return 0, fmt.Errorf("search for longer buckets in collection %q: %w", c.Name, err)
		}
		longest = time.Duration(found.ID.Seconds) * time.Second
	}
}

// Sharded reports whether a sharded cluster spreads the collection over its shards. It returns a
// mismatch if the shard key allows two documents with the same _id on different shards: a repeated
// write would then be stored twice.
func (c Collection) Sharded(ctx context.Context) (bool, error) {
	var hello struct {
		Message string `bson:"msg"`
	}
	if err := c.Database.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return false, fmt.Errorf("ask MongoDB whether it is a sharded cluster: %w", err)
	}
	if hello.Message != "isdbgrid" {
		return false, nil
	}
	return c.shardedBy(ctx)
}

// shardedBy is Sharded on a cluster; it reads the cluster's catalog.
func (c Collection) shardedBy(ctx context.Context) (bool, error) {
	namespace := c.Database.Name() + "." + c.Name
	var found struct {
		Key          bson.D `bson:"key"`
		Unsplittable bool   `bson:"unsplittable"` // known to the cluster, and on one shard
		Dropped      bool   `bson:"dropped"`
	}
	err := c.Database.Client().Database("config", options.Database().SetReadConcern(readconcern.Majority())).Collection("collections").
		FindOne(ctx, bson.D{{Key: "_id", Value: namespace}}).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments), err == nil && (found.Unsplittable || found.Dropped):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look up the shard key of collection %q: %w; grant the right to find in collections of the database config, "+
			"which the role brimServeShards of deploy/mongodb/roles.js has: readings are not written while the key is unknown, since they might be stored twice", c.Name, err)
	}
	// Documents with the same _id are on the same shard if all fields of the key are part of _id;
	// and a router derives them from an equality match on _id.
	known := []string{"_id", "_id.s", "_id.b", "_id.g", "_id.p"}
	if len(found.Key) == 0 || slices.ContainsFunc(found.Key, func(e bson.E) bool { return !slices.Contains(known, e.Key) }) {
		key, _ := bson.MarshalExtJSON(found.Key, false, false)
		return false, &MismatchError{
			Collection: c.Name, What: "shard key", Have: string(key), Want: `a key of fields of _id, like {"_id.s": "hashed"}`,
			Hint: "with this one, two shards may each hold a document of the same _id, and a reading that is sent again would be stored twice; " +
				"choose another stream name or database, and shard that by _id.s, or reshard the collection (MongoDB 5.0 and later), in mongosh: " +
				fmt.Sprintf(`sh.reshardCollection(%q, {"_id.s": "hashed"})`, namespace),
		}
	}
	return true, nil
}

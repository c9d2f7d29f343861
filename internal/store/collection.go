package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	Compressor Compressor  // "" leaves the server's default
	Exchanging bool        // it is made by who exchanges it for another
	Only       bson.Binary // UUID of the one collection that indexes are made for; empty: whichever has the name, or a new one
}

// What stands behind a collection's name in those of its copy, while it is moved
// into another form, and of what it was, afterwards.
const (
	CopySuffix = ".brim_new"
	KeptSuffix = ".brim_old"
)

// errExchanging says that a collection has no name at present. A new one of that
// name would be taken for it.
func errExchanging(name, other string) error {
	return fmt.Errorf("collection %q is not there, and %q is: an exchange of the two stopped halfway; run the same `brim migrate` or `brim recompress` again, "+
		"or, if %q was dropped on purpose, drop or rename %q", name, other, name, other)
}

// Info is what the server says of an existing collection.
type Info struct {
	Type    string      // collection, timeseries or view
	Options bson.Raw    // as for the command create
	UUID    bson.Binary // of a time series: that of the collection with its buckets; a view has none
	Created bool        // by the call that returns it
}

// Look returns what the server knows of the collection, nil if it does not
// exist.
func (c Collection) Look(ctx context.Context) (*Info, error) {
	cursor, err := c.Database.ListCollections(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{c.Name, seriesBuckets + c.Name}}}}})
	if err != nil {
		return nil, fmt.Errorf("look up collection %q: %w", c.Name, err)
	}
	var found []struct {
		Name    string   `bson:"name"`
		Type    string   `bson:"type"`
		Options bson.Raw `bson:"options"`
		Info    struct {
			UUID bson.Binary `bson:"uuid"`
		} `bson:"info"`
	}
	if err := cursor.All(ctx, &found); err != nil {
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

// Ensure creates the collection with opts unless it exists, and returns what
// is there. Another daemon may create it at the same moment. While the
// collection is being exchanged, and has no name, it is not created.
func (c Collection) Ensure(ctx context.Context, opts *options.CreateCollectionOptionsBuilder) (*Info, error) {
	info, err := c.Look(ctx)
	if err != nil || info != nil {
		return info, err
	}
	if err := c.mayCreate(ctx); err != nil {
		return nil, err
	}
	if c.Compressor != "" {
		opts = opts.SetStorageEngine(c.Compressor.StorageEngine())
	}
	const namespaceExists = 48
	created := c.Database.CreateCollection(ctx, c.Name, opts)
	if created != nil && !HasCode(created, namespaceExists) {
		return nil, fmt.Errorf("create collection %q: %w", c.Name, created)
	}
	info, err = c.Look(ctx)
	switch {
	case err != nil:
		return nil, err
	case info == nil:
		return nil, fmt.Errorf("create collection %q: it vanished again", c.Name)
	}
	info.Created = created == nil
	return info, nil
}

// CreateIndex creates an index. If Only is set, it never creates a collection for
// it.
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

// mayCreate refuses while an exchange has taken the collection's name away.
func (c Collection) mayCreate(ctx context.Context) error {
	if c.Exchanging {
		return nil
	}
	names, err := c.Database.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{c.Name + CopySuffix, c.Name + KeptSuffix}}}}})
	if err != nil {
		return fmt.Errorf("look whether collection %q is being exchanged: %w", c.Name, err)
	}
	if len(names) > 0 {
		return errExchanging(c.Name, names[0])
	}
	return nil
}

// CheckType returns a mismatch unless the collection is of the wanted type.
func (c Collection) CheckType(info *Info, want string) error {
	if info.Type == want {
		return nil
	}
	hint := "choose another stream name or database"
	switch info.Type {
	case "collection":
		hint = "if it holds bucket documents, start with --storage bucket (`brim migrate --storage timeseries` changes the collection); if it was made by mistake, rename or drop it; or " + hint
	case seriesType:
		hint = "start with --storage timeseries (`brim migrate --storage bucket` changes the collection), or " + hint
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
				Hint: "start with --compressor " + have + "; `brim recompress --to " + string(c.Compressor) + "` changes the collection",
			}
		}
	}
	return nil
}

// CheckShape returns a mismatch if the collection cannot hold documents that
// grow and are found by the bytes of their keys.
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

// HasValidator reports whether the collection may refuse documents. What it
// refuses waits in the daemon's journal.
func (i *Info) HasValidator() bool {
	validator, ok := i.Options.Lookup("validator").DocumentOK()
	if !ok {
		return false
	}
	elements, err := validator.Elements()
	return err == nil && len(elements) > 0
}

// HasCode reports whether err is a server's error with one of the codes.
func HasCode(err error, codes ...int) bool {
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

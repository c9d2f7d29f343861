package maintain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

// A RefusedError says why something is not done, and what to do about it.
// Nothing was changed.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// stats is what the server says of a collection's size.
type stats struct {
	Bytes       int64 `bson:"size"` // before compression
	Documents   int64 `bson:"count"`
	StorageSize int64 `bson:"storageSize"`    // on disk, without indexes
	IndexSize   int64 `bson:"totalIndexSize"` // on disk
	WiredTiger  struct {
		Creation string `bson:"creationString"`
	} `bson:"wiredTiger"`
}

func statsOf(ctx context.Context, db *mongo.Database, name string) (stats, error) {
	var s stats
	if err := db.RunCommand(ctx, bson.D{{Key: "collStats", Value: name}}).Decode(&s); err != nil {
		return s, fmt.Errorf("ask for the size of collection %q: %w", name, err)
	}
	return s, nil
}

// compressor returns the block compressor that the collection has, "" if the
// server does not tell.
func (s *stats) compressor() store.Compressor {
	const option = "block_compressor="
	_, rest, _ := strings.Cut(s.WiredTiger.Creation, option)
	name, _, _ := strings.Cut(rest, ",")
	if strings.Contains(s.WiredTiger.Creation, option) && name == "" {
		return store.NoneCompressor
	}
	return store.Compressor(name)
}

// source returns the collection of the stream if it can be moved.
func (m *move) source() (*found, stats, error) {
	ctx, db, name := m.ctx, m.cfg.Database, m.cfg.Stream
	if err := followable(ctx, db, m.cfg.Kind); err != nil {
		return nil, stats{}, err
	}
	f, err := lookUp(ctx, db, name)
	if err != nil {
		return nil, stats{}, err
	}
	if err := movable(f, db.Name(), name); err != nil {
		return nil, stats{}, err
	}
	size, err := statsOf(ctx, db, name)
	if err != nil {
		return nil, stats{}, err
	}
	if have := size.compressor(); m.cfg.SameDocuments && have != "" && have == m.cfg.Compressor {
		return nil, stats{}, refuse("collection %q has compressor %s already: there is nothing to do", name, have)
	}
	if err := onlyBuckets(ctx, db.Collection(name)); err != nil {
		return nil, stats{}, err
	}
	return f, size, m.enoughSpace(&size)
}

// followable refuses deployments whose changes cannot be followed.
func followable(ctx context.Context, db *mongo.Database, kind string) error {
	var hello struct {
		Set string `bson:"setName"`
		Msg string `bson:"msg"`
	}
	if err := db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return fmt.Errorf("ask MongoDB what it is: %w", err)
	}
	switch {
	case hello.Msg == "isdbgrid":
		return refuse("this MongoDB is a sharded cluster, whose collections `brim %s` cannot exchange for others; it works on replica sets", kind)
	case hello.Set == "":
		return refuse("this MongoDB is a standalone, without the change stream that `brim %s` needs. Make it a replica set of one: "+
			"restart mongod with --replSet rs0, and run `rs.initiate()` once in mongosh; then repeat the command", kind)
	}
	return nil
}

// movable refuses what is no plain collection.
func movable(f *found, database, name string) error {
	switch {
	case f == nil:
		return refuse("there is no collection %q in database %q", name, database)
	case f.Type == "timeseries":
		return refuse("collection %q is a time-series collection, which MongoDB neither renames nor tells the changes of: it cannot be exchanged while daemons write. "+
			"Go there and back: `brim migrate --storage bucket`, then `brim migrate --storage timeseries` with the other settings. "+
			"Or give the daemon a new stream, and let the retention empty this one", name)
	case f.Type != "collection":
		return refuse("%q is a %s, not a collection", name, f.Type)
	}
	if capped, _ := f.Options.Lookup("capped").BooleanOK(); capped {
		return refuse("collection %q is capped: nothing can be removed from it, so no copy can be kept up to date", name)
	}
	if f.Options.Lookup("clusteredIndex").Type != 0 {
		return refuse("collection %q is clustered, which Brim never makes; it is left alone", name)
	}
	return nil
}

// onlyBuckets refuses collections with other documents than Brim's, as far as
// the first and the last tell. The copy looks at each.
func onlyBuckets(ctx context.Context, coll *mongo.Collection) error {
	for _, direction := range []int{1, -1} {
		raw, err := coll.FindOne(ctx, bson.D{}, options.FindOne().
			SetSort(bson.D{{Key: "_id", Value: direction}}).SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read collection %q: %w", coll.Name(), err)
		}
		if _, err := groupOf(raw.Lookup("_id"), store.MaxGranularity); err != nil {
			return refuse("collection %q: %v", coll.Name(), err)
		}
	}
	return nil
}

// enoughSpace refuses to fill the disk.
func (m *move) enoughSpace(size *stats) error {
	var disk struct {
		Used  float64 `bson:"fsUsedSize"`
		Total float64 `bson:"fsTotalSize"`
	}
	if err := m.cfg.Database.RunCommand(m.ctx, bson.D{{Key: "dbStats", Value: 1}}).Decode(&disk); err != nil || disk.Total == 0 {
		m.cfg.Logger.Warn("MongoDB does not tell how much of its disk is free: whether a second copy fits is not known", "err", err)
		return nil
	}
	need := size.StorageSize
	if m.cfg.Compressor == store.NoneCompressor {
		need = max(need, size.Bytes)
	}
	need += size.IndexSize
	need += need / 10 // daemons go on writing
	if free := int64(disk.Total - disk.Used); free < need {
		return refuse("a second copy of collection %q takes up to %s, and %s are free on MongoDB's disk: free some, or let the retention shorten the collection first",
			m.cfg.Stream, humanize.IBytes(uint64(need)), humanize.IBytes(uint64(max(free, 0))))
	}
	return nil
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config describes a stream that is stored in MongoDB.
type Config struct {
	Database     *mongo.Database // with the concerns of Connection.Database
	Stream       string
	Name         string        // of the collection; empty: the stream's name, see internal/store/generation
	Granularity  time.Duration // length of a window, see CheckGranularity
	Compressor   Compressor
	WriteTimeout time.Duration // of one command; 0: 10 s
	Logger       *slog.Logger  // nil: nothing is logged
	// CanReadColumns reports whether all daemons of the database can read blocks of columns.
	// Until then none are written. Nil: they can.
	CanReadColumns func() bool
	// CanReadLongWindows reports whether all daemons of the database can find windows longer than
	// MaxGranularity. Until then, none are written. Nil: they can.
	CanReadLongWindows func() bool
	// Rollup is the length of the steps of the stream's rollups; 0: it has none. Only buckets
	// have them.
	Rollup     time.Duration
	OnLost     func() // called when the collection turns out to be missing; must not block; may be nil
	Registerer prometheus.Registerer

	Format               Format // this and the following fields: see Settings
	MaxReadings          int
	MaxBytes             int
	MaxReadingsPerUpdate int
	Retention            time.Duration
	WriteConcern         WriteConcern
	View                 bool
	Duplicates           Duplicates
	RollupRetention      time.Duration
}

// Settings are the part of a Config that can change while the stream is written.
// A time series has only the retention and the write concern.
type Settings struct {
	Format Format // of buckets; empty: Documents

	// Lowering a cap closes the parts that exceed it; raising one does not reopen
	// closed parts.
	MaxReadings          int           // readings in a part, 1 to 1,000,000
	MaxBytes             int           // estimated BSON bytes of the readings in a part, 1 KiB to 2 MiB
	MaxReadingsPerUpdate int           // 0: no limit; 1: no merging
	Retention            time.Duration // 0: forever
	WriteConcern         WriteConcern
	View                 bool          // keep a View next to the collection
	Duplicates           Duplicates    // that sealing applies; empty: Keep
	RollupRetention      time.Duration // 0: forever
}

// Settings returns the settings to start with.
func (c Config) Settings() Settings {
	return Settings{
		Format: c.Format, MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes, MaxReadingsPerUpdate: c.MaxReadingsPerUpdate,
		Retention: c.Retention, WriteConcern: c.WriteConcern, View: c.View, Duplicates: c.Duplicates,
		RollupRetention: c.RollupRetention,
	}
}

// A Base is the common part of the stores in MongoDB: the settings in force and the collection to
// write to.
//
// Writes go only to the collection that was prepared, never to another one of the same name.
// Inserting into a collection that does not exist would create one without the stream's options
// and indexes. So each write carries the UUID of its collection, and MongoDB refuses it for any
// other:
//
//	            Prepare                a write is refused, or CheckPrepared finds another UUID
//	unprepared ─────────▶ Prepared(UUID) ───────────────────────────────────────────────▶ unprepared
type Base struct {
	Config
	Metrics  *Metrics
	Majority *mongo.Collection // with the database's concerns
	Answers  *mongo.Collection // to read answers from
	Live     atomic.Pointer[Live]

	preparing   sync.Mutex
	prepared    atomic.Pointer[Prepared]
	generations atomic.Int64
}

// Live has the settings in force, and the collection with the write concern that they ask for.
type Live struct {
	Settings
	Into *mongo.Collection // to write readings
}

// Prepared is a collection that may be written to.
type Prepared struct {
	// Generation differs for each collection, so that state kept about an earlier one is not used
	// for this one.
	Generation int64
	Bulk       *options.BulkWriteOptionsBuilder // unordered, to this collection alone

	uuid  bson.Binary
	named bool // commands may have the UUID
}

// NewBase checks cfg; it does no I/O.
func NewBase(cfg Config, storage Storage) (*Base, error) {
	if err := CheckGranularity(cfg.Granularity, cfg.Format); err != nil {
		return nil, err
	}
	cfg.Name = cmp.Or(cfg.Name, cfg.Stream)
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnLost == nil {
		cfg.OnLost = func() {}
	}
	metrics, err := NewMetrics(cfg.Registerer, cfg.Stream, storage, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	b := &Base{Config: cfg, Metrics: metrics}
	b.open()
	return b, nil
}

// Use puts settings in force, from the next write on.
func (b *Base) Use(c Settings) {
	b.Live.Store(&Live{Settings: c, Into: c.WriteConcern.Writes(b.Database, b.Name)})
}

// Rename sets the stream's collection and its compressor. It must be called before the Base is
// used.
func (b *Base) Rename(collection string, compressor Compressor) {
	b.Name, b.Compressor = collection, compressor
	b.open()
	b.Use(b.Live.Load().Settings)
}

// open opens the collections of the stream's name.
func (b *Base) open() {
	b.Majority, b.Answers = b.Database.Collection(b.Name), answersOf(b.Database, b.Name)
}

// One returns the first document found, and whether there is one. It counts against the
// budget of ctx.
func (b *Base) One(ctx context.Context, filter bson.D, find *options.FindOneOptionsBuilder) (doc bson.Raw, found bool, err error) {
	doc, err = b.Answers.FindOne(ctx, filter, find).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, false, nil
	}
	if err == nil {
		err = telemetry.Spend(ctx, len(doc))
	}
	return doc, err == nil, err
}

// maxBatchSize is the maximum number of documents in a growing batch.
const maxBatchSize = 128

// maxBatchTime is how long the consumer may take for a batch that still grows. MongoDB closes a
// cursor that is idle for ten minutes.
const maxBatchTime = 10 * time.Second

// Each yields the documents found, each valid until the next. They count against the
// budget of ctx. If firstBatch is not 0, it is the size of the first batch, and sizes
// double unless the consumer is slow. Each ends with an error if one occurs.
func (b *Base) Each(ctx context.Context, filter bson.D, find *options.FindOptionsBuilder, firstBatch int32) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		if firstBatch > 0 {
			find.SetBatchSize(firstBatch)
		}
		cursor, err := b.Answers.Find(ctx, filter, find)
		if err != nil {
			yield(nil, err)
			return
		}
		defer cursor.Close(context.WithoutCancel(ctx))
		began := time.Now() // of the batch
		for batch := firstBatch; cursor.Next(ctx); {
			if err := telemetry.Spend(ctx, len(cursor.Current)); err != nil {
				yield(nil, err)
				return
			}
			if !yield(cursor.Current, nil) {
				return
			}
			if batch > 0 && cursor.RemainingBatchLength() == 0 {
				if time.Since(began) < maxBatchTime {
					batch = min(2*batch, maxBatchSize)
				}
				cursor.SetBatchSize(batch)
				began = time.Now()
			}
		}
		if err := cursor.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// FindEach yields the documents found, each valid until the next. It ends with an error if one
// occurs.
func FindEach(ctx context.Context, in *mongo.Collection, filter any, find ...options.Lister[options.FindOptions]) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		cursor, err := in.Find(ctx, filter, find...)
		if err != nil {
			yield(nil, err)
			return
		}
		defer cursor.Close(context.WithoutCancel(ctx))
		for cursor.Next(ctx) {
			if !yield(cursor.Current, nil) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// FindAll returns the documents found.
func FindAll[T any](ctx context.Context, in *mongo.Collection, filter any, find ...options.Lister[options.FindOptions]) (out []T, err error) {
	cursor, err := in.Find(ctx, filter, find...)
	if err == nil {
		err = cursor.All(ctx, &out)
	}
	return out, err
}

// Collection describes the stream's collection.
func (b *Base) Collection() Collection {
	return Collection{Database: b.Database, Name: b.Name, Compressor: b.Compressor}
}

// A Preparation is what one kind of storage needs of its collection.
type Preparation struct {
	Type   string // of the collection
	Create *options.CreateCollectionOptionsBuilder
	Probe  bson.D // a write that changes nothing, or is refused because of its content
	// Check checks the rest, and makes what is missing.
	Check func(ctx context.Context, c Collection, info *Info, now *Live) error
}

// Prepare creates the collection, or checks that the existing one can take the
// stream. From then on, writes go to that collection. A *MismatchError or
// *ConcernError is final; other errors may pass.
func (b *Base) Prepare(ctx context.Context, p Preparation) error {
	b.preparing.Lock()
	defer b.preparing.Unlock()
	now, c := b.Live.Load(), b.Collection()
	info, err := c.Ensure(ctx, p.Create)
	if err != nil {
		return err
	}
	if err := c.CheckType(info, p.Type); err != nil {
		return err
	}
	named, err := c.takesUUID(ctx, info, p.Probe)
	if err != nil {
		return err
	}
	if named {
		c.Only = info.UUID
	}
	if err := c.CheckCompressor(info); err != nil {
		if b.generations.Load() == 0 {
			return err
		}
		// A restored dump made it while the daemon ran; it works as well.
		b.Logger.Warn("the stream's collection is used as it is; the next start requires the same compressor in the settings", "mismatch", err)
	}
	if err := now.WriteConcern.Check(ctx, b.Database, b.Stream, b.Logger); err != nil {
		return err
	}
	if err := p.Check(ctx, c, info, now); err != nil {
		return err
	}
	return b.target(info, named)
}

// target directs writes to the collection, and logs if it differs from the previous one. If named
// is false, any collection of that name accepts the writes.
func (b *Base) target(info *Info, named bool) error {
	if now := b.prepared.Load(); now != nil && now.uuid.Equal(info.UUID) {
		return nil
	}
	p := &Prepared{uuid: info.UUID, named: named, Bulk: options.BulkWrite().SetOrdered(false)}
	if named {
		err := xoptions.SetInternalBulkWriteOptions(p.Bulk, "addCommandFields", bson.D{{Key: uuidField, Value: info.UUID}})
		if err != nil {
			return fmt.Errorf("add the collection's UUID to writes: %w", err)
		}
	} else {
		b.Logger.Warn("this MongoDB does not accept the UUID of this collection in writes (6.0 and later do, except that 7.0 does not for time series): if the collection is dropped while the daemon runs, "+
			"writes create an ordinary one of its name until that is noticed", "stream", b.Stream)
	}
	p.Generation = b.generations.Add(1)
	switch {
	case p.Generation == 1:
	case info.Created:
		b.Metrics.Recreated.Inc()
		b.Logger.Warn("the stream's collection was dropped, or MongoDB was replaced: it was created again, with the stream's settings. "+
			"Its earlier content is gone; readings that are not stored yet go to the new one", "stream", b.Stream)
	default:
		b.Metrics.Replaced.Inc()
		b.Logger.Warn("the stream's collection was replaced by another one: the new one now has the stream's settings, and writes go to it", "stream", b.Stream)
	}
	b.prepared.Store(p)
	return nil
}

// ErrNotPrepared says that a stream has no prepared collection at the moment.
// Nothing is written until it has one.
var ErrNotPrepared = errors.New("its collection is not prepared")

// Target returns the collection to write to. While there is none it returns nil and
// marks the writes as unsent.
func (b *Base) Target(writes []*batch.Pending) *Prepared {
	to := b.prepared.Load()
	if to == nil {
		for _, pending := range writes {
			pending.Verdict, pending.Err = batch.Unsent, ErrNotPrepared
		}
	}
	return to
}

// Wrote notes how a write to p ended.
func (b *Base) Wrote(p *Prepared, err error) {
	if err != nil && HasCode(err, collectionUUIDMismatch) {
		b.lose(p)
	}
}

// lose stops writes to p.
func (b *Base) lose(p *Prepared) {
	if b.prepared.CompareAndSwap(p, nil) {
		b.OnLost()
	}
}

// CheckPrepared returns nil while the collection that was prepared still has the stream's
// name, and ErrNotPrepared if it does not, or if none was prepared.
func (b *Base) CheckPrepared(ctx context.Context) error {
	p := b.prepared.Load()
	if p == nil {
		return ErrNotPrepared
	}
	info, err := b.Collection().Lookup(ctx)
	switch {
	case err != nil:
		return err
	case info == nil || !info.UUID.Equal(p.uuid):
		b.lose(p)
		return ErrNotPrepared
	}
	return nil
}

// AppendUUID appends the element of a command that directs it to this collection alone.
func (p *Prepared) AppendUUID(command []byte) []byte {
	if !p.named {
		return command
	}
	return bsoncore.AppendBinaryElement(command, uuidField, p.uuid.Subtype, p.uuid.Data)
}

// uuidField is how commands name the collection that they are meant for.
const uuidField = "collectionUUID"

// MongoDB's error codes.
const (
	collectionUUIDMismatch = 361
	// The server does not know a field of the command: MongoDB before 6.0, or another server that
	// speaks its protocol.
	unknownField, failedToParse, notImplemented = 40415, 9, 238
)

// takesUUID checks whether the server accepts the UUID of the collection in a
// write. The write must change nothing, or be refused for its content.
func (c Collection) takesUUID(ctx context.Context, info *Info, write bson.D) (bool, error) {
	if len(info.UUID.Data) == 0 {
		return false, nil
	}
	err := c.Database.RunCommand(ctx, append(write,
		bson.E{Key: uuidField, Value: info.UUID}, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	)).Err()
	var server mongo.ServerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &server) || Transient(err):
		return false, fmt.Errorf("try a write that names collection %q by its UUID: %w", c.Name, err)
	case HasCode(err, unknownField, failedToParse, notImplemented):
		return false, nil
	case !HasCode(err, collectionUUIDMismatch):
		return true, nil // refused for its content
	}
	// It is gone already, or this server takes no UUID of a collection of its kind.
	now, err := c.Lookup(ctx)
	if err == nil && (now == nil || !now.UUID.Equal(info.UUID)) {
		err = fmt.Errorf("collection %q was replaced while it was prepared", c.Name)
	}
	return false, err
}

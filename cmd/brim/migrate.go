package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// migrateOptions are the flags of `brim migrate`.
type migrateOptions struct {
	granularity time.Duration // 0: not given
	storage     store.Storage // empty: not given
	maxReadings int           // in a part; 0: as the stream has it
	maxBytes    int           // in a part; 0: as the stream has it
	*maintainOptions
	beside *storageOptions
	flags  *pflag.FlagSet // all of them
}

const migrateHelp = `Move the readings of a stream into documents of another granularity, or into another kind of storage,
while daemons go on writing.

--granularity: documents are copied into a new collection, with the readings in windows of the new
length; what daemons write meanwhile is copied again. Then both are compared, daemons have to wait for
some moments (they journal what comes; nothing is refused), and the two collections exchange their names.
A document whose readings were moved leaves an empty one behind, by which a daemon that does not know
sees what is stored of what it sends. It takes about as much disk again as the collection has.

  1. brim migrate --granularity 1h            the daemons run on with the old granularity, and write it
  2. restart each brim serve with --granularity 1h
  3. brim migrate --granularity 1h            once more, for what was written between 1 and 2
  4. brim migrate --granularity 1h --drop-old gives the disk back: the old collection, the empty documents

Before step 4 all that was taken in under the old granularity must be stored, in every daemon. So --drop-old asks
them all: name each by --admin, which can be repeated. Where none runs any more, and every journal is empty
(brim journal inspect), say --no-daemon. A journal that is put back later would store again what it holds.

Another migration may follow at any time, also back: what the one before has kept is dropped when it begins, for
the present collection has all of it, and is kept in its place. With a retention, start no daemon with the old
granularity any more: it would remove longer windows as soon as its own would be too old.

It can be killed at any time, and run again: it goes on where it was. --abort gives it up, as long as the
collections are not exchanged. --abort and --drop-old know by themselves which migration it is. Needs a replica set, of one member perhaps.`

// newMigrate returns `brim migrate`:
//
//	flags ─▶ site ─┬─ --granularity ─▶ maintain.Migration ─▶ Move by groups ─▶ report
//	               └─ --storage ─────▶ migratestorage.go
func newMigrate(p *process) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "migrate --granularity DURATION | --storage bucket|timeseries",
		Short: "Move a stream to another granularity or another kind of storage",
		Long:  migrateHelp + "\n\n" + storageHelp,
		Example: "  brim migrate --granularity 1h\n" +
			"  brim migrate --granularity 5m --stream machines --rate 8MiB\n" +
			"  brim migrate --granularity 1h --drop-old\n" +
			"  brim migrate --storage timeseries",
		Args: cobra.NoArgs,
	}
	cmd.Flags().SortFlags = false
	add := flagAdder(cmd.Flags())
	add("granularity", "", "DURATION", "length of a bucket's window: 1m to 1h, a divisor of an hour", func(s string) error {
		d, err := config.ParseDuration(s)
		if err != nil {
			return err
		}
		o.granularity = d
		return store.CheckGranularity(d)
	})
	add("storage", "", "bucket|timeseries", "kind of storage", config.Choice(&o.storage, store.Bucket, store.TimeSeries))
	add("bucket-max-readings", "", "N", "readings in one part of a bucket; empty: as the stream has it", config.Count(&o.maxReadings, 1, 1_000_000))
	add("bucket-max-bytes", "", "SIZE", "estimated bytes of the readings in one part of a bucket; empty: as the stream has it", config.Size(&o.maxBytes, 1<<10, 2<<20, false))
	o.maintainOptions = maintainFlags(cmd)
	o.beside, o.flags = addStorageFlags(cmd.Flags()), cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) }
	return cmd
}

func (o *migrateOptions) run(ctx context.Context, p *process) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.storage == "" && o.granularity == 0 {
		if !o.abort && !o.dropOld {
			return config.Usage(errors.New("what is the stream to become? Give --granularity, like 1h, or --storage bucket|timeseries"))
		}
		if err := o.learn(ctx, p); err != nil {
			return err
		}
	}
	if err := o.refuseIgnored(); err != nil {
		return err
	}
	if o.storage != "" {
		return o.beside.run(ctx, p, o)
	}
	w, err := o.open(ctx, p, maintain.KindMigrate)
	if err != nil {
		return err
	}
	defer w.close(context.WithoutCancel(ctx))
	switch w.stream.Storage {
	case store.TimeSeries:
		return config.Usage(fmt.Errorf("stream %s is a time-series collection, of which MongoDB makes the buckets by itself: it has no granularity that can be changed. "+
			"To have buckets: %s", w.stream.Name, o.words(w.stream.Name, false).command("--storage", "bucket", "--granularity", config.FormatDuration(o.granularity))))
	case store.Memory:
		return config.Usage(fmt.Errorf("stream %s is stored in memory: MongoDB has nothing of it to migrate", w.stream.Name))
	}
	return softly(ctx, w, maintain.KindMigrate, func(ctx context.Context) error { return o.carryOut(ctx, p, w) })
}

// migration describes the move of what these daemons write.
func (o *migrateOptions) migration(w *workplace, known []streamWriter) *maintain.Migration {
	one := w.stream
	m := &maintain.Migration{
		Config: o.move(w, maintain.KindMigrate),
		Regroup: maintain.RegroupConfig{
			Granularity: o.granularity, MaxReadings: one.BucketMaxReadings, MaxBytes: one.BucketMaxBytes, Faults: w.faults,
		},
	}
	m.To = config.FormatDuration(o.granularity)
	if o.maxReadings > 0 {
		m.Regroup.MaxReadings = o.maxReadings
	}
	if o.maxBytes > 0 {
		m.Regroup.MaxBytes = o.maxBytes
	}
	for _, d := range known {
		m.Regroup.Found = append(m.Regroup.Found, d.has.Granularity)
		if d.has.Retention > 0 {
			m.ExpireAtLeast = max(m.ExpireAtLeast, d.has.Retention+max(o.granularity, d.has.Granularity))
		}
	}
	return m
}

// carryOut does one of the three things, and reports.
func (o *migrateOptions) carryOut(ctx context.Context, p *process, w *workplace) error {
	r := &migrateReport{Stream: w.stream.Name, To: config.FormatDuration(o.granularity), Aborted: o.abort, NoDaemon: o.beside.noDaemon}
	r.words, r.wordsToMove = o.words(r.Stream, false), o.words(r.Stream, true)
	var err error
	switch {
	case o.abort:
		err = o.migration(w, nil).Abort(ctx)
	case o.dropOld:
		if err = o.stored(ctx, w); err == nil {
			r.Dropped, r.Tombstones, err = o.migration(w, nil).Finish(ctx)
		}
	default:
		err = o.moveAll(ctx, w, r)
	}
	w.line.end()
	if err != nil {
		return err
	}
	return r.print(p, *o.output)
}

// moveAll moves, and says whether there are daemons to be restarted.
func (o *migrateOptions) moveAll(ctx context.Context, w *workplace, r *migrateReport) error {
	known, err := o.writers(ctx, w)
	if err != nil && len(o.beside.admins) > 0 {
		w.log.Warn("a daemon does not tell how it writes the stream", "err", err)
	}
	r.OldDaemon = err != nil
	for _, d := range known {
		r.OldDaemon = r.OldDaemon || d.has.Granularity != o.granularity
	}
	r.Result, err = o.migration(w, known).Run(ctx)
	if errors.Is(err, maintain.ErrNothingToMove) {
		return nil
	}
	return err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
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
while daemons keep writing.

--granularity: documents are copied into a new collection, with the readings in windows of the new
length; what daemons write in the meantime is copied as well. Then both collections are compared, daemons have
to wait for a few moments (they journal incoming readings; nothing is refused), and the collections swap names.
A document whose readings were moved leaves an empty one behind, which tells a daemon that is still retrying
which of its readings are stored. The migration needs about as much additional disk space as the collection uses.

  1. brim migrate --granularity 1h            the daemons keep writing with the old granularity
  2. restart each brim serve with --granularity 1h
  3. brim migrate --granularity 1h            again, for readings written between 1 and 2
  4. brim migrate --granularity 1h --drop-old frees disk space: drops the old collection and the empty documents

Before step 4 every daemon must have stored all readings that it accepted with the old granularity. So --drop-old
asks all of them: name each with --admin, which can be repeated. If none is running, and every journal is empty
(brim journal inspect), use --no-daemon. A journal that is restored later would store its readings again.

Another migration, even back, can follow at any time. It first drops the old collection of the previous migration,
because the current collection contains all of its readings, and keeps the current one instead. With a retention, do
not start a daemon with the old granularity: it would remove longer windows as soon as its own would have expired.

The command can be killed at any time and run again; it continues where it stopped. --abort abandons the migration,
until the collections are swapped. --abort and --drop-old find out which migration it is. Requires a replica set,
which may have a single member.`

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
		Args: nothing,
	}
	cmd.Flags().SortFlags = false
	add := flagAdder(cmd.Flags())
	add("granularity", "", "DURATION", "length of a bucket's window: 1m to 1h, a divisor of an hour", func(s string) error {
		d, err := config.ParseDuration(s)
		if err != nil {
			return err
		}
		o.granularity = d
		return store.CheckGranularity(d, store.Documents)
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
			Granularity: o.granularity, MaxReadings: one.BucketMaxReadings, MaxBytes: one.BucketMaxBytes,
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
	return p.print(*o.output, r, r.text())
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

// refuseIgnored refuses flags that would change nothing of what is to be done.
func (o *migrateOptions) refuseIgnored() error {
	refuse := func(name, why string) error {
		if !o.flags.Changed(name) {
			return nil
		}
		return config.Usage(fmt.Errorf("--%s: %s; leave it out", name, why))
	}
	if o.storage != "" {
		if err := refuse("swap", "a change of storage exchanges the collections in its own way"); err != nil {
			return err
		}
	}
	grains := o.storage == "" && o.granularity != 0
	if grains && !o.dropOld {
		if err := refuse("no-daemon", "with --granularity daemons are asked by --drop-old alone"); err != nil {
			return err
		}
	}
	if o.abort || grains && o.dropOld {
		for _, name := range howToMove {
			if err := refuse(name, "it says how documents are moved, and none will be"); err != nil {
				return err
			}
		}
	}
	return nil
}

// howToMove are the flags of a move that say how it is made.
var howToMove = []string{"rate", "swap", "bucket-max-readings", "bucket-max-bytes"}

// learn finds out what the migration is to that --abort or --drop-old ends.
func (o *migrateOptions) learn(ctx context.Context, p *process) error {
	w, err := o.open(ctx, p, maintain.KindMigrate)
	if err != nil {
		return err
	}
	defer w.close(context.WithoutCancel(ctx))
	work, err := maintain.UnderWay(ctx, w.connection.Database(), w.stream.Name, maintain.KindMigrate)
	if err != nil {
		return err
	}
	if d, err := time.ParseDuration(work.To); err == nil {
		o.granularity = d
		return store.CheckGranularity(d, store.Documents)
	}
	if err := config.Choice(&o.storage, store.Bucket, store.TimeSeries)(work.To); err != nil {
		return fmt.Errorf("the migration of stream %s is to %q, which this version of brim does not know: %w", w.stream.Name, work.To, err)
	}
	if o.dropOld && !work.Done {
		return fmt.Errorf("the migration of stream %s to %s is in phase %s, and --drop-old would make its last step, too; if that is meant: %s",
			w.stream.Name, work.To, work.Phase, o.words(w.stream.Name, false).command("--storage", work.To, "--drop-old"))
	}
	return nil
}

// commandWords are what further commands for the same stream have in common.
type commandWords []string

// words are those of the flags that say where the stream is, and of those that
// say how it is moved.
func (o *migrateOptions) words(stream string, moves bool) commandWords {
	out := commandWords{"--stream", stream}
	names := []string{"config", daemon.UriSetting, daemon.UriFileSetting, "database", "token-file", "ca", "cert", "key"}
	if moves {
		names = append(names, howToMove...)
	}
	for _, name := range names {
		if f := o.flags.Lookup(name); f.Changed {
			out = append(out, "--"+name, f.Value.String())
		}
	}
	for _, at := range o.beside.admins {
		out = append(out, "--admin", at)
	}
	if o.storage != "" && o.beside.noDaemon {
		out = append(out, "--no-daemon")
	}
	return out
}

// command writes a command that can be pasted into a shell, but for a password,
// which is not shown.
func (c commandWords) command(more ...string) string {
	words := []string{"brim", "migrate"}
	for _, word := range append(more, c...) {
		words = append(words, config.ShellWord(config.MaskURI(word)))
	}
	return strings.Join(words, " ")
}

// A migrateReport is the result of `brim migrate --granularity`.
type migrateReport struct {
	Stream  string `json:"stream"`
	To      string `json:"to,omitempty"`
	Aborted bool   `json:"aborted,omitempty"`

	*maintain.Result `json:"result,omitempty"` // nil: there was nothing to do

	Dropped    *maintain.Dropped    `json:"dropped,omitempty"`
	Tombstones *maintain.DropResult `json:"tombstones,omitempty"`

	OldDaemon bool `json:"-"` // one writes another granularity, or it is not known
	NoDaemon  bool `json:"-"` // none was asked

	words, wordsToMove commandWords // of further commands, which drop and move
}

func (r *migrateReport) again() string { return r.wordsToMove.command("--granularity", r.To) }
func (r *migrateReport) drop() string {
	return r.words.command("--granularity", r.To, "--drop-old")
}

func (r *migrateReport) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch {
	case r.Aborted:
		line("The migration of stream %s is given up. The copy is dropped; daemons go on with the collection that they have.", r.Stream)
	case r.Dropped != nil:
		r.droppedText(line)
	case r.Result == nil:
		line("All documents of stream %s have a granularity of %s already: there is nothing to do.", r.Stream, r.To)
		line("To drop what an earlier migration has left: %s", r.drop())
	case r.AlreadyDone:
		line("Stream %s was migrated to %s before, and nothing was written with another granularity since.", r.Stream, r.To)
		r.keptText(line)
	default:
		r.movedText(line)
	}
	return b.String()
}

func (r *migrateReport) movedText(line func(string, ...any)) {
	line("Stream %s has a granularity of %s: %s, %s on disk (%s before).", r.Stream, r.To, plural(r.Documents, "document"), roundSize(r.BytesAfter), roundSize(r.BytesBefore))
	line("It took %s; daemons had to wait for %s.", r.Took.Round(time.Second), r.Fenced.Round(time.Millisecond))
	line("")
	line("Next:")
	step := 0
	next := func(format string, args ...any) { step++; line("%3d. %s", step, fmt.Sprintf(format, args...)) }
	if r.OldDaemon {
		next("Restart each daemon with a granularity of %s for stream %s. Until then they write documents of the old granularity, which is right, beside the others.", r.To, r.Stream)
		next("Once more, for what they wrote until then: %s", r.again())
	}
	r.keptText(next)
}

func (r *migrateReport) keptText(line func(string, ...any)) {
	kept := "Empty documents are left of those that were moved."
	if r.Kept != "" {
		kept = r.Kept + " holds the documents as they were."
	}
	line("%s When all daemons have stored what they took in before: %s", kept, r.drop())
}

func (r *migrateReport) droppedText(line func(string, ...any)) {
	if r.Dropped.Collection != "" {
		line("Dropped collection %s: %s on disk.", r.Dropped.Collection, roundSize(r.Dropped.Bytes))
	}
	if r.Tombstones == nil {
		return
	}
	line("Removed %d empty documents that migrated ones had left behind.", r.Tombstones.Dropped)
	if n := r.Tombstones.Windows; n > 0 {
		line("%d windows still hold readings in documents of another granularity, and keep theirs. To move them, too: %s", n, r.again())
	}
	if r.NoDaemon {
		line("No daemon was asked. One that has readings in its journal, from before the migration, of which it does not know that they are stored, stores them again.")
	}
}

// storageHelp is what `brim migrate --help` says of --storage.
const storageHelp = `--storage timeseries: readings move from bucket documents to a native time-series collection. MongoDB cannot
rename such a collection, so the switch comes first: the daemon stores its pending readings, accepts none for a
moment (503), and waits to be restarted with --storage timeseries; then the old readings are copied, and compared one by
one. The old collection stays as <stream>.brim_old until --drop-old. Before the switch --abort undoes everything;
after it, use --storage bucket to go back.

--storage bucket: readings are copied, in rounds, into bucket documents beside the time-series collection while daemons
keep writing, and are compared. The old collection cannot be kept under another name: --drop-old ends the migration,
drops it and gives its name to the copy; the daemon is held in the meantime, and waits to be restarted with --storage bucket.

A time-series collection does not keep the order of fields. Every daemon has to be named with --admin: readings that an
unnamed daemon writes while the names change may be lost. The last check before the time-series collection is dropped
is whether the daemons are still held: a daemon restarted within the remaining round trip loses the readings that it
accepts, so do not restart one between "the last look begins" and "the switch is made". Time-series collections have no
unique index: readings for which MongoDB's reply was lost are looked up before they are sent again.`

// storageOptions are the flags that only --storage has.
type storageOptions struct {
	admins   []string // host:port of every daemon; empty: the one by default
	noDaemon bool
}

// addStorageFlags adds them to `brim migrate`, whose other flags are there: of
// these --admin becomes one that can be repeated.
func addStorageFlags(flags *pflag.FlagSet) *storageOptions {
	f := &storageOptions{}
	if one := flags.Lookup("admin"); one != nil {
		one.Value = &repeatedFlag{Value: one.Value, all: &f.admins}
		one.Usage += "; it may be repeated, and names all daemons that write the stream"
	}
	flags.BoolVar(&f.noDaemon, "no-daemon", false, "with --storage, or --drop-old: no daemon runs that writes the stream, and every journal is empty")
	return f
}

// A repeatedFlag takes several values, of which the first is the flag's own.
type repeatedFlag struct {
	pflag.Value
	all *[]string
}

// Set implements pflag.Value.
func (f *repeatedFlag) Set(s string) error {
	if len(*f.all) > 0 {
		var other string
		if err := adminAddress(&other)(s); err != nil {
			return err
		}
		*f.all = append(*f.all, other)
		return nil
	}
	if err := f.Value.Set(s); err != nil {
		return err
	}
	*f.all = append(*f.all, f.String())
	return nil
}

// run carries --storage out.
func (f *storageOptions) run(ctx context.Context, p *process, o *migrateOptions) error {
	w, err := o.open(ctx, p, maintain.KindMigrate)
	if err != nil {
		return err
	}
	defer w.close(context.WithoutCancel(ctx))
	if w.stream.Storage == store.Memory {
		return config.Usage(fmt.Errorf("stream %s is stored in memory: MongoDB has nothing of it to migrate", w.stream.Name))
	}
	if o.storage == store.TimeSeries && o.granularity != 0 && o.granularity != w.stream.Granularity {
		return config.Usage(errors.New("--granularity: the one of a time-series collection is that of the stream; migrate the storage first"))
	}
	cfg := f.change(o, w)
	return softly(ctx, w, maintain.KindMigrate, func(ctx context.Context) error {
		if o.abort {
			if err := maintain.AbortStorage(ctx, cfg); err != nil {
				return err
			}
			w.line.end()
			aborted := &storageReport{Stream: cfg.Stream, Aborted: true}
			return p.print(*o.output, aborted, aborted.text())
		}
		r, err := maintain.ChangeStorage(ctx, cfg)
		if err != nil {
			return err
		}
		w.line.end()
		done := &storageReport{Stream: cfg.Stream, SeriesResult: r, Granularity: config.FormatDuration(cfg.Parts.Granularity), words: o.words(cfg.Stream, true)}
		return p.print(*o.output, done, done.text())
	})
}

// change describes the change of storage. A daemon that has a time-series stream
// does not tell caps.
func (f *storageOptions) change(o *migrateOptions, w *workplace) maintain.SeriesConfig {
	one := w.stream
	parts := maintain.Parts{Granularity: one.Granularity, MaxReadings: one.BucketMaxReadings, MaxBytes: one.BucketMaxBytes}
	if o.granularity != 0 {
		parts.Granularity = o.granularity
	}
	for _, have := range []struct {
		to           *int
		given, usual int
	}{{&parts.MaxReadings, o.maxReadings, usualMaxReadings}, {&parts.MaxBytes, o.maxBytes, usualMaxBytes}} {
		switch {
		case have.given > 0:
			*have.to = have.given
		case *have.to == 0:
			*have.to = have.usual
		}
	}
	return maintain.SeriesConfig{
		Database: w.connection.Database(), Stream: one.Name, To: o.storage, Parts: parts, Compressor: one.Compressor, Retention: one.Retention,
		Holder: f.holder(o.storage, w), DropOld: o.dropOld, Rate: o.rate,
		Progress: w.line.show, Tell: func(text string) { _, _ = fmt.Fprintln(w.line, text) }, Logger: w.log,
	}
}

// The daemon's defaults of --bucket-max-readings and --bucket-max-bytes.
const (
	usualMaxReadings = 1000
	usualMaxBytes    = 256 << 10
)

// daemonHolder holds daemons by their admin listeners, see maintain.Holder.
type daemonHolder struct {
	admins []string
	stream string
	to     store.Storage
	site   *site
	none   bool // no daemon is to be held
	named  bool // the operator has named the daemons
	log    *slog.Logger
}

func (f *storageOptions) holder(to store.Storage, w *workplace) *daemonHolder {
	h := &daemonHolder{admins: f.admins, stream: w.stream.Name, to: to, site: w.site, none: f.noDaemon, named: len(f.admins) > 0, log: w.log}
	if !h.named {
		h.admins = []string{w.site.admin}
	}
	return h
}

// drainPatience is how long a daemon may take to store what it has.
const drainPatience = 30 * time.Second

// Hold implements maintain.Holder.
func (h *daemonHolder) Hold(ctx context.Context, lease time.Duration) (string, error) {
	if h.none {
		return "no daemon", nil
	}
	until := "restart"
	if lease > 0 {
		until = lease.String()
	}
	var names []string
	for _, at := range h.admins {
		name, err := h.holdOne(ctx, at, until)
		if err != nil {
			return "", fmt.Errorf("%w; if no daemon writes the stream, say so by --no-daemon: "+
				"every journal must be empty then (`brim journal inspect`), for what is in one cannot be stored as it was meant to be any more", err)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", "), nil
}

func (h *daemonHolder) holdOne(ctx context.Context, at, until string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience+adminTimeout)
	defer cancel()
	about, err := h.site.caller.askStatus(ctx, at)
	if err != nil {
		return "", err
	}
	if about.Database != h.site.database {
		return "", fmt.Errorf("the daemon at %s writes to database %q, not to %q", at, about.Database, h.site.database)
	}
	if err := h.sameMongoDB(at, about.MongoURI); err != nil {
		return "", err
	}
	for _, s := range about.Streams {
		if s.Name == h.stream && store.Storage(s.Storage) == h.to {
			return "", fmt.Errorf("the daemon at %s already has stream %s with --storage %s: restart it with the previous storage, and switch it again when this command says so", at, h.stream, h.to)
		}
	}
	body, err := h.site.caller.askAdmin(ctx, http.MethodPost, at, "/hold?"+url.Values{
		"stream": {h.stream}, "for": {until}, "timeout": {drainPatience.String()},
	}.Encode())
	if err != nil {
		return "", err
	}
	var held daemon.Held
	if err := json.Unmarshal(body, &held); err != nil || held.Session == "" {
		return "", fmt.Errorf("what %s answers to a hold is not a daemon's: is it of another version?", at)
	}
	return held.Session + " since " + held.Since.Format(time.RFC3339Nano), nil
}

// sameMongoDB refuses a daemon that happens to run here and stores elsewhere. One
// MongoDB has many names: where the daemon was named, that it is the right one is
// the operator's word.
func (h *daemonHolder) sameMongoDB(at, theirs string) error {
	switch {
	case config.Deployment(theirs) == config.Deployment(h.site.uri):
		return nil
	case h.named:
		h.log.Warn("the daemon calls its MongoDB by another name: readings may be lost unless both are the same one", "daemon", at, "its", theirs, "this", config.MaskURI(h.site.uri))
		return nil
	default:
		return fmt.Errorf("the daemon at %s stores in %s, and this command works on %s; name by --admin the daemons that write the stream, this one, too, if both are the same MongoDB", at, theirs, config.MaskURI(h.site.uri))
	}
}

// Release implements maintain.Holder.
func (h *daemonHolder) Release(ctx context.Context) error {
	if h.none {
		return nil
	}
	var errs []error
	for _, at := range h.admins {
		_, err := h.site.caller.askAdmin(ctx, http.MethodPost, at, "/release?"+url.Values{"stream": {h.stream}}.Encode())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// A storageReport is the result of `brim migrate --storage`.
type storageReport struct {
	Stream  string `json:"stream"`
	Aborted bool   `json:"aborted,omitempty"`

	*maintain.SeriesResult `json:"result,omitempty"`

	Granularity string `json:"-"` // of the buckets

	words commandWords // of further commands
}

func (r *storageReport) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch {
	case r.Aborted:
		line("The migration of stream %s is given up; daemons go on with the collection that they have.", r.Stream)
		return b.String()
	case !r.Switched:
		line("Stream %s is copied into bucket documents, and compared: %s. Daemons still write to the time-series collection.", r.Stream, plural(r.Readings, "reading"))
		line("To catch up with it, run the same command again, at any time.")
		line("To switch: %s", r.words.command("--storage", "bucket", "--granularity", r.Granularity, "--drop-old"))
		line("That holds the daemons for a last look, twice what took %.1f s now, and drops the time-series collection; have them restarted with --storage bucket --granularity %s then.", r.LastRound, r.Granularity)
		return b.String()
	}
	line("The readings of stream %s are now stored with --storage %s: %d were compared, %d had to be corrected.", r.Stream, r.To, r.Readings, r.Repaired)
	if r.Expired > 0 {
		line("%d older than the retention were left out.", r.Expired)
	}
	flags := ""
	if r.To == store.Bucket {
		flags = " --granularity " + r.Granularity
	}
	line("Daemons that are not restarted yet: brim serve --storage %s%s", r.To, flags)
	switch {
	case r.Kept != "":
		line("%s holds the documents as they were. To drop them: %s", r.Kept, r.words.command("--storage", string(r.To), "--drop-old"))
	case r.Dropped:
		line("The old collection is dropped.")
	}
	line("It took %s; daemons took nothing for %.2f s, and then until each was restarted.", time.Duration(r.Duration*float64(time.Second)).Round(time.Second), r.HeldFor)
	return b.String()
}

// A streamWriter is a daemon that writes the stream.
type streamWriter struct {
	admin string
	has   daemon.Stream // its settings
}

// writers asks the daemons at --admin what they have of the stream. The error
// is of those that did not say.
func (o *migrateOptions) writers(ctx context.Context, w *workplace) ([]streamWriter, error) {
	admins := o.beside.admins
	if len(admins) == 0 {
		admins = []string{w.site.admin}
	}
	var out []streamWriter
	var missing []error
	for _, at := range admins {
		has, err := w.site.ask(ctx, at, w.stream.Name)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		out = append(out, streamWriter{at, has})
	}
	return out, errors.Join(missing...)
}

// ask asks a daemon for a stream, which it must write to this site.
func (s *site) ask(ctx context.Context, at, name string) (daemon.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	about, err := s.caller.askStatus(ctx, at)
	if err != nil {
		return daemon.Stream{}, err
	}
	if config.Deployment(about.MongoURI) != config.Deployment(s.uri) || about.Database != s.database {
		return daemon.Stream{}, fmt.Errorf("the daemon at %s writes to database %q of %q, not to %q of %q; if that is the same server, name it as the daemon does (--mongo-uri)",
			at, about.Database, about.MongoURI, s.database, config.MaskURI(s.uri))
	}
	all, err := streamsOf(about)
	if err != nil {
		return daemon.Stream{}, fmt.Errorf("ask %s: %w", at, err)
	}
	for _, one := range all {
		if one.Name == name {
			return one, nil
		}
	}
	return daemon.Stream{}, fmt.Errorf("the daemon at %s has no stream %q", at, name)
}

// stored refuses to go on while a daemon may still need what is to be dropped:
// one that died may have readings in its journal of which only the tombstones
// know that they are stored.
func (o *migrateOptions) stored(ctx context.Context, w *workplace) error {
	known, err := o.writers(ctx, w)
	if o.beside.noDaemon {
		if len(known) > 0 {
			return config.Usage(fmt.Errorf("--no-daemon: the daemon at %s writes stream %s; without the flag it is asked whether all is stored", known[0].admin, w.stream.Name))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("a daemon whose journal has readings from before the migration stores them twice once the empty documents are gone, and not all daemons can be asked: %w. "+
			"Start it with --granularity %s, or say --no-daemon: no daemon writes the stream, and every journal is empty (`brim journal inspect`)", err, config.FormatDuration(o.granularity))
	}
	for _, d := range known {
		if d.has.Granularity != o.granularity {
			to := config.FormatDuration(o.granularity)
			return fmt.Errorf("the daemon at %s still writes stream %s with a granularity of %s: restart it with --granularity %s, run %#q once more for what it has written, and then this",
				d.admin, d.has.Name, config.FormatDuration(d.has.Granularity), to, o.words(d.has.Name, true).command("--granularity", to))
		}
	}
	for _, d := range known {
		if err := w.site.caller.flushed(ctx, d.admin); err != nil {
			return fmt.Errorf("the daemon at %s may have readings in its journal that it sent before; what they left in MongoDB cannot be dropped yet: %w", d.admin, err)
		}
	}
	return nil
}

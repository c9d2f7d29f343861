package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/admin"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// storageHelp is what `brim migrate --help` says of --storage.
const storageHelp = `--storage timeseries: readings go from bucket documents to a native time-series collection. MongoDB can give such a
collection no other name, so the switch comes first: the daemon stores what it has, takes nothing for a
moment (503), and waits to be restarted with --storage timeseries; then the old readings follow, and are compared one by
one. The old collection stays as <stream>.brim_old until --drop-old. Before the switch --abort undoes everything,
after it the way back is --storage bucket.

--storage bucket: readings are copied into bucket documents beside the time-series collection, round by round, while daemons go on
writing, and compared. The old collection cannot be kept under another name: --drop-old ends the migration, drops it and
gives its name to the copy; the daemon is held meanwhile, and waits to be restarted with --storage bucket.

A time-series collection does not keep the order of fields. Daemons have to be named by --admin, all of them: what one
that is not named writes while the names change may be lost. The last look before the time-series collection is dropped is
at whether they are still held: what a daemon takes that is restarted within the round trip that is left is lost, so do
not restart one between "the last look begins" and "the switch is made". Time-series collections have no unique index: readings of which
MongoDB did not tell whether it has them are looked up before they are sent again.`

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
			return printStorage(p, *o.output, &storageReport{Stream: cfg.Stream, Aborted: true})
		}
		r, err := maintain.ChangeStorage(ctx, cfg)
		if err != nil {
			return err
		}
		w.line.end()
		return printStorage(p, *o.output, &storageReport{Stream: cfg.Stream, SeriesResult: r, Granularity: config.FormatDuration(cfg.Parts.Granularity), words: o.words(cfg.Stream, true)})
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
		Progress: w.line.show, Tell: func(text string) { _, _ = fmt.Fprintln(w.line, text) }, Logger: w.log, Faults: w.faults,
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
	none   bool // nobody is to be held
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
		return "nobody", nil
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
	ctx, cancel := context.WithTimeout(ctx, drainPatience+lookTimeout)
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
			return "", fmt.Errorf("the daemon at %s has stream %s with --storage %s already: restart it with the former storage, and that again when it is told", at, h.stream, h.to)
		}
	}
	body, err := h.site.caller.askAdmin(ctx, http.MethodPost, at, "/hold?"+url.Values{
		"stream": {h.stream}, "for": {until}, "timeout": {drainPatience.String()},
	}.Encode())
	if err != nil {
		return "", err
	}
	var held admin.Held
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

func printStorage(p *process, output string, r *storageReport) error {
	if output == "json" {
		return printJSON(p.stdout, r)
	}
	if _, err := io.WriteString(p.stdout, r.text()); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

func (r *storageReport) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch {
	case r.Aborted:
		line("The migration of stream %s is given up; daemons go on with the collection that they have.", r.Stream)
		return b.String()
	case !r.Switched:
		line("Stream %s is copied into bucket documents, and compared: %d readings. What daemons write goes on being a time series.", r.Stream, r.Readings)
		line("To catch up with it, run the same command again, at any time.")
		line("To switch: %s", r.words.command("--storage", "bucket", "--granularity", r.Granularity, "--drop-old"))
		line("That holds the daemons for a last look, twice what took %.1f s now, and drops the time-series collection; have them restarted with --storage bucket --granularity %s then.", r.LastRound, r.Granularity)
		return b.String()
	}
	line("Stream %s has its readings with --storage %s now: %d were compared, %d had to be put right.", r.Stream, r.To, r.Readings, r.Repaired)
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

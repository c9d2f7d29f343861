package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

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
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
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

// flushed has a daemon store all that it has taken in.
func (c *caller) flushed(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout+lookTimeout)
	defer cancel()
	_, err := c.askAdmin(ctx, http.MethodPost, at, "/flush?timeout="+flushTimeout.String())
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/internal/transfer"
	"github.com/brim-telemetry/brim/pkg/client"
)

// importOptions are the flags of `brim import`.
type importOptions struct {
	stream    string
	format    string
	tags      []string
	sensorTag string
	precision string
	stateDir  string
	again     bool
	showBad   int
	output    *string
}

const importHelp = `Send the readings in files to a daemon, which journals and stores them like any
others. Of a folder, all files whose names end in .parquet, .csv, .ndjson, .jsonl,
.lp, .line, .influx or .txt are imported, except hidden ones. Each but Parquet may be
compressed with gzip or zstd.

What brim export wrote is read back as it was. CSV and Parquet of others need the
columns ts (RFC 3339, milliseconds since 1970, or a timestamp of Parquet) and
sensorId; every other column is a field, unless --tags names it. In CSV, a cell in
quotes is a string. An empty cell, null or NaN is no value.

Line protocol becomes readings as over HTTP: the sensor id is the measurement with
its tags, unless --sensor-tag names the tag that has it. Dumps of influx_inspect
export and influxd inspect export-lp have a line for each field; lines of one series
and time become one reading.

Rows that cannot be read, or that the daemon refuses, are reported and left out; the
exit code is then 1. If the command is interrupted, run it again with the same flags:
it continues, and within the daemon's --idempotency-window stores nothing twice.
Later, it may store the readings of unanswered requests a second time. A file that
was imported completely is skipped, unless --again is given.`

// newImport returns `brim import`, which sends to a running daemon over HTTP.
func newImport(p *process) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use: "import FILE|DIR...", Short: "Send the readings in files to a daemon", Long: importHelp,
		Example: "  brim import november --stream archive\n" +
			"  brim import meters.csv --stream meters --tags site,floor\n" +
			"  influx_inspect export -datadir … -waldir … -database plant -lponly -out plant.lp && brim import plant.lp --stream plant",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s takes files or folders, and was given none: %s", cmd.CommandPath(), cmd.UseLine())
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	add := flagAdder(flags)
	add("format", "", "parquet|csv|ndjson|influx", "form of the files; empty: by the ends of their names", config.Choice(&o.format, string(files.Parquet), string(files.CSV), string(files.NDJSON), string(files.Influx)))
	flags.StringSliceVar(&o.tags, "tags", nil, "`NAMES` of the columns of CSV or Parquet that are tags")
	flags.StringVar(&o.sensorTag, "sensor-tag", "", "`NAME` of the tag of line protocol that has the sensor id; empty: measurement and tags are the id")
	add("precision", "ns", "ns|us|ms|s", "unit of timestamps in line protocol", config.Choice(&o.precision, "ns", "us", "ms", "s"))
	flags.BoolVar(&o.again, "again", false, "also import files that were imported completely before")
	flags.StringVar(&o.stateDir, "state-dir", "", "`DIR` that records which files were imported; empty: brim/import in $XDG_STATE_HOME, or in ~/.local/state")
	add("show-refused", "20", "N", "rows to report that could not be read or were refused; all are counted", config.Count(&o.showBad, 0, 1_000_000))
	o.output = outputFlag(cmd, "text", "json")
	withRemote(cmd, p, func(ctx context.Context, r *remote, args []string) (err error) {
		if o.stateDir == "" {
			if o.stateDir, err = stateDir(p); err != nil {
				return err
			}
		}
		return o.run(ctx, p, r, args)
	})
	return cmd
}

// stateDir is where programs keep state that outlives them.
func stateDir(p *process) (string, error) {
	dir := config.LookupEnv(p.env, "XDG_STATE_HOME")
	if dir == "" {
		home := config.LookupEnv(p.env, "HOME")
		if home == "" {
			return "", config.Usage(errors.New("--state-dir: name a folder, since there is no $XDG_STATE_HOME and no $HOME"))
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "brim", "import"), nil
}

// run imports until it is done or interrupted.
func (o *importOptions) run(ctx context.Context, p *process, r *remote, paths []string) error {
	to, err := r.sender()
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }() // all requests have ended
	line, ctx, _, end := p.interruptible(ctx, 10*time.Second, "stopping")
	defer end()
	var pace pace
	bad := 0
	done, err := transfer.Import(ctx, to, transfer.ImportConfig{
		Paths: paths, Format: files.Format(o.format), Stream: o.stream, Daemon: config.MaskUser(r.base), StateDir: o.stateDir, Again: o.again,
		Options: files.Options{Tags: o.tags, SensorTag: o.sensorTag, Precision: strings.TrimPrefix(o.precision, "ns")},
		Show: func(at transfer.ImportProgress) {
			line.show("", func(now time.Time) string {
				return fmt.Sprintf("file %d of %d (%s)%s: %s readings%s%s", at.Done+1, at.Files, at.File, shareText(at.Share),
					humanize.Comma(at.Readings), pace.text(now, "", at.Readings), refusedText(at.Refused))
			})
		},
		Refused: func(row transfer.BadRow) {
			if bad++; bad <= o.showBad {
				line.say("%s:%d: %s", row.Path, row.Line, row.Message)
			}
		},
		Skipped: func(path string, readings int64) {
			line.say("%s was already imported (%s) and is skipped; --again imports it once more", path, plural(readings, "reading"))
		},
	})
	line.end()
	if bad > o.showBad && o.showBad > 0 {
		line.say("… and more rows, which are only counted")
	}
	var failed *client.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s; the same command continues the import", plural(done.Readings, "reading"))
	case errors.As(err, &failed) && failed.Attempts > 1:
		return fmt.Errorf("%w; the same command continues the import", err)
	case err != nil:
		return explainCall(r.base, r.flag, err)
	}
	if err := p.print(*o.output, done, importText(done)); err != nil {
		return err
	}
	if done.Refused > 0 {
		return fmt.Errorf("%s of %s rows could not be read or were refused", humanize.Comma(done.Refused), humanize.Comma(done.Refused+done.Readings+done.ReadingsBefore))
	}
	return nil
}

func shareText(share float64) string {
	if share <= 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f %%", min(100, 100*share))
}

func refusedText(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %s refused", plural(n, "row"))
}

func importText(done transfer.Imported) string {
	var b strings.Builder
	fmt.Fprintf(&b, "imported %s from %s", plural(done.Readings, "reading"), plural(done.Files, "file"))
	if done.Stream != "" {
		fmt.Fprintf(&b, " into stream %s", done.Stream)
	}
	if done.Before > 0 {
		fmt.Fprintf(&b, "; %s with %s had been imported earlier", plural(done.Before, "file"), plural(done.ReadingsBefore, "reading"))
	}
	return b.String() + "\n"
}

// sender returns a client that sends readings to the daemon, retrying for up to two minutes.
func (r *remote) sender() (*client.Client, error) {
	c := client.Config{Addresses: []string{r.base}, TLS: r.tls}
	if r.token != "" {
		c.Token = client.Token(r.token)
	}
	out, err := client.New(c)
	if err != nil {
		return nil, config.Usage(fmt.Errorf("%s: %w", r.flag, err))
	}
	return out, nil
}

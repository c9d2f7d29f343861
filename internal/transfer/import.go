package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Target is the daemon that readings are imported to. It is called by several
// goroutines. A *client.Client is one.
type Target interface {
	Send(ctx context.Context, r client.Request) (client.Result, error)
}

// ImportConfig says what to import.
type ImportConfig struct {
	Paths   []string     // of files, and of folders with files
	Format  files.Format // empty: determined by the file name
	Options files.Options
	Stream  string
	Daemon  string // the daemon with the stream, to distinguish imports

	StateDir string // has a state file for each file that was imported, completely or in part
	Again    bool   // import files again that were imported completely before

	Show func(ImportProgress) // called by one goroutine at a time, often
	// Refused is called for rows that cannot be read, and for readings that the daemon refused (it
	// lists at most 100 per request); by one goroutine at a time.
	Refused func(BadRow)
	Skipped func(path string, readings int64) // called for files that were imported before
}

// ImportProgress is the progress of an import.
type ImportProgress struct {
	File     string
	Done     int // files
	Files    int
	Share    float64 // of the file that was read; 0: unknown
	Readings int64   // stored, in this run and interrupted ones of the same files
	Refused  int64
}

// A BadRow is a row of a file that was not stored.
type BadRow struct {
	Path    string
	Line    int64 // from 1; of Parquet, the row
	Message string
}

// Imported is the result of an import.
type Imported struct {
	Stream         string `json:"stream"`
	Files          int    `json:"files"`
	Before         int    `json:"before"`          // how many of these files were imported before
	Readings       int64  `json:"readings"`        // of the other files
	ReadingsBefore int64  `json:"readings_before"` // of the files that were imported before
	Refused        int64  `json:"refused"`         // rows, of all files
	Continued      bool   `json:"continued"`       // an earlier run had begun a file
}

// A chunk has the readings of one request. Its number and content depend only on the file.
type chunk struct {
	number   int
	readings []telemetry.Reading
	lines    []int64 // of the readings
	bytes    int
	bad      []BadRow
}

// Maximum rows and estimated bytes of a chunk. A daemon accepts twice as many rows, and 8 MiB.
const (
	chunkRows  = 5000
	chunkBytes = 1 << 20
	// inFlight is how many requests are sent concurrently.
	inFlight = 4
)

// Import sends the readings of files to a daemon. If it is interrupted, another call continues it:
// acknowledged chunks are recorded, and unacknowledged ones have an idempotency key that the
// daemon remembers for 15 minutes.
func Import(ctx context.Context, to Target, cfg ImportConfig) (done Imported, err error) {
	paths, err := cfg.expand()
	if err != nil {
		return Imported{}, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return Imported{}, fmt.Errorf("create the folder for the state of imports: %w", err)
	}
	done = Imported{Stream: cfg.Stream, Files: len(paths)}
	for i, path := range paths {
		one := &fileImport{cfg: &cfg, to: to, path: path, total: done}
		one.total.Files = i // done so far
		if err := one.run(ctx, len(paths)); err != nil {
			return one.sum(done), fmt.Errorf("import %s: %w", path, err)
		}
		done = one.sum(done)
	}
	return done, nil
}

// expand returns the files; those in folders are sorted by name.
func (c *ImportConfig) expand() (all []string, err error) {
	for _, path := range c.Paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("find what to import: %w", err)
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("%s is a pipe or a device; only files and folders can be imported, since an interrupted import reads them again", path)
			}
			if _, err := c.formatOf(path); err != nil {
				return nil, err
			}
			all = append(all, path)
			continue
		}
		before := len(all)
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			hidden := strings.HasPrefix(d.Name(), ".") && name != path
			switch {
			case err != nil:
				return err
			case hidden && d.IsDir():
				return fs.SkipDir
			case hidden || d.IsDir():
				return nil
			}
			if _, err := c.formatOf(name); err == nil {
				all = append(all, name)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find what to import: %w", err)
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s has no file to import, whose name ends in %s", path, strings.Join(files.Endings(), ", "))
		}
	}
	return all, nil
}

func (c *ImportConfig) formatOf(path string) (files.Format, error) {
	if c.Format != "" {
		return c.Format, nil
	}
	if f, ok := files.FormatOf(filepath.Base(path)); ok {
		return f, nil
	}
	return "", fmt.Errorf("%s: the end of its name does not tell its format; known are %s, each also with .gz or .zst; or give --format", path, strings.Join(files.Endings(), ", "))
}

// A fileImport is the import of one file.
type fileImport struct {
	cfg   *ImportConfig
	to    Target
	path  string
	total Imported // of the files before

	mu    sync.Mutex // for the state, and the callbacks
	state *progress
	share func() float64
}

// sum adds the file to what was imported before.
func (f *fileImport) sum(done Imported) Imported {
	if f.state != nil {
		done.Refused += f.state.Refused
		done.Continued = done.Continued || f.state.continued
		if f.state.skipped {
			done.Before++
			done.ReadingsBefore += f.state.Readings
		} else {
			done.Readings += f.state.Readings
		}
	}
	return done
}

func (f *fileImport) run(ctx context.Context, all int) error {
	format, err := f.cfg.formatOf(f.path)
	if err != nil {
		return err
	}
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if f.state, err = f.cfg.openProgress(file, info.Size()); err != nil {
		return err
	}
	if f.state.Complete {
		f.state.skipped = true
		f.cfg.Skipped(f.path, f.state.Readings)
		return nil
	}
	options, err := f.options(format)
	if err != nil {
		return err
	}
	in := &countingReader{File: file}
	f.share = func() float64 { return float64(in.n.Load()) / float64(max(1, info.Size())) }
	chunks := cut(files.Read(format, in, info.Size(), options), f.path)
	if err := f.send(ctx, chunks, all); err != nil {
		return err
	}
	f.state.Complete = true
	return f.state.save()
}

// options returns the import's options; for a CSV file written by an export, they include its
// tags.
func (f *fileImport) options(format files.Format) (files.Options, error) {
	o := f.cfg.Options
	if format != files.CSV || len(o.Tags) > 0 {
		return o, nil
	}
	folder := filepath.Dir(filepath.Dir(f.path)) // above day=2026-11-22
	text, err := os.ReadFile(filepath.Join(folder, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	var m manifest
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return o, fmt.Errorf("read which columns are tags: %w", err)
	}
	o.Tags = m.Columns.Tags()
	return o, nil
}

// countingReader counts the bytes that were read.
type countingReader struct {
	*os.File

	n atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// cut divides the rows of a file into chunks.
func cut(rows files.Rows, path string) iter.Seq2[*chunk, error] {
	return func(yield func(*chunk, error) bool) {
		now := &chunk{}
		for row, err := range rows {
			if err != nil {
				yield(nil, err)
				return
			}
			if row.Err != nil {
				now.bad = append(now.bad, BadRow{path, row.Line, row.Err.Error()})
			} else {
				now.readings = append(now.readings, row.Reading)
				now.lines = append(now.lines, row.Line)
				now.bytes += sizeOf(&row.Reading)
			}
			if len(now.readings)+len(now.bad) < chunkRows && now.bytes < chunkBytes {
				continue
			}
			if !yield(now, nil) {
				return
			}
			now = &chunk{number: now.number + 1}
		}
		if len(now.readings)+len(now.bad) > 0 {
			yield(now, nil)
		}
	}
}

// sizeOf estimates the bytes of a reading as JSON.
func sizeOf(r *telemetry.Reading) int {
	n := 64 + len(r.Sensor)
	for i := range r.Fields {
		n += 24 + len(r.Fields[i].Name) + len(r.Fields[i].Value.Text())
	}
	for i := range r.Tags {
		n += 8 + len(r.Tags[i].Name) + len(r.Tags[i].Value)
	}
	return n
}

// send sends the chunks that were not acknowledged before.
func (f *fileImport) send(parent context.Context, chunks iter.Seq2[*chunk, error], all int) error {
	group, ctx := errgroup.WithContext(parent)
	group.SetLimit(inFlight)
	var readErr error
	for c, err := range chunks {
		if readErr = err; err != nil || ctx.Err() != nil {
			break
		}
		f.mu.Lock()
		known := f.state.has(c.number)
		if known {
			f.state.continued = true
			f.show(all)
		}
		f.mu.Unlock()
		if known {
			continue
		}
		group.Go(func() error { return f.sendOne(ctx, c, all) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if readErr != nil {
		return readErr
	}
	return parent.Err()
}

// sendOne sends a chunk, and records that it is acknowledged.
func (f *fileImport) sendOne(ctx context.Context, c *chunk, all int) error {
	var result client.Result
	if len(c.readings) > 0 {
		var err error
		result, err = f.to.Send(ctx, client.Request{Readings: c.readings, Stream: f.cfg.Stream, Key: f.state.key(c.number)})
		var refused *client.RefusedError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	for _, one := range result.Refused {
		c.bad = append(c.bad, BadRow{f.path, c.lines[one.Index], one.Message})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortStableFunc(c.bad, func(a, b BadRow) int { return int(a.Line - b.Line) })
	for _, one := range c.bad {
		f.cfg.Refused(one)
	}
	f.state.Readings += int64(result.Accepted)
	f.state.Refused += int64(len(c.bad) - len(result.Refused) + result.Rejected)
	f.state.add(c.number)
	if err := f.state.save(); err != nil {
		return err
	}
	f.show(all)
	return nil
}

// show needs mu.
func (f *fileImport) show(all int) {
	f.cfg.Show(ImportProgress{
		File: f.path, Done: f.total.Files, Files: all, Share: f.share(),
		Readings: f.total.Readings + f.state.Readings, Refused: f.total.Refused + f.state.Refused,
	})
}

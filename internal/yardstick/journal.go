package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	journalWriters = 4
	journalKept    = 256 << 20 // bytes, so that what is written is not what the disk takes
)

// journal measures what appending costs without the disk: files whose Sync does
// nothing.
func (y *yardstick) journal(ctx context.Context) ([]row, error) {
	readings, err := journalBatch(newFleet(linesOf))
	if err != nil {
		return nil, err
	}
	var runs, rates, encoded []float64
	for i := range y.pairs {
		y.note("journal %d of %d\n", i+1, y.pairs)
		bytes, batches, took, err := y.journalRun(ctx, readings)
		if err != nil {
			return nil, err
		}
		runs = append(runs, float64(bytes)/took.Seconds()/1e9)
		rates = append(rates, float64(batches*linesOf)/took.Seconds())
		encoded = append(encoded, float64(batches)*float64(readings.EncodedSize())/took.Seconds()/1e9)
		y.note("  %.2f GB/s\n", runs[i])
	}
	r := newRow("journal append without fsync", ">= 1 GB/s", "GB/s", 2, runs)
	r.remark("bytes in the files, compressed; %.2f GB/s before that", median(encoded))
	r.remark("%s readings/s of ten fields and ten tags, %d a batch, %d writers; segments trimmed to %d MiB, in the page cache", thousands(median(rates), 0), linesOf, journalWriters, journalKept/mib)
	return []row{r}, nil
}

// journalBatch is a step as the door would hand it on.
func journalBatch(f *fleet) (*batch.Batch, error) {
	b := batch.NewBuilder(time.Now())
	for i := range f.hosts {
		h := &f.hosts[i]
		b.Begin(collection, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(h.key))
		b.Time(somewhen().UnixMilli())
		for t, name := range tagNames {
			b.Tag([]byte(name), []byte(h.tags[t]))
		}
		for n, value := range h.values[0] {
			b.Int([]byte(fieldNames[n]), value)
		}
		if refusal := b.End(); refusal != nil {
			return nil, fmt.Errorf("make a batch: %w", refusal)
		}
	}
	return b.Batch(), nil
}

func (y *yardstick) journalRun(ctx context.Context, readings *batch.Batch) (bytes, batches int64, took time.Duration, err error) {
	dir, err := os.MkdirTemp(y.dir, "journal-")
	if err != nil {
		return 0, 0, 0, fmt.Errorf("make a directory for the journal: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files := &unsynced{}
	j, err := journal.Open(journal.Config{
		Dir: dir, Session: batch.NewSession(), Files: files,
		Streams: map[string]journal.Stream{collection: {Storage: "bucket", Target: collection, Granularity: time.Hour}},
	})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	before, start := files.written.Load(), time.Now()
	s := newStretch(start, y.time)
	writers, under := errgroup.WithContext(ctx)
	for range journalWriters {
		writers.Go(func() error {
			for {
				if _, ok := s.take(under); !ok {
					return nil
				}
				view := readings.View(nil) // the batch belongs to the journal then
				if _, err := j.Append(under, &view, batch.Request{Want: telemetry.Journaled}); err != nil {
					return err
				}
				if end := j.End(); end > journalKept {
					j.Trim(end - journalKept)
				}
			}
		})
	}
	if err := writers.Wait(); err != nil {
		return 0, 0, 0, fmt.Errorf("append to the journal: %w", err)
	}
	return files.written.Load() - before, s.given(), time.Since(start), context.Cause(ctx)
}

// unsynced is files in the page cache that are never made durable, and counts
// what is written. It implements journal.Files.
type unsynced struct{ written atomic.Int64 }

type unsyncedFile struct {
	*os.File
	written *atomic.Int64
}

func (unsyncedFile) Sync() error { return nil }

func (f unsyncedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	f.written.Add(int64(n))
	return n, err
}

func (f unsyncedFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (u *unsynced) open(name string, flag int) (journal.File, error) {
	f, err := os.OpenFile(filepath.Clean(name), flag, 0o600)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f, &u.written}, nil
}

func (*unsynced) MakeDir(dir string) error { return os.MkdirAll(dir, 0o750) }

func (u *unsynced) Create(name string) (journal.File, error) {
	return u.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (u *unsynced) Open(name string, _ bool) (journal.File, error) { return u.open(name, os.O_RDWR) }
func (*unsynced) Remove(name string) error                         { return os.Remove(name) }
func (*unsynced) Rename(from, to string) error                     { return os.Rename(from, to) }
func (*unsynced) SyncDir(string) error                             { return nil }

func (*unsynced) List(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Space is unknown, so the journal heeds its own limit alone.
func (*unsynced) Space(string) (free, total uint64, err error) { return 0, 0, nil }

// Lock is not needed: the directory is ours alone.
func (*unsynced) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	journalWriters = 4
	journalKept    = 256 << 20 // bytes, so that what is written is not what the disk takes
)

// journal measures what appending costs without the disk: in files whose Sync
// does nothing, and in memory alone, so that the share of the file system shows.
func (y *yardstick) journal(ctx context.Context) ([]row, error) {
	readings, err := journalBatch(newFleet(linesOf))
	if err != nil {
		return nil, err
	}
	var onFiles, inMemory []appended
	for i := range y.pairs {
		y.note("journal %d of %d\n", i+1, y.pairs)
		sides := []func() error{
			func() error {
				files := &unsynced{}
				return y.journalSide(ctx, readings, "files", journalFiles{files, &files.written}, &onFiles)
			},
			func() error {
				files := newMemoryFiles()
				return y.journalSide(ctx, readings, "memory", journalFiles{files, &files.written}, &inMemory)
			},
		}
		for n := range sides {
			if err := sides[(n+i)%len(sides)](); err != nil {
				return nil, err
			}
		}
	}
	return []row{journalRow(onFiles, inMemory)}, nil
}

func (y *yardstick) journalSide(ctx context.Context, readings *batch.Batch, where string, files journalFiles, into *[]appended) error {
	a, err := y.journalRun(ctx, readings, files)
	if err != nil {
		return err
	}
	y.note("  %s: %.2f GB/s, %.2f us CPU a reading\n", where, a.Bytes, a.CPU)
	*into = append(*into, a)
	return nil
}

func journalRow(onFiles, inMemory []appended) row {
	bytes := func(a *appended) float64 { return a.Bytes }
	cpu := func(a *appended) float64 { return a.CPU }
	r := newRow("journal append without fsync: bytes written in its files", ">= 1 GB/s", "GB/s", 2, apply(onFiles, bytes))
	r.remark("%s readings/s of ten fields and ten tags, %.0f bytes and %.2f us CPU a reading",
		thousands(median(apply(onFiles, func(a *appended) float64 { return a.Rate })), 0), median(apply(onFiles, func(a *appended) float64 { return a.Size })), median(apply(onFiles, cpu)))
	r.remark("in memory instead of files: %.2f GB/s, %.2f us CPU a reading", median(apply(inMemory, bytes)), median(apply(inMemory, cpu)))
	r.remark("%d readings a batch, %d writers; segments trimmed to %d MiB, in the page cache", linesOf, journalWriters, journalKept/mib)
	return r
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

// An appended is what came of appending for a while.
type appended struct {
	Bytes float64 // written, in GB a second
	Rate  float64 // readings a second
	Size  float64 // bytes a reading
	CPU   float64 // microseconds of this process a reading, the kernel's part in it
}

// journalFiles is where a journal writes, and how many bytes it wrote there.
type journalFiles struct {
	journal.Files
	written *atomic.Int64
}

func (y *yardstick) journalRun(ctx context.Context, readings *batch.Batch, files journalFiles) (a appended, err error) {
	dir, err := os.MkdirTemp(y.dir, "journal-")
	if err != nil {
		return a, fmt.Errorf("make a directory for the journal: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	j, err := journal.Open(journal.Config{
		Dir: dir, Session: batch.NewSession(), Files: files.Files,
		Streams: map[string]journal.Stream{collection: {Storage: "bucket", Target: collection, Granularity: time.Hour}},
	})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	runtime.GC() // what the run before left is not this one's
	before, err := machine.CPU(os.Getpid())
	if err != nil {
		return a, err
	}
	written, start := files.written.Load(), time.Now()
	batches, err := appendFor(ctx, j, readings, y.time)
	if err != nil {
		return a, err
	}
	bytes, took := float64(files.written.Load()-written), time.Since(start).Seconds()
	after, err := machine.CPU(os.Getpid())
	if err != nil {
		return a, err
	}
	n := batches * linesOf
	return appended{Bytes: bytes / took / 1e9, Rate: float64(n) / took, Size: bytes / float64(n), CPU: per(after-before, n)}, nil
}

// appendFor appends the batch again and again, and trims what would be stored,
// and returns how often.
func appendFor(ctx context.Context, j *journal.Journal, readings *batch.Batch, duration time.Duration) (batches int64, err error) {
	s := newStretch(time.Now(), duration)
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
		return 0, fmt.Errorf("append to the journal: %w", err)
	}
	return s.given(), context.Cause(ctx)
}

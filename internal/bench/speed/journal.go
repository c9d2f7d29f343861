package speed

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	journalWriters = 4
	journalKept    = 256 << 20 // bytes, few enough that the kernel does not write them to disk
)

// unsynced is the journal's regular files without syncing.
type unsynced struct{ journal.Files }

type unsyncedFile struct{ journal.File }

func (unsyncedFile) Sync() error { return nil }

func (u unsynced) Create(name string) (journal.File, error) {
	f, err := u.Files.Create(name)
	return unsyncedFile{f}, err
}

func (u unsynced) Open(name string, write bool) (journal.File, error) {
	f, err := u.Files.Open(name, write)
	return unsyncedFile{f}, err
}

func (unsynced) SyncDir(string) error { return nil }

// journal measures what appending costs without the disk: Sync does nothing.
func (t *trial) journal(ctx context.Context) {
	readings := journalBatch(newHosts(linesOf))
	for i := range t.lab.Repeats {
		t.lab.Step("journal %d of %d", i+1, t.lab.Repeats)
		t.journalOnce(ctx, readings)
	}
}

// journalBatch is a step as ingest passes it on.
func journalBatch(hosts hosts) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	for i, r := range hosts.step(0, time.Now()) {
		b.Begin(collection, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(r.Sensor))
		b.Time(r.Time.UnixMilli())
		for _, t := range r.Tags {
			b.Tag([]byte(t.Name), []byte(t.Value))
		}
		for _, f := range r.Fields {
			b.Add(f)
		}
		if refusal := b.End(); refusal != nil {
			bench.Checkf(refusal, "make a batch")
		}
	}
	return b.Batch()
}

func (t *trial) journalOnce(ctx context.Context, readings *batch.Batch) {
	dir := bench.Must(os.MkdirTemp(t.lab.Dir, "journal-"))
	j := bench.Must(journal.Open(journal.Config{
		Dir: dir, Session: batch.NewSession(), Files: unsynced{journal.Disk()},
		Streams: map[string]journal.Stream{collection: {Storage: "bucket", Target: collection, Granularity: time.Hour}},
	}))
	runtime.GC() // clears what the previous run left
	before := bench.Must(machine.CPU(os.Getpid()))
	begin, start := j.End(), time.Now()
	var written atomic.Int64 // batches
	bench.Together(ctx, journalWriters, func(ctx context.Context, _ int) {
		for ; time.Since(start) < t.length; written.Add(1) {
			view := readings.View(nil) // the journal takes ownership
			bench.Must(j.Append(ctx, &view, batch.Request{Want: telemetry.Journaled}))
			if end := j.End(); end > journalKept {
				j.Trim(end - journalKept)
			}
		}
	})
	bytes, took := float64(j.End()-begin), time.Since(start).Seconds()
	after := bench.Must(machine.CPU(os.Getpid()))
	bench.Check(errors.Join(j.Close(), os.RemoveAll(dir)))
	n := float64(written.Load() * linesOf)
	const row = "page cache"
	t.lab.Row("journal", row, bytes/took, n/took, bytes/n, (after-before).Seconds()/n)
}

package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestFailedWritesLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(longer(20, 500)) {
		random := rand.New(rand.NewPCG(seed, 9))
		files, l := faulttest.NewFiles(seed), newLedger()
		for life := range 3 {
			j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life), nil))
			require.NoError(t, err)
			var producers, consumers sync.WaitGroup
			done := make(chan struct{})
			consumers.Go(func() { l.consume(j, seed, done) })
			for range 8 {
				if random.IntN(2) == 0 {
					files.FailWrite(syscall.ENOSPC, 1+random.IntN(4))
				}
				for i := range uint64(3) {
					producers.Go(func() { l.produce(j, seed*3+i, 6) })
				}
				producers.Wait()
			}
			next := files.PowerCut()
			close(done)
			consumers.Wait()
			_ = j.Close() // on a dead disk
			files = next
		}
		j := open(t, fakeConfig(files, "last", nil))
		l.keys = nil // without room for them, those of deleted segments are in memory only until there is
		found := l.check(j)
		assert.True(t, found.clean(), "seed %d: %+v", seed, found)
		assert.Positive(t, found.acked)
	}
}

func TestGivingUpWhatIsDamagedSurvivesALossOfPower(t *testing.T) {
	t.Parallel()
	whole, want := closedJournal(t, 1)
	for _, name := range segmentsOf(whole) {
		for _, at := range []int64{10, int64(len(whole.Bytes(name)) / 2)} {
			for n := 0; ; n++ {
				disk := whole.Clone()
				disk.Flip(name, at, 1)
				disk.CutAfter(n)
				cfg := fakeConfig(disk, "second", nil)
				cfg.AcceptLoss = true
				j, err := journal.Open(cfg)
				if err == nil {
					_ = j.Close()
				}
				disk = disk.PowerCut()
				cfg.Files, cfg.Session = disk, "third"
				j, again := journal.Open(cfg)
				require.NoError(t, again, "%s at %d after %d operations", name, at, n)
				assert.GreaterOrEqual(t, len(follow(t, j, j.Oldest())), len(want)-6)
				assert.NotNil(t, disk.Bytes(name+".corrupt"))
				require.NoError(t, j.Close())
				if err == nil {
					break // everything was done before the power went
				}
			}
		}
	}
}

func TestALaterReleaseIsNotMistakenForDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, config(dir, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	require.NoError(t, j.Close())
	name := filepath.Join(dir, fmt.Sprintf("%020d.journal", 0))
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	content[4]++
	journal.SealHead(content)
	require.NoError(t, os.WriteFile(name, content, 0o640))
	cfg := config(dir, "second")
	cfg.AcceptLoss = true
	_, err = journal.Open(cfg)
	assert.ErrorContains(t, err, "version 3; this release knows only 2")
}

// Not parallel, for it looks at the whole heap.
func TestAKeyTakesLittleMemory(t *testing.T) {
	const n = 30_000
	cfg := config(t.TempDir(), "first")
	cfg.TailBytes = 1
	j := open(t, cfg)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for w := range 100 {
		all.Go(func() {
			for i := range n / 100 {
				_, err := j.Append(context.Background(), makeBatch("readings", 0, 1), batch.Request{
					Want: telemetry.Journaled, Key: fmt.Sprint(w, "-", i), Answer: []byte(`{"accepted":1}`),
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(j)
	perKey := (int(after.HeapAlloc) - int(before.HeapAlloc)) / n
	t.Logf("%d bytes a key", perKey)
	assert.Less(t, perKey, 150) // just after the map has grown
	assert.Equal(t, n, j.Status().Keys)
}

func TestARecordThatHoldsNoBatchIsDamage(t *testing.T) {
	t.Parallel()
	for _, which := range []int{2, 5} { // the last one, too: it was written to its end
		files, records := closedJournal(t, 1)
		name := segmentsOf(files)[0]
		whole := files.Bytes(name)
		start := bytes.Index(whole, []byte{0x1d, 0x7b, 0x9a, 0x6e})
		at := start + int(records[which].Position-records[0].Position)
		for i := range 16 {
			whole[at+journal.HeaderSize+i] = 0xff
		}
		journal.SealRecord(whole, at, records[which].Batch.Session)
		files.SetBytes(name, whole)

		report, err := journal.Inspect(fakeDir, files)
		require.NoError(t, err)
		assert.True(t, report.Damaged())
		cfg := fakeConfig(files, "second", nil)
		_, err = journal.Open(cfg)
		var damage *journal.CorruptionError
		require.ErrorAs(t, err, &damage)
		assert.Equal(t, records[which].Position, damage.Position)
		assert.Contains(t, damage.Wrong, "holds no batch")
		cfg.AcceptLoss = true
		j := open(t, cfg)
		want := append(slices.Clone(records[:which]), records[which+1:]...)
		assert.Equal(t, numbers(want), numbers(follow(t, j, j.Oldest())))
		assert.EqualValues(t, len(numbers(want)), j.Taken())
	}
}

func TestWhatWasGivenUpNeverCoversWhatComesNext(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		whole, records := closedJournal(t, 1)
		if !marked {
			whole.SetBytes(filepath.Join(fakeDir, "mark"), nil) // as old as can be
		}
		names := segmentsOf(whole)
		last := whole.Bytes(names[len(names)-1])
		for at := 0; at < len(last); at += longer(9, 1) {
			disk := whole.Clone()
			disk.Flip(names[len(names)-1], int64(at), uint(at)%8)
			cfg := fakeConfig(disk, "second", nil)
			cfg.AcceptLoss = true
			j, err := journal.Open(cfg)
			require.NoError(t, err)
			begin := j.End()
			mustAppend(t, j, makeBatch("readings", 900, 3))
			require.NoError(t, j.Close())
			report, err := journal.Inspect(fakeDir, disk)
			require.NoError(t, err)
			for _, g := range report.GivenUp {
				assert.LessOrEqual(t, g.To, begin)
			}
			cfg.Session, cfg.AcceptLoss = "third", false
			j, err = journal.Open(cfg)
			require.NoError(t, err)
			left := follow(t, j, j.Oldest())
			assert.Equal(t, []int{900, 901, 902}, numbers(left[len(left)-1:]), "byte %d", at)
			assert.GreaterOrEqual(t, len(left), len(records)-6)
			require.NoError(t, j.Close())
		}
	}
}

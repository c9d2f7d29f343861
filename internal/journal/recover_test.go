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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestRecordsSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, config(dir, "first"))
	for i := range 10 {
		mustAppend(t, j, makeBatch("readings", i*3, 3))
	}
	records := follow(t, j, j.Oldest())
	assert.Equal(t, upTo(30), numbers(records))
	assert.EqualValues(t, 30, j.Taken())
	require.NoError(t, j.Close())

	j = open(t, config(dir, "second"))
	mustAppend(t, j, makeBatch("readings", 30, 2))
	records = follow(t, j, j.Oldest())
	require.Equal(t, upTo(32), numbers(records))
	for i, r := range records[:10] {
		assert.Equal(t, "first", r.Batch.Session)
		assert.True(t, r.Batch.Recovered)
		assert.EqualValues(t, 1+3*i, r.Batch.FirstSeq)
		assert.Equal(t, streams()["readings"].Granularity, r.Batch.Granularity(r.Batch.SeriesAt(0).Stream))
	}
	last := records[10].Batch
	assert.Equal(t, "second", last.Session)
	assert.False(t, last.Recovered)
	assert.EqualValues(t, 1, last.FirstSeq)
	require.Len(t, j.Unapplied(), 1)
	assert.EqualValues(t, 30, j.Unapplied()[0].Readings)
	assert.Equal(t, streams()["readings"], j.Unapplied()[0].Settings)
	assert.EqualValues(t, 32, j.Taken())

	j.Trim(records[3].Position)
	require.NoError(t, j.Close())
	j = open(t, config(dir, "third"))
	assert.Equal(t, upTo(32)[9:], numbers(follow(t, j, j.Oldest())))
	assert.EqualValues(t, 23, j.Taken())
}

// TestAJournalOfAnEarlierReleaseIsRead opens the folder of an earlier release that
// was killed: 24 requests of ten readings each and a key, in two sessions, of which
// the first nine requests were stored.
func TestAJournalOfAnEarlierReleaseIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/recorded")))
	report, err := journal.Inspect(dir, nil)
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	assert.Len(t, report.Segments, 4)
	cfg := config(dir, "next")
	cfg.KeyWindow = 100 * 365 * 24 * time.Hour
	j := open(t, cfg)
	left := []journal.Unapplied{
		{Session: "life0", Stream: "events", Settings: streams()["events"], Readings: 20},
		{Session: "life0", Stream: "readings", Settings: streams()["readings"], Readings: 10},
		{Session: "life1", Stream: "readings", Settings: streams()["readings"], Readings: 60},
		{Session: "life1", Stream: "events", Settings: streams()["events"], Readings: 60},
	}
	assert.Equal(t, left, j.Unapplied())
	assert.Equal(t, left, report.Unapplied)
	records := follow(t, j, j.Oldest())
	assert.Equal(t, upTo(240)[90:], numbers(records))
	assert.EqualValues(t, 91, records[0].Batch.FirstSeq)
	assert.True(t, records[0].Batch.Recovered)
	assert.Equal(t, "reading 90", records[0].Batch.Reading(0).Fields[1].Value.Text())
	for n := 0; n < 240; n += 10 {
		receipt, err := j.Repeat(t.Context(), batch.Request{Want: telemetry.Journaled, Key: fmt.Sprint("key ", n), BodyHash: uint64(n)})
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint("answer ", n), string(receipt.Answer))
	}
	mustAppend(t, j, makeBatch("readings", 240, 10))
	assert.Equal(t, upTo(250)[90:], numbers(follow(t, j, j.Oldest())))
}

func TestFailedWritesLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(longer(20, 500)) {
		random := rand.New(rand.NewPCG(seed, 9))
		files, l := faulttest.NewFiles(seed), newLedger()
		for life := range 3 {
			j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life)))
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
		j := open(t, fakeConfig(files, "last"))
		l.keys = nil // without room for them, those of deleted segments are in memory only until there is
		found := l.check(j)
		assert.True(t, found.clean(), "seed %d: %+v", seed, found)
		assert.Positive(t, found.acked)
	}
}

func TestGivingUpDamageSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	whole, want := closedJournal(t, 1)
	for _, name := range segmentsOf(whole) {
		for _, at := range []int64{10, int64(len(whole.Bytes(name)) / 2)} {
			for n := 0; ; n++ {
				disk := whole.Clone()
				disk.Flip(name, at, 1)
				disk.CutAfter(n)
				cfg := fakeConfig(disk, "second")
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

func TestLaterFormatVersionIsNotDamage(t *testing.T) {
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

// Not parallel, because it measures the whole heap.
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

func TestRecordWithoutABatchIsDamage(t *testing.T) {
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
		cfg := fakeConfig(files, "second")
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

func TestGivenUpRangesNeverCoverNewRecords(t *testing.T) {
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
			cfg := fakeConfig(disk, "second")
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

func TestInspectWhileADaemonRuns(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	j := open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 0, 3))
	assertTaken(t, j, keyed("a", 1))
	mustAppend(t, j, makeBatch("events", 4, 2))
	j.Trim(follow(t, j, 0)[1].Position)
	require.NoError(t, j.Close())
	cfg.Session = "second"
	j = open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 6, 4))

	report, err := journal.Inspect(cfg.Dir, nil)
	require.NoError(t, err)
	assert.True(t, report.Marked)
	assert.Equal(t, j.Oldest(), report.Applied)
	assert.Equal(t, j.End(), report.End)
	assert.Equal(t, j.Status().Bytes, report.Bytes)
	assert.Empty(t, report.Problems)
	assert.False(t, report.Damaged())
	assert.Equal(t, 1, report.Keys)
	assert.False(t, report.Oldest.IsZero())
	require.Len(t, report.Segments, 2)
	first := report.Segments[0]
	assert.Equal(t, "first", first.Session)
	assert.Equal(t, 3, first.Records)
	assert.EqualValues(t, 6, first.Readings)
	assert.EqualValues(t, 1, first.FirstSeq)
	assert.EqualValues(t, 6, first.LastSeq)
	assert.Equal(t, first.End, report.Segments[1].Base)
	assert.Equal(t, []journal.Unapplied{
		{Session: "first", Stream: "readings", Settings: streams()["readings"], Readings: 1},
		{Session: "first", Stream: "events", Settings: streams()["events"], Readings: 2},
		{Session: "second", Stream: "readings", Settings: streams()["readings"], Readings: 4},
	}, report.Unapplied)
}

func TestInspectNamesEveryDamagedPlace(t *testing.T) {
	t.Parallel()
	files, records := closedJournal(t, 1)
	names := segmentsOf(files)
	files.Flip(names[0], int64(len(files.Bytes(names[0]))-1), 3)
	files.Flip(names[2], int64(len(files.Bytes(names[2]))-1), 3)
	report, err := journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	assert.True(t, report.Damaged())
	require.Len(t, report.Problems, 2)
	assert.Equal(t, names[0], report.Problems[0].File)
	assert.Equal(t, records[5].Position, report.Problems[0].Position)
	assert.Equal(t, names[2], report.Problems[1].File)
	assert.Equal(t, records[17].Position, report.Problems[1].Position)
	for _, p := range report.Problems {
		assert.Contains(t, p.Wrong, "checksum")
		assert.False(t, p.Torn)
	}
	cfg := fakeConfig(files, "second")
	_, err = journal.Open(cfg)
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, records[5].Position, damage.Position)
	assert.ErrorContains(t, err, "--journal-corruption=quarantine")

	cfg.AcceptLoss = true
	open(t, cfg)
	report, err = journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	assert.False(t, report.Damaged())
	require.Len(t, report.GivenUp, 2)
	assert.Equal(t, records[5].Position, report.GivenUp[0].From)
	assert.Equal(t, records[5].Next, report.GivenUp[0].To)
	assert.True(t, strings.HasSuffix(report.GivenUp[0].Copy, ".journal.corrupt"))
}

func TestAMissingSegmentIsDamage(t *testing.T) {
	t.Parallel()
	files, _ := closedJournal(t, 1)
	for i, name := range segmentsOf(files) {
		disk := files.Clone()
		require.NoError(t, disk.Remove(name))
		_, err := journal.Open(fakeConfig(disk, "second"))
		var damage *journal.CorruptionError
		require.ErrorAs(t, err, &damage, "segment %d", i)
		report, err := journal.Inspect(fakeDir, disk)
		require.NoError(t, err)
		assert.True(t, report.Damaged())
		cfg := fakeConfig(disk, "second")
		cfg.AcceptLoss = true
		j := open(t, cfg)
		assert.Len(t, follow(t, j, j.Oldest()), 12)
		mustAppend(t, j, makeBatch("readings", 0, 1))
		require.NoError(t, j.Close())
		j = open(t, fakeConfig(disk, "third"))
		assert.Len(t, follow(t, j, j.Oldest()), 13)
	}
}

func TestAMissingSegmentIsNamed(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 3))
	end := j.End()
	require.NoError(t, j.Close())
	name := segmentsOf(files)[0]
	require.NoError(t, files.Remove(name))

	report, err := journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	assert.Equal(t, fakeDir, report.Problems[0].File)

	cfg := fakeConfig(files, "second")
	_, err = journal.Open(cfg)
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, fakeDir, damage.File)
	assert.Zero(t, damage.Position)
	assert.Equal(t, end, damage.Durable)
	require.ErrorContains(t, err, fmt.Sprintf("the journal in %s is damaged: the segment that should hold positions 0 to %d is missing: %s, for",
		fakeDir, end, filepath.Base(name)))
	assert.ErrorContains(t, err, "--journal-corruption=quarantine")

	cfg.AcceptLoss = true
	j = open(t, cfg)
	assert.Equal(t, end, j.Status().GivenUpBytes)
	mustAppend(t, j, makeBatch("readings", 3, 1))
	j.Trim(j.End())
	require.NoError(t, j.Close())
	for _, name := range files.Names() {
		assert.NotContains(t, name, ".corrupt")
	}

	// A missing segment of which everything is stored is no damage.
	require.NoError(t, files.Remove(segmentsOf(files)[0]))
	j = open(t, fakeConfig(files, "third"))
	assert.Empty(t, follow(t, j, j.Oldest()))
}

func TestAMissingLastSegmentIsNamed(t *testing.T) {
	t.Parallel()
	files, records := closedJournal(t, 1)
	names := segmentsOf(files)
	require.NoError(t, files.Remove(names[2]))
	_, err := journal.Open(fakeConfig(files, "second"))
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, names[1], damage.File)
	require.ErrorContains(t, err, fmt.Sprintf("the next one, %s, is missing; it should hold positions %d to %d",
		filepath.Base(names[2]), records[12].Position, records[17].Next))
}

func FuzzSegment(f *testing.F) {
	files := faulttest.NewFiles(1)
	j, err := journal.Open(fakeConfig(files, "first"))
	if err != nil {
		f.Fatal(err)
	}
	mustAppend(f, j, makeBatch("readings", 0, 3))
	if err := j.Close(); err != nil {
		f.Fatal(err)
	}
	name := segmentsOf(files)[0]
	whole := files.Bytes(name)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, off := range []bool{false, true} {
			disk := faulttest.NewFiles(1)
			disk.SetBytes(name, content)
			cfg := fakeConfig(disk, "second")
			cfg.AcceptLoss = off
			j, err := journal.Open(cfg)
			if err != nil {
				continue
			}
			_, _ = walk(j, j.Oldest())
			mustAppend(t, j, makeBatch("readings", 0, 1))
			require.NoError(t, j.Close())
			_, err = journal.Inspect(fakeDir, disk)
			require.NoError(t, err)
		}
	})
}

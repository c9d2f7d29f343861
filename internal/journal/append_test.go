package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// appender is what both kinds of journal have.
type appender interface {
	Append(context.Context, *batch.Batch, batch.Request) (batch.Receipt, error)
}

func tryAppend(j appender, b *batch.Batch) error {
	_, err := j.Append(context.Background(), b, batch.Request{Want: telemetry.Journaled})
	return err
}

// assertRefused checks that a request was refused with this code.
func assertRefused(t *testing.T, err error, code string) {
	t.Helper()
	var e *telemetry.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, telemetry.Unavailable, e.Kind)
	assert.Equal(t, code, e.Code)
	assert.Positive(t, e.RetryAfter)
}

func TestASecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	j := open(t, cfg)
	cfg.Session = "second"
	_, err := journal.Open(cfg)
	require.ErrorIs(t, err, journal.ErrLocked)
	assert.ErrorContains(t, err, cfg.Dir)
	require.NoError(t, j.Close())
	open(t, cfg)
}

func TestASessionIsNeverUsedTwice(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "same")
	j := open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 0, 1))
	require.NoError(t, j.Close())
	_, err := journal.Open(cfg)
	assert.ErrorContains(t, err, "session same is in the journal already")
}

func TestAFullJournalRefusesUntilSomethingIsStored(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	cfg.MaxBytes, cfg.SegmentBytes = 1<<20, 64<<10
	j := open(t, cfg)
	var err error
	n := 0
	for ; err == nil && n < 100_000; n += 50 {
		err = tryAppend(j, makeBatch("readings", n, 50))
	}
	assertRefused(t, err, "journal_full")
	assert.ErrorContains(t, err, "--journal-max-bytes")
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 50)), "journal_full")
	assert.LessOrEqual(t, j.Status().Bytes, cfg.MaxBytes)
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Bytes <= 2*cfg.SegmentBytes }, 10*time.Second, time.Millisecond)
	mustAppend(t, j, makeBatch("readings", n, 1))
}

func TestFullDiskRefusesRequestsUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, how := range []string{"while writing", "while syncing nothing is left"} {
			files := faulttest.NewFiles(1)
			j := open(t, fakeConfig(files, "first"))
			mustAppend(t, j, makeBatch("readings", 0, 10))
			if how == "while writing" {
				files.FailWrite(syscall.ENOSPC, -1)
			} else {
				used := 0
				for _, name := range files.Names() {
					used += len(files.Bytes(name))
				}
				files.SetCapacity(int64(used + 100))
			}
			assertRefused(t, tryAppend(j, makeBatch("readings", 1000, 10)), "journal_disk_full")
			assertRefused(t, tryAppend(j, makeBatch("readings", 1000, 10)), "journal_disk_full")
			files.FailWrite(nil, 0)
			files.SetCapacity(0)
			require.Eventually(t, func() bool { return j.Err() == nil }, 10*time.Second, 10*time.Millisecond)
			mustAppend(t, j, makeBatch("readings", 10, 10))
			assert.Equal(t, upTo(20), numbers(follow(t, j, 0)))
			require.NoError(t, j.Close())
			j = open(t, fakeConfig(files.PowerCut(), "second"))
			assert.Equal(t, upTo(20), numbers(follow(t, j, 0)), "nothing from refused requests")
		}
	})
}

func TestDiskReserveStaysFree(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	files.SetCapacity(1 << 20)
	j := open(t, fakeConfig(files, "first"))
	var err error
	for range 1000 {
		if err = tryAppend(j, makeBatch("readings", 0, 20)); err != nil {
			break
		}
	}
	assertRefused(t, err, "journal_disk_full")
	free, _, _ := files.Space("")
	assert.NoError(t, j.Close(), "with %d bytes left", free)
}

func TestNothingIsAcceptedAfterAFailedFsync(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	require.NoError(t, j.Err())
	var err error
	for n := 0; telemetry.KindOf(err) != telemetry.UnknownOutcome; n++ {
		require.Less(t, n, 100)
		files.FailSync(syscall.EIO, 1) // may hit another file
		err = tryAppend(j, makeBatch("readings", 1, 1))
	}
	var e *telemetry.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "outcome_unknown", e.Code)
	assertRefused(t, tryAppend(j, makeBatch("readings", 2, 1)), "journal_failed")
	assertRefused(t, j.Err(), "journal_failed")
	assert.NotContains(t, numbers(follow(t, j, 0))[1:], 2)
	assert.NotEmpty(t, j.Status().Error)
}

func TestAStoppedJournalRefuses(t *testing.T) {
	t.Parallel()
	j := open(t, config(t.TempDir(), "first"))
	j.Stop()
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 1)), "stopping")
	assertRefused(t, j.Err(), "stopping")
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
}

func TestAnUnknownStreamIsNotFound(t *testing.T) {
	t.Parallel()
	j := open(t, config(t.TempDir(), "first"))
	assert.Equal(t, telemetry.NotFound, telemetry.KindOf(tryAppend(j, makeBatch("nowhere", 0, 1))))
}

func TestARequestLargerThanTheJournalIsRefused(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	cfg.MaxBytes = 1 << 20
	j := open(t, cfg)
	assert.Equal(t, telemetry.TooLarge, telemetry.KindOf(tryAppend(j, makeBatch("readings", 0, 20_000))))
	mustAppend(t, j, makeBatch("readings", 0, 1))
}

// gatedFiles holds back the syncs of segments.
type gatedFiles struct {
	journal.Files
	gate chan struct{}
}

type gatedFile struct {
	journal.File
	gate chan struct{}
}

func (g gatedFiles) Create(name string) (journal.File, error) {
	f, err := g.Files.Create(name)
	if err != nil || !isSegment(name) {
		return f, err
	}
	return &gatedFile{f, g.gate}, nil
}

func (g *gatedFile) Sync() error {
	<-g.gate
	return g.File.Sync()
}

func TestARequestThatEndsEarlyIsStillJournaled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		gate := make(chan struct{})
		cfg.Files = gatedFiles{cfg.Files, gate}
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var held memory
		_, err = j.Append(ctx, makeBatch("readings", 0, 3), batch.Request{Want: telemetry.Journaled, Memory: &held})
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
		assert.Empty(t, follow(t, j, 0), "not durable yet")
		require.NotNil(t, held.until)
		select {
		case <-held.until:
			t.Fatal("its memory is released before its readings are journaled")
		default:
		}
		grown := j.Grown(0)
		close(gate)
		<-grown
		assert.Equal(t, upTo(3), numbers(follow(t, j, 0)))
		<-held.until
		require.NoError(t, j.Close())
	})
}

// memory keeps until when it is held.
type memory struct {
	until    <-chan struct{}
	released time.Time
}

func (m *memory) Release()                          { m.released = time.Now() }
func (m *memory) ReleaseAfter(done <-chan struct{}) { m.until = done }

func TestFilesAreNotReadableByOtherUsers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, config(dir, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o007)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o007, e.Name())
	}
}

func TestOpenNamesInvalidSettings(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*journal.Config){
		"needs a directory": func(c *journal.Config) { c.Dir = "" },
		"session":           func(c *journal.Config) { c.Session = "" },
		"journal-max-bytes": func(c *journal.Config) { c.MaxBytes = 1000 },
		"segment size":      func(c *journal.Config) { c.SegmentBytes = 1 },
	} {
		cfg := config(t.TempDir(), "first")
		change(&cfg)
		_, err := journal.Open(cfg)
		assert.ErrorContains(t, err, says)
	}
}

func TestFullDiskIsReportedDuringACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := faulttest.NewFiles(1)
		cfg := fakeConfig(files, "first")
		gate := make(chan struct{})
		cfg.Files = gatedFiles{files, gate}
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		first := make(chan error, 1)
		go func() { first <- tryAppend(j, makeBatch("readings", 0, 1)) }()
		synctest.Wait()
		fillUp(files)
		<-time.After(2 * time.Second)
		began := time.Now()
		assertRefused(t, tryAppend(j, makeBatch("readings", 1, 1)), "journal_disk_full")
		assert.Zero(t, time.Since(began))
		close(gate)
		<-first
		require.NoError(t, j.Close())
	})
}

func TestRefusedRequestsTakeNoSpace(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	for range 50 {
		files.FailWrite(syscall.ENOSPC, -1)
		assertRefused(t, tryAppend(j, makeBatch("readings", 0, 10)), "journal_disk_full")
		files.FailWrite(nil, 0)
	}
	mustAppend(t, j, makeBatch("readings", 0, 1))
	held := 0
	for _, name := range segmentsOf(files) {
		held += len(files.Bytes(name))
	}
	assert.EqualValues(t, held, j.Status().Bytes)
}

func TestACommitIsNotLargerThanASegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := faulttest.NewFiles(1)
		cfg := fakeConfig(files, "first")
		gate := make(chan struct{})
		cfg.Files, cfg.SegmentBytes = gatedFiles{files, gate}, 16<<10
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { mustAppend(t, j, makeBatch("readings", 10*i, 10)) })
		}
		synctest.Wait()
		close(gate) // all of them but the first gathered by now
		all.Wait()
		for _, name := range segmentsOf(files) {
			assert.LessOrEqual(t, len(files.Bytes(name)), 17<<10, "with the header")
		}
		assert.Greater(t, len(segmentsOf(files)), 3)
		assert.ElementsMatch(t, upTo(1000), numbers(follow(t, j, 0)))
		require.NoError(t, j.Close())
	})
}

func TestFullSegmentIsDeletedOnceStored(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	cfg.SegmentBytes = 4 << 10
	j := open(t, cfg)
	for round := range 20 {
		mustAppend(t, j, makeBatch("readings", 100*round, 100))
		drain(t, j, 0)
		assert.Zero(t, j.Status().Bytes)
	}
	mustAppend(t, j, makeBatch("readings", 0, 7))
	require.NoError(t, j.Close())
	cfg.Files, cfg.Session = files.PowerCut(), "second"
	j = open(t, cfg)
	assert.Equal(t, upTo(7), numbers(follow(t, j, j.Oldest())))
}

func TestSegmentsAreDeletedDuringAppends(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.SegmentBytes = 4 << 10
	j := open(t, cfg)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 50 {
				mustAppend(t, j, makeBatch("readings", 0, 1+20*((i+k)%3)))
				j.Trim(j.End())
			}
		})
	}
	all.Wait()
	drain(t, j, 1)
	assert.Less(t, j.Status().Bytes, cfg.SegmentBytes)
}

func TestAnyRequestFitsWhenEverythingIsStored(t *testing.T) {
	t.Parallel()
	for _, fill := range []int{300, 2000} {
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		cfg.MaxBytes, cfg.SegmentBytes = 1<<20, 512<<10
		j := open(t, cfg)
		largest := 3000
		for tryAppend(j, makeBatch("readings", 0, largest+500)) == nil {
			largest += 500
			j.Trim(j.End())
			require.Eventually(t, func() bool { return j.Status().Segments <= 1 }, 10*time.Second, time.Millisecond)
		}
		for range 2 {
			for used := int64(0); used < 400<<10; used = j.Status().Bytes {
				mustAppend(t, j, makeBatch("readings", 0, fill))
			}
			drain(t, j, 1)
			mustAppend(t, j, makeBatch("readings", 0, largest))
			drain(t, j, 1)
		}
	}
}

func TestSegmentOfAFailedAttemptIsReplaced(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	j := open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 0, 100)) // all that goes into one segment
	left := filepath.Join(fakeDir, fmt.Sprintf("%020d.journal", j.End()))
	require.NotContains(t, files.Names(), left)
	files.SetBytes(left, []byte("half of a header"))
	mustAppend(t, j, makeBatch("readings", 100, 1))
	require.NoError(t, j.Close())
	cfg.Files, cfg.Session = files.PowerCut(), "second"
	assert.Equal(t, upTo(101), numbers(follow(t, open(t, cfg), 0)))
}

// fillUp leaves no byte of a disk free.
func fillUp(files *faulttest.Files) {
	used := 0
	for _, name := range files.Names() {
		used += len(files.Bytes(name))
	}
	files.SetCapacity(int64(used))
}

// killed returns a journal of some segments as it is found after its process was
// killed, and the numbers of its readings.
func killed(t *testing.T) (files *faulttest.Files, want []int) {
	t.Helper()
	files = faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	for i := range 60 {
		mustAppend(t, j, makeBatch("readings", 5*i, 5))
	}
	require.Greater(t, len(segmentsOf(files)), 3)
	return files.PowerCut(), upTo(300)
}

// drain tells a journal that everything is stored, and waits until no more than
// some segments are left.
func drain(t *testing.T, j *journal.Journal, segments int) {
	t.Helper()
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Segments <= segments }, 10*time.Second, time.Millisecond)
}

func TestAJournalOnAFullDiskOpensAndDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, want := killed(t)
		fillUp(files)
		j := open(t, fakeConfig(files, "second"))
		assert.Equal(t, want, numbers(follow(t, j, j.Oldest())))
		assertRefused(t, tryAppend(j, makeBatch("readings", 0, 1)), "journal_disk_full")
		// Half is stored when the process is killed again.
		half := follow(t, j, 0)[30]
		before := len(segmentsOf(files))
		j.Trim(half.Position)
		require.Eventually(t, func() bool { return len(segmentsOf(files)) < before }, 10*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return j.Err() == nil }, 10*time.Second, 10*time.Millisecond)

		files = files.PowerCut()
		fillUp(files)
		j = open(t, fakeConfig(files, "third"))
		left := numbers(follow(t, j, j.Oldest()))
		assert.Subset(t, left, want[150:])
		drain(t, j, 0)
		require.Eventually(t, func() bool { return j.Err() == nil }, 10*time.Second, 10*time.Millisecond)
		mustAppend(t, j, makeBatch("readings", 300, 1))
		require.NoError(t, j.Close())
		j = open(t, fakeConfig(files, "fourth"))
		assert.Equal(t, []int{300}, numbers(follow(t, j, j.Oldest())))
	})
}

// What a failed sync left behind is made durable without room for a new file.
func TestLastSegmentIsRewrittenInPlaceOnAFullDisk(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 5))
	files.FailSync(syscall.EIO, 1)
	require.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(tryAppend(j, makeBatch("readings", 5, 5))))
	require.NoError(t, j.Close())
	fillUp(files)
	j = open(t, fakeConfig(files, "second"))
	assert.Equal(t, upTo(10), numbers(follow(t, j, j.Oldest())))
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files.PowerCut(), "third"))
	assert.Equal(t, upTo(10), numbers(follow(t, j, j.Oldest())))
}

func TestAJournalOnAFullDiskCloses(t *testing.T) {
	t.Parallel()
	files, want := killed(t)
	fillUp(files)
	j := open(t, fakeConfig(files, "second"))
	j.Trim(follow(t, j, 0)[1].Position)
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files, "third"))
	assert.Equal(t, want[5:], numbers(follow(t, j, j.Oldest())), "the mark had its room")
	files.FailWrite(syscall.ENOSPC, -1)
	require.NoError(t, j.Close(), "an old mark is good enough")
}

func TestStoredSegmentsAreDeletedAtOpen(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	j.Trim(j.End())
	require.NoError(t, j.Close())
	require.Len(t, segmentsOf(files), 1)
	fillUp(files)
	j = open(t, fakeConfig(files, "second"))
	require.Eventually(t, func() bool { return len(segmentsOf(files)) == 0 }, 10*time.Second, time.Millisecond)
	assert.NoError(t, j.Err())
}

func TestCleanupIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, _ := killed(t)
		j := open(t, fakeConfig(files, "second"))
		files.FailWrite(syscall.ENOSPC, -1)
		failed := files.Failed()
		j.Trim(j.End())
		require.Eventually(t, func() bool { return files.Failed() > failed }, 10*time.Second, time.Millisecond)
		assert.NotEmpty(t, segmentsOf(files), "nothing is deleted before the mark says so")
		files.FailWrite(nil, 0)
		require.Eventually(t, func() bool { return len(segmentsOf(files)) == 0 }, 10*time.Second, time.Millisecond)
	})
}

func TestKeysAreSavedAfterTheirSegmentsOnAFullDisk(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	const n = 100
	for i := range n {
		assertTaken(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	require.Greater(t, len(segmentsOf(files)), 4)
	fillUp(files)
	drain(t, j, 1)
	require.NoError(t, j.Close())
	files = files.PowerCut()
	j = open(t, fakeConfig(files, "second"))
	for i := range n {
		assertRepeated(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
}

// A disk that another program fills as soon as there is room.
func TestJournalDrainsWithoutSpaceForKeys(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	cfg.Files = noKeyFiles{files}
	j := open(t, cfg)
	for i := range 100 {
		assertTaken(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	drain(t, j, 1)
	assert.Empty(t, keyFilesOf(files))
	assertRepeated(t, j, keyed("0", 0))
	require.NoError(t, j.Close())
	cfg.Files, cfg.Session = files, "second"
	j = open(t, cfg)
	assert.Less(t, j.Status().Keys, 50)
	assertTaken(t, j, keyed("0", 0))
}

// noKeyFiles has no room for files of keys.
type noKeyFiles struct{ *faulttest.Files }

func (f noKeyFiles) Create(name string) (journal.File, error) {
	if strings.HasSuffix(name, ".keys.tmp") {
		return nil, syscall.ENOSPC
	}
	return f.Files.Create(name)
}

func TestTemporaryFilesAreRemovedAtOpen(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	segment := fmt.Sprintf("%020d.journal", 0)
	for _, name := range []string{"mark.tmp", "lost.tmp", segment + ".keys.tmp", segment + ".corrupt.tmp", segment + ".tmp", "other.tmp"} {
		files.SetBytes(filepath.Join(fakeDir, name), []byte("half"))
	}
	open(t, fakeConfig(files, "first"))
	assert.Equal(t, []string{fakeDir + "/mark", fakeDir + "/other.tmp"}, files.Names())
}

// The clock stands still, so that the free space is measured only once.
func TestDiskReserveHoldsAtAnyRate(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	const capacity = 4 << 20
	files.SetCapacity(capacity)
	cfg := fakeConfig(files, "first")
	cfg.SegmentBytes = 1 << 20
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	j := open(t, cfg)
	var all sync.WaitGroup
	refused := make([]error, 8)
	for i := range refused {
		all.Go(func() {
			for refused[i] == nil {
				refused[i] = tryAppend(j, makeBatch("readings", 0, 20))
			}
		})
	}
	all.Wait()
	for _, err := range refused {
		assertRefused(t, err, "journal_disk_full")
	}
	assert.Zero(t, files.Failed(), "no write failed")
	free, _, _ := files.Space("")
	assert.Greater(t, free, uint64(capacity/16*9/10))
	assert.Less(t, free, uint64(capacity/16*11/10))
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 20)), "journal_disk_full")
}

// lines gathers what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// refuseMany appends until a request is refused, and some times more.
func refuseMany(t *testing.T, j *journal.Journal, code string) {
	t.Helper()
	var err error
	for n := 0; err == nil; n++ {
		require.Less(t, n, 100_000)
		err = tryAppend(j, makeBatch("readings", 0, 50))
	}
	for range 20 {
		assertRefused(t, err, code)
		err = tryAppend(j, makeBatch("readings", 0, 50))
	}
}

func TestFullJournalIsLoggedOncePerChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lines
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		cfg.MaxBytes, cfg.SegmentBytes, cfg.Logger = 1<<20, 64<<10, log.logger()
		j := open(t, cfg)
		for round := range 3 {
			assert.Equal(t, round, log.count("level=WARN"))
			refuseMany(t, j, "journal_full")
			assert.ErrorContains(t, j.Err(), "MongoDB is away or stores readings more slowly than they arrive")
			assert.Equal(t, round+1, log.count("the journal is full"))
			drain(t, j, 1)
			mustAppend(t, j, makeBatch("readings", 0, 1))
			assert.Equal(t, round, log.count("requests are accepted again"), "another one may be refused at once")
			<-time.After(5 * time.Second)
			mustAppend(t, j, makeBatch("readings", 0, 1))
			assert.Equal(t, round+1, log.count("requests are accepted again"))
		}
	})
}

func TestFullDiskIsLoggedOncePerChange(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct{ fill, free func(*faulttest.Files) }{
		"nothing can be written": {
			func(f *faulttest.Files) { f.FailWrite(syscall.ENOSPC, -1) },
			func(f *faulttest.Files) { f.FailWrite(nil, 0) },
		},
		"the reserve is all there is": {
			func(f *faulttest.Files) { f.SetCapacity(2 << 20) },
			func(f *faulttest.Files) { f.SetCapacity(0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log lines
				files := faulttest.NewFiles(1)
				cfg := fakeConfig(files, "first")
				cfg.SegmentBytes, cfg.Logger = 1<<20, log.logger()
				j := open(t, cfg)
				for round := range 2 {
					how.fill(files)
					refuseMany(t, j, "journal_disk_full")
					assert.Equal(t, round+1, log.count("the disk of the journal is full"))
					how.free(files)
					require.Eventually(t, func() bool { return tryAppend(j, makeBatch("readings", 0, 1)) == nil }, 10*time.Second, 10*time.Millisecond)
					<-time.After(5 * time.Second)
					mustAppend(t, j, makeBatch("readings", 0, 1))
					assert.Equal(t, round+1, log.count("requests are accepted again"))
					drain(t, j, 1)
				}
			})
		})
	}
}

func TestOneLargeRequestDoesNotMakeTheJournalUnready(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.MaxBytes, cfg.SegmentBytes = 1<<20, 64<<10
	j := open(t, cfg)
	for j.Status().Bytes < cfg.MaxBytes*7/8 {
		mustAppend(t, j, makeBatch("readings", 0, 50))
	}
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 4500)), "journal_full")
	assertRefused(t, j.Err(), "journal_full")
	mustAppend(t, j, makeBatch("readings", 0, 1))
	assert.NoError(t, j.Err(), "smaller requests are accepted")
	refuseMany(t, j, "journal_full")
	assertRefused(t, j.Err(), "journal_full")
	drain(t, j, 1)
	assert.NoError(t, j.Err())
}

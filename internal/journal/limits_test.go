package journal_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
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

// assertRefused checks that nothing was taken, for the reason code.
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

func TestWithoutTheLockTwoDaemonsGetIn(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	cfg.Faults = fault.Without(fault.Lock)
	open(t, cfg)
	cfg.Session = "second"
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
	cfg.Faults = fault.Without(fault.NewSession)
	open(t, cfg)
}

func TestAFullJournalRefusesUntilSomethingIsStored(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first", nil)
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
	require.NoError(t, j.Close())

	cfg.Session, cfg.Faults = "second", fault.Without(fault.Limit)
	j = open(t, cfg)
	for n := 0; j.Status().Bytes <= cfg.MaxBytes; n++ {
		require.Less(t, n, 1000)
		mustAppend(t, j, makeBatch("readings", 0, 200))
	}
}

func TestAFullDiskRefusesUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"while writing", "while syncing nothing is left"} {
		files := faulttest.NewFiles(1)
		j := open(t, fakeConfig(files, "first", nil))
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
		j = open(t, fakeConfig(files.PowerCut(), "second", nil))
		assert.Equal(t, upTo(20), numbers(follow(t, j, 0)), "nothing of what was refused")
	}
}

func TestAReserveOfTheDiskStaysFree(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	files.SetCapacity(1 << 20)
	j := open(t, fakeConfig(files, "first", nil))
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

func TestAJournalWhoseDiskFailedTakesNothingMore(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
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

func TestWhatWaitsForTheDiskIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
		gate := make(chan struct{})
		cfg.Files, cfg.MaxWaiting = gatedFiles{cfg.Files, gate}, 1
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		first := make(chan error, 1)
		go func() { first <- tryAppend(j, makeBatch("readings", 0, 1)) }()
		synctest.Wait()
		began := time.Now()
		assertRefused(t, tryAppend(j, makeBatch("readings", 1, 1)), "busy")
		assert.Equal(t, 10*time.Second, time.Since(began))
		close(gate)
		require.NoError(t, <-first)
		mustAppend(t, j, makeBatch("readings", 1, 1))
		require.NoError(t, j.Close())
	})
}

func TestARequestThatEndsEarlyIsStillJournaled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
		gate := make(chan struct{})
		cfg.Files = gatedFiles{cfg.Files, gate}
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = j.Append(ctx, makeBatch("readings", 0, 3), batch.Request{Want: telemetry.Journaled})
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
		assert.Empty(t, follow(t, j, 0), "not durable yet")
		grown := j.Grown(0)
		close(gate)
		<-grown
		assert.Equal(t, upTo(3), numbers(follow(t, j, 0)))
		require.NoError(t, j.Close())
	})
}

func TestFilesAreNotForOthers(t *testing.T) {
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

func TestWrongSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*journal.Config){
		"needs a directory":     func(c *journal.Config) { c.Dir = "" },
		"session":               func(c *journal.Config) { c.Session = "" },
		"journal-max-bytes":     func(c *journal.Config) { c.MaxBytes = 1000 },
		"segment size":          func(c *journal.Config) { c.SegmentBytes = 1 },
		"wait for their fsync":  func(c *journal.Config) { c.MaxWaiting = -1 },
		"in memory for cursors":  func(c *journal.Config) { c.TailBytes = -1 },
		"stored-timeout":        func(c *journal.Config) { c.StoredTimeout = -1 },
		"window of idempotency": func(c *journal.Config) { c.KeyWindow = -1 },
		"number of idempotency": func(c *journal.Config) { c.MaxKeys = -1 },
	} {
		cfg := config(t.TempDir(), "first")
		change(&cfg)
		_, err := journal.Open(cfg)
		assert.ErrorContains(t, err, says)
	}
}

func TestAFullDiskIsToldBeforeWaitingForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := faulttest.NewFiles(1)
		cfg := fakeConfig(files, "first", nil)
		gate := make(chan struct{})
		cfg.Files, cfg.MaxWaiting = gatedFiles{files, gate}, 1
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

func TestWhatWasRefusedTakesNoRoom(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
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

package journal_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

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
	j := open(t, fakeConfig(files, "first", nil))
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
	files, want := killed(t)
	fillUp(files)
	j := open(t, fakeConfig(files, "second", nil))
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
	j = open(t, fakeConfig(files, "third", nil))
	left := numbers(follow(t, j, j.Oldest()))
	assert.Subset(t, left, want[150:])
	drain(t, j, 0)
	require.Eventually(t, func() bool { return j.Err() == nil }, 10*time.Second, 10*time.Millisecond)
	mustAppend(t, j, makeBatch("readings", 300, 1))
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files, "fourth", nil))
	assert.Equal(t, []int{300}, numbers(follow(t, j, j.Oldest())))
}

// What a failed sync left behind is made durable without room for a new file.
func TestAFullDiskKeepsWhatIsAcknowledgedAfterAFailedSync(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
	mustAppend(t, j, makeBatch("readings", 0, 5))
	files.FailSync(syscall.EIO, 1)
	require.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(tryAppend(j, makeBatch("readings", 5, 5))))
	require.NoError(t, j.Close())
	fillUp(files)
	j = open(t, fakeConfig(files, "second", nil))
	assert.Equal(t, upTo(10), numbers(follow(t, j, j.Oldest())))
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files.PowerCut(), "third", nil))
	assert.Equal(t, upTo(10), numbers(follow(t, j, j.Oldest())))
}

func TestAJournalOnAFullDiskCloses(t *testing.T) {
	t.Parallel()
	files, want := killed(t)
	fillUp(files)
	j := open(t, fakeConfig(files, "second", nil))
	j.Trim(follow(t, j, 0)[1].Position)
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files, "third", nil))
	assert.Equal(t, want[5:], numbers(follow(t, j, j.Oldest())), "the mark had its room")
	files.FailWrite(syscall.ENOSPC, -1)
	require.NoError(t, j.Close(), "an old mark is good enough")
}

func TestWhatIsAtRestIsDeletedAtOpen(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
	mustAppend(t, j, makeBatch("readings", 0, 1))
	j.Trim(j.End())
	require.NoError(t, j.Close())
	require.Len(t, segmentsOf(files), 1)
	fillUp(files)
	j = open(t, fakeConfig(files, "second", nil))
	require.Eventually(t, func() bool { return len(segmentsOf(files)) == 0 }, 10*time.Second, time.Millisecond)
	assert.NoError(t, j.Err())
}

func TestTidyingUpIsTriedAgain(t *testing.T) {
	t.Parallel()
	files, _ := killed(t)
	j := open(t, fakeConfig(files, "second", nil))
	files.FailWrite(syscall.ENOSPC, -1)
	failed := files.Failed()
	j.Trim(j.End())
	require.Eventually(t, func() bool { return files.Failed() > failed }, 10*time.Second, time.Millisecond)
	assert.NotEmpty(t, segmentsOf(files), "nothing is deleted before the mark says so")
	files.FailWrite(nil, 0)
	require.Eventually(t, func() bool { return len(segmentsOf(files)) == 0 }, 10*time.Second, time.Millisecond)
}

func TestKeysOnAFullDiskFollowTheirSegments(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
	const n = 100
	for i := range n {
		assertTaken(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	require.Greater(t, len(segmentsOf(files)), 4)
	fillUp(files)
	drain(t, j, 1)
	require.NoError(t, j.Close())
	files = files.PowerCut()
	j = open(t, fakeConfig(files, "second", nil))
	for i := range n {
		assertRepeated(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
}

// A disk that somebody else fills at once as soon as there is room.
func TestADiskWithoutRoomForKeysIsDrainedAllTheSame(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first", nil)
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

func TestWhatWasHalfWrittenIsRemoved(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	segment := fmt.Sprintf("%020d.journal", 0)
	for _, name := range []string{"mark.tmp", "lost.tmp", segment + ".keys.tmp", segment + ".corrupt.tmp", segment + ".tmp", "other.tmp"} {
		files.SetBytes(filepath.Join(fakeDir, name), []byte("half"))
	}
	open(t, fakeConfig(files, "first", nil))
	assert.Equal(t, []string{fakeDir + "/mark", fakeDir + "/other.tmp"}, files.Names())
}

// Within one instant, so that no second passes between two looks.
func TestTheReserveHoldsAtAnyRate(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	const capacity = 4 << 20
	files.SetCapacity(capacity)
	cfg := fakeConfig(files, "first", nil)
	cfg.SegmentBytes = 1 << 20
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	j := open(t, cfg)
	var all sync.WaitGroup
	refused := make([]error, 8)
	for i := range refused {
		all.Go(func() {
			for refused[i] == nil {
				refused[i] = tryAppend(j, makeBatch("readings", 0, 100))
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
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 100)), "journal_disk_full")
}

package journal_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

func TestACommitIsNotLargerThanASegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := faulttest.NewFiles(1)
		cfg := fakeConfig(files, "first", nil)
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

func TestASegmentThatHasItsSizeIsDeletedWhenItIsAtRest(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first", nil)
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

func TestASegmentIsDeletedWhileOthersWrite(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
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

func TestAnyRequestHasRoomWhenEverythingIsAtRest(t *testing.T) {
	t.Parallel()
	for _, fill := range []int{300, 2000} {
		cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
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

func TestWhatAFailedAttemptLeftIsReplaced(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first", nil)
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

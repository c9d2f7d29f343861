package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

func keyed(key string, body uint64) batch.Request {
	return batch.Request{Want: telemetry.Journaled, Key: key, BodyHash: body, Answer: []byte("answer to " + key)}
}

// assertRepeated checks that a request is answered as the first with its key.
func assertRepeated(t *testing.T, j appender, r batch.Request) {
	t.Helper()
	receipt, err := j.Append(context.Background(), makeBatch("readings", 900, 1), r)
	require.NoError(t, err)
	assert.True(t, receipt.Repeated)
	assert.Equal(t, "answer to "+r.Key, string(receipt.Answer))
}

func assertTaken(t *testing.T, j appender, r batch.Request) {
	t.Helper()
	receipt, err := j.Append(context.Background(), makeBatch("readings", 0, 1), r)
	require.NoError(t, err)
	assert.False(t, receipt.Repeated)
}

// What a failed fsync leaves in the journal may be stored after a restart.
func TestRepeatOfAnUnknownOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	assertTaken(t, j, keyed("before", 1))
	files.FailSync(syscall.EIO, 1)
	for range 3 {
		_, err := j.Append(t.Context(), makeBatch("readings", 1, 1), keyed("a", 2))
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
		_, err = j.Repeat(t.Context(), keyed("a", 2))
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
	}
	_, err := j.Append(t.Context(), makeBatch("readings", 1, 1), keyed("a", 3))
	assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err), "another body")
	for range 2 {
		_, err = j.Append(t.Context(), makeBatch("readings", 2, 1), keyed("b", 4))
		assertRefused(t, err, "journal_failed")
	}
	assertRepeated(t, j, keyed("before", 1))
	require.NoError(t, j.Close())

	j = open(t, fakeConfig(files, "second"))
	assertRepeated(t, j, keyed("a", 2))
	receipt, err := j.Repeat(t.Context(), keyed("b", 4))
	require.NoError(t, err)
	assert.False(t, receipt.Repeated)
	assertTaken(t, j, keyed("b", 4))
	receipt, err = j.Repeat(t.Context(), keyed("b", 4))
	require.NoError(t, err)
	assert.Equal(t, batch.Receipt{Ack: telemetry.Journaled, Repeated: true, Answer: []byte("answer to b")}, receipt)
}

func TestRepeatedRequestIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	j := open(t, cfg)
	assertTaken(t, j, keyed("a", 1))
	assertRepeated(t, j, keyed("a", 1))
	assertTaken(t, j, keyed("b", 1))
	_, err := j.Append(context.Background(), makeBatch("readings", 0, 1), keyed("a", 2))
	var e *telemetry.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, telemetry.Conflict, e.Kind)
	assert.Equal(t, "idempotency_conflict", e.Code)
	require.NoError(t, j.Close())

	cfg.Session = "second"
	j = open(t, cfg)
	assertRepeated(t, j, keyed("a", 1))
	assertRepeated(t, j, keyed("b", 1))
	assert.Equal(t, 2, j.Status().Keys)
	assert.EqualValues(t, 2, j.Taken())
}

// Other requests may have the memory of a repeated one while that waits for MongoDB.
func TestARepeatedRequestWaitsWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		assertTaken(t, j, keyed("a", 1))
		begin, held := time.Now(), memory{}
		r := keyed("a", 1)
		r.Want, r.Memory = telemetry.Stored, &held
		assertRepeated(t, j, r)
		assert.Positive(t, time.Since(begin), "it waited")
		assert.Equal(t, begin, held.released)
		require.NoError(t, j.Close())
	})
}

func TestKeysOutliveTheirSegments(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	var now atomic.Int64
	began := time.Now()
	cfg.Now = func() time.Time { return began.Add(time.Duration(now.Load())) }
	j := open(t, cfg)
	const n = 100
	for i := range n {
		assertTaken(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	before := len(segmentsOf(files))
	require.Greater(t, before, 4)
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Segments == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, j.Close())
	assert.Len(t, keyFilesOf(files), before-1)

	files = files.PowerCut()
	cfg.Files, cfg.Session = files, "second"
	j = open(t, cfg)
	for i := range n {
		assertRepeated(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	now.Store(int64(16 * time.Minute))
	assert.Zero(t, j.Status().Keys, "all have expired")
	for range 40 {
		mustAppend(t, j, makeBatch("readings", 0, 10))
	}
	j.Trim(j.End())
	require.Eventually(t, func() bool { return len(keyFilesOf(files)) == 0 }, 10*time.Second, time.Millisecond)
	assertTaken(t, j, keyed("1", 1))
}

func keyFilesOf(files *faulttest.Files) []string {
	var out []string
	for _, name := range files.Names() {
		if strings.HasSuffix(name, ".keys") {
			out = append(out, name)
		}
	}
	return out
}

func TestDamagedKeyFileLosesOnlyItsKeys(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	j := open(t, cfg)
	for i := range 100 {
		assertTaken(t, j, keyed(fmt.Sprint(i), uint64(i)))
	}
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Segments == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, j.Close())
	whole := files.Bytes(keyFilesOf(files)[0])
	for at := 0; at < len(whole); at += 5 {
		disk := files.Clone()
		disk.Flip(keyFilesOf(disk)[0], int64(at), uint(at))
		cfg.Files, cfg.Session = disk, "second"
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		assert.Less(t, j.Status().Keys, 100)
		assert.Greater(t, j.Status().Keys, 50)
		assertRepeated(t, j, keyed("99", 99))
		require.NoError(t, j.Close())
	}
}

func TestNumberOfKeysIsLimited(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.MaxKeys = 10
	j := open(t, cfg)
	for i := range 30 {
		assertTaken(t, j, keyed(fmt.Sprint(i), 1))
	}
	assert.Equal(t, 10, j.Status().Keys)
	assertRepeated(t, j, keyed("29", 1))
	assertRepeated(t, j, keyed("20", 1))
	assertTaken(t, j, keyed("19", 1))
}

func TestAKeyExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		assertTaken(t, j, keyed("a", 1))
		<-time.After(14 * time.Minute)
		assertRepeated(t, j, keyed("a", 1))
		<-time.After(2 * time.Minute)
		assertTaken(t, j, keyed("a", 2))
		<-time.After(2 * time.Minute)
		assertRepeated(t, j, keyed("a", 2))
		require.NoError(t, j.Close())
	})
}

// A journal in memory acknowledges nothing before it is stored, however long that takes.
func TestAKeyInMemoryStaysUntilItsReadingsAreStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(memoryConfig())
		require.NoError(t, err)
		r := keyed("a", 1)
		r.Want = telemetry.Stored
		for range 200 {
			_, err := j.Append(t.Context(), makeBatch("readings", 0, 1), r)
			assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
		}
		assert.EqualValues(t, 1, j.Taken())
		follow(t, j, 0)[0].Batch.Tracker.Released(1)
		assertRepeated(t, j, r)
		<-time.After(16 * time.Minute)
		assert.Zero(t, j.Status().Keys)
		require.NoError(t, j.Close())
	})
}

func TestOverlappingRepeatWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakeConfig(faulttest.NewFiles(1), "first")
		gate := make(chan struct{})
		cfg.Files = gatedFiles{cfg.Files, gate}
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		var all sync.WaitGroup
		var repeated atomic.Int64
		for range 10 {
			all.Go(func() {
				r, err := j.Append(context.Background(), makeBatch("readings", 0, 1), keyed("a", 1))
				assert.NoError(t, err)
				if r.Repeated {
					repeated.Add(1)
				}
			})
		}
		synctest.Wait()
		_, err = j.Append(context.Background(), makeBatch("readings", 0, 1), keyed("a", 2))
		assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err), "while the first is on its way")
		assert.Zero(t, repeated.Load())
		close(gate)
		all.Wait()
		assert.EqualValues(t, 9, repeated.Load())
		assert.EqualValues(t, 1, j.Taken())
		require.NoError(t, j.Close())
	})
}

func TestRepeatIsAcceptedWhenTheFirstFailed(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	var (
		err error
		key batch.Request
	)
	for i := 0; err == nil; i++ { // the write that fails may be that of the mark
		files.FailWrite(errors.New("no space"), 1)
		key = keyed(fmt.Sprint(i), 1)
		_, err = j.Append(context.Background(), makeBatch("readings", 0, 1), key)
	}
	assertRefused(t, err, "journal_disk_full")
	files.FailWrite(nil, 0)
	assertTaken(t, j, key)
	assertRepeated(t, j, key)
}

func TestBytesOfAnswersAreLimited(t *testing.T) {
	t.Parallel()
	const (
		n    = 600
		most = (32 << 20) / (64 << 10)
	)
	request := func(i int) batch.Request {
		r := keyed(fmt.Sprint(i), 1)
		r.Answer = append(r.Answer, make([]byte, 64<<10-len(r.Answer))...)
		return r
	}
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.MaxBytes = 256 << 20
	j := open(t, cfg)
	for i := range n {
		assertTaken(t, j, request(i))
	}
	assert.Equal(t, most, j.Status().Keys)
	require.NoError(t, j.Close())
	cfg.Session = "second"
	j = open(t, cfg)
	assert.Equal(t, most, j.Status().Keys)
	receipt, err := j.Append(context.Background(), makeBatch("readings", 0, 1), request(n-most))
	require.NoError(t, err)
	assert.True(t, receipt.Repeated)
	assertTaken(t, j, request(n-most-1))
}

func TestEqualAnswersCountOnce(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.MaxBytes = 256 << 20
	j := open(t, cfg)
	shared := make([]byte, 64<<10)
	for i := range 550 {
		assertTaken(t, j, batch.Request{Want: telemetry.Journaled, Key: fmt.Sprint(i), Answer: shared})
	}
	assert.Equal(t, 550, j.Status().Keys)
}

func TestSavedKeysCountInTheSizeButAreNotLimited(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	cfg.MaxBytes, cfg.SegmentBytes = 1<<20, 128<<10
	j := open(t, cfg)
	total := func() (n int64) {
		for _, name := range append(keyFilesOf(files), segmentsOf(files)...) {
			n += int64(len(files.Bytes(name)))
		}
		return n
	}
	for i := range 100 {
		r := keyed(fmt.Sprint(i), 1)
		r.Answer = append(r.Answer, make([]byte, 40<<10)...)
		assertTaken(t, j, r)
		drain(t, j, 1)
	}
	require.Greater(t, total(), 3*cfg.MaxBytes)
	require.Eventually(t, func() bool { return j.Status().Bytes == total() }, 10*time.Second, time.Millisecond)
	require.NoError(t, j.Err())
	require.NoError(t, j.Close())
	cfg.Session = "second"
	j = open(t, cfg)
	assert.NoError(t, j.Err())
	require.Eventually(t, func() bool { return j.Status().Segments == 0 && j.Status().Bytes == total() }, 10*time.Second, time.Millisecond)
}

func TestKeyFileStaysUntilItsLastKeyExpires(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	cfg := fakeConfig(files, "first")
	j := open(t, cfg)
	_, err := j.Append(context.Background(), makeBatch("readings", 0, 100), keyed("a", 1)) // a segment
	require.NoError(t, err)
	drain(t, j, 0)
	mustAppend(t, j, makeBatch("readings", 0, 100))
	drain(t, j, 0)
	require.NoError(t, j.Close())
	cfg.Files, cfg.Session = files.PowerCut(), "second"
	assertRepeated(t, open(t, cfg), keyed("a", 1))
}

package journal_test

import (
	"os"
	"path/filepath"
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

func TestRemovedOrReplacedFolderIsNoticed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"the lock is removed":    func(dir string) error { return os.Remove(filepath.Join(dir, "lock")) },
		"the folder is removed":  os.RemoveAll,
		"the folder is moved":    func(dir string) error { return os.Rename(dir, dir+".old") },
		"the folder is replaced": func(dir string) error { return os.Rename(dir+".new", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "journal")
			log := &lines{}
			cfg := config(dir, "first")
			cfg.Logger = log.logger()
			j := open(t, cfg)
			mustAppend(t, j, makeBatch("readings", 0, 1))
			require.NoError(t, j.Err())
			if name == "the folder is replaced" {
				require.NoError(t, os.CopyFS(dir+".new", os.DirFS(dir)))
				require.NoError(t, os.RemoveAll(dir))
			}
			require.NoError(t, change(dir))
			require.Eventually(t, func() bool { return j.Err() != nil }, 10*time.Second, 10*time.Millisecond)
			assertRefused(t, tryAppend(j, makeBatch("readings", 1, 1)), "journal_gone")
			assertRefused(t, j.Err(), "journal_gone")
			require.ErrorIs(t, j.Err(), journal.ErrGone)
			assert.Equal(t, 1, log.count("journal_gone: "))

			other, err := journal.Open(config(dir, "second"))
			require.NoError(t, err, "another daemon may have the place")
			require.NoError(t, j.Close())
			require.NoError(t, other.Err(), "and keeps it")
			require.NoError(t, other.Close())
		})
	}
}

func TestReadingsAfterTheFolderIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := faulttest.NewFiles(1)
		cfg := fakeConfig(files, "first")
		cfg.TailBytes = 1 // what is followed is read from the file
		j, err := journal.Open(cfg)
		require.NoError(t, err)
		assertTaken(t, j, keyed("a", 1))
		assertTaken(t, j, keyed("b", 2))
		files.RemoveAll()
		<-time.After(time.Second + time.Millisecond)
		require.ErrorIs(t, j.Err(), journal.ErrGone)
		records := follow(t, j, j.Oldest())
		require.Len(t, records, 2, "the file is open")

		began := time.Now()
		_, err = j.Append(t.Context(), makeBatch("readings", 0, 1), keyed("a", 1))
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err), "its record may be nowhere")
		assert.Equal(t, 10*time.Second, time.Since(began), "it waits to be stored")
		j.Trim(records[0].Next)
		receipt, err := j.Append(t.Context(), makeBatch("readings", 0, 1), keyed("a", 1))
		require.NoError(t, err)
		assert.Equal(t, batch.Receipt{Ack: telemetry.Stored, Repeated: true, Answer: []byte("answer to a")}, receipt)
		require.Error(t, j.Secure())
		require.NoError(t, j.Close())
		assert.Empty(t, files.Names(), "nothing is written there")
	})
}

// TestOpenSegmentStaysReadableWhenTheFolderIsGone: a segment that is due to end can
// be read only while it is open.
func TestOpenSegmentStaysReadableWhenTheFolderIsGone(t *testing.T) {
	t.Parallel()
	for name, due := range map[string]func(j *journal.Journal) int{
		"it is full":         func(*journal.Journal) int { return 70 },
		"of another session": func(j *journal.Journal) int { journal.Redraw(j); return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				files := faulttest.NewFiles(1)
				cfg := fakeConfig(files, "first")
				cfg.SegmentBytes, cfg.TailBytes = 4<<10, 1
				j, err := journal.Open(cfg)
				require.NoError(t, err)
				mustAppend(t, j, makeBatch("readings", 0, 20))
				mustAppend(t, j, makeBatch("readings", 20, 20))
				files.RemoveAll()
				assertRefused(t, tryAppend(j, makeBatch("readings", 40, due(j))), "journal_gone")
				assert.Equal(t, upTo(40), numbers(follow(t, j, j.Oldest())))
				require.NoError(t, j.Close())
			})
		})
	}
}

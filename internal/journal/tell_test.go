package journal_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

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

func TestAFullJournalIsToldOncePerChange(t *testing.T) {
	t.Parallel()
	var log lines
	cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
	cfg.MaxBytes, cfg.SegmentBytes, cfg.Logger = 1<<20, 64<<10, log.logger()
	j := open(t, cfg)
	for round := range 3 {
		assert.Equal(t, round, log.count("level=WARN"))
		refuseMany(t, j, "journal_full")
		assert.ErrorContains(t, j.Err(), "MongoDB is away or stores less than what arrives")
		assert.Equal(t, round+1, log.count("the journal is full"))
		assert.Equal(t, round, log.count("the journal has room again"))
		drain(t, j, 1)
		require.Eventually(t, func() bool { return log.count("the journal has room again") == round+1 }, 10*time.Second, time.Millisecond)
	}
}

func TestAFullDiskIsToldOncePerChange(t *testing.T) {
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
			var log lines
			files := faulttest.NewFiles(1)
			cfg := fakeConfig(files, "first", nil)
			cfg.SegmentBytes, cfg.Logger = 1<<20, log.logger()
			j := open(t, cfg)
			for round := range 2 {
				how.fill(files)
				refuseMany(t, j, "journal_disk_full")
				assert.Equal(t, round+1, log.count("the journal's disk is full"))
				how.free(files)
				require.Eventually(t, func() bool { return tryAppend(j, makeBatch("readings", 0, 1)) == nil }, 10*time.Second, 10*time.Millisecond)
				assert.Equal(t, round+1, log.count("the journal's disk has room again"))
				drain(t, j, 1)
			}
		})
	}
}

func TestOneLargeRequestDoesNotMakeTheJournalUnready(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
	cfg.MaxBytes, cfg.SegmentBytes = 1<<20, 64<<10
	j := open(t, cfg)
	for j.Status().Bytes < cfg.MaxBytes*7/8 {
		mustAppend(t, j, makeBatch("readings", 0, 50))
	}
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 4500)), "journal_full")
	assertRefused(t, j.Err(), "journal_full")
	mustAppend(t, j, makeBatch("readings", 0, 1))
	assert.NoError(t, j.Err(), "what is usual is taken")
	refuseMany(t, j, "journal_full")
	assertRefused(t, j.Err(), "journal_full")
	drain(t, j, 1)
	assert.NoError(t, j.Err())
}

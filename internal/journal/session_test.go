package journal_test

import (
	"runtime"
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

// resumed is a machine whose wall clock can be set ahead of its monotonic clock.
type resumed struct {
	begin   time.Time
	elapsed time.Duration
	away    time.Duration
}

func (r *resumed) now() time.Time       { return r.begin.Add(r.elapsed + r.away) }
func (r *resumed) up() time.Duration    { return r.elapsed }
func (r *resumed) pass(d time.Duration) { r.elapsed += d }

// sessionsOf lists the sessions that records were written under, in order, each
// once.
func sessionsOf(t *testing.T, j follower, from uint64) []string {
	t.Helper()
	var out []string
	for _, r := range follow(t, j, from) {
		if n := len(out); n == 0 || out[n-1] != r.Batch.Session {
			out = append(out, r.Batch.Session)
		}
	}
	return out
}

func TestAResumedMachineWritesUnderANewSession(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]int64{"from memory": 8 << 20, "from disk": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := &resumed{begin: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
			cfg := config(t.TempDir(), "first")
			cfg.Now, cfg.Elapsed, cfg.TailBytes = machine.now, machine.up, tail
			j, err := journal.Open(cfg)
			require.NoError(t, err)
			mustAppend(t, j, makeBatch("readings", 0, 3))
			machine.pass(time.Hour)
			machine.away -= time.Hour // a step back cannot be a resumed machine's
			mustAppend(t, j, makeBatch("readings", 3, 2))
			assert.Equal(t, []string{"first"}, j.Sessions())

			machine.away += 6 * time.Second
			mustAppend(t, j, makeBatch("readings", 5, 2))
			second := j.Status().Session
			assert.NotEqual(t, "first", second)
			assert.Equal(t, []string{second, "first"}, j.Sessions())
			assert.Equal(t, []string{"first", second}, sessionsOf(t, j, j.Oldest()))
			assert.Equal(t, upTo(7), numbers(follow(t, j, j.Oldest())))
			for _, r := range follow(t, j, j.Oldest()) {
				assert.False(t, r.Batch.Recovered, "this process took it")
			}
			journal.Redraw(j) // twice with nothing in between
			journal.Redraw(j)
			third := j.Status().Session
			mustAppend(t, j, makeBatch("readings", 7, 1))
			require.NoError(t, j.Close())

			again := open(t, config(cfg.Dir, "next"))
			assert.Equal(t, []string{"first", second, third}, sessionsOf(t, again, again.Oldest()))
			assert.Equal(t, upTo(8), numbers(follow(t, again, again.Oldest())))
			assert.Equal(t, []string{"next", "first", second, third}, again.Sessions())
			again.Trim(again.End())
			assert.Equal(t, []string{"next"}, again.Sessions(), "what is stored needs no session")
		})
	}
}

func TestResumedMachineWithAJournalInMemory(t *testing.T) {
	t.Parallel()
	machine := &resumed{begin: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	cfg := memoryConfig()
	cfg.Now, cfg.Elapsed, cfg.StoredTimeout = machine.now, machine.up, time.Nanosecond
	v, err := journal.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	for _, away := range []time.Duration{0, 0, time.Minute} {
		machine.away += away
		_, err := v.Append(t.Context(), makeBatch("readings", 0, 1), batch.Request{Want: telemetry.Stored})
		require.Error(t, err, "nothing stores it")
	}
	assert.Equal(t, []string{"first", v.Status().Session}, sessionsOf(t, v, v.Oldest()))
	assert.Len(t, v.Sessions(), 2)
}

func TestAnIdleMachineIsResumed(t *testing.T) {
	t.Parallel()
	machine := &resumed{begin: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	cfg := config(t.TempDir(), "first")
	cfg.Now, cfg.Elapsed = machine.now, machine.up
	j := open(t, cfg)
	machine.pass(time.Hour)
	machine.away += time.Minute
	mustAppend(t, j, makeBatch("readings", 0, 3))
	assert.NotEqual(t, []string{"first"}, sessionsOf(t, j, j.Oldest()), "before any reading came")

	memory := memoryConfig()
	memory.Now, memory.Elapsed, memory.StoredTimeout = machine.now, machine.up, time.Nanosecond
	v, err := journal.Open(memory)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	machine.away += time.Minute
	_, err = v.Append(t.Context(), makeBatch("readings", 0, 1), batch.Request{Want: telemetry.Stored})
	require.Error(t, err, "nothing stores it")
	assert.NotEqual(t, []string{"first"}, sessionsOf(t, v, v.Oldest()))
}

func TestALostSessionIsRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, config(dir, "first"))
	mustAppend(t, j, makeBatch("readings", 0, 3))
	require.NoError(t, j.Lose("first"))
	second := j.Status().Session
	assert.NotEqual(t, "first", second)
	mustAppend(t, j, makeBatch("readings", 3, 2))
	require.NoError(t, j.Lose("first"), "twice")
	assert.Equal(t, second, j.Status().Session)
	assert.Equal(t, []string{second}, j.Sessions(), "a lost one is not claimed again")
	require.NoError(t, j.Close())

	again := open(t, config(dir, "next"))
	assert.Equal(t, []string{"first"}, again.LostSessions())
	assert.Equal(t, []string{"next", second}, again.Sessions())
	assert.Equal(t, upTo(5), numbers(follow(t, again, again.Oldest())), "its readings are kept")
	again.Trim(again.End())
	require.NoError(t, again.Close())
	assert.Empty(t, open(t, config(dir, "last")).LostSessions(), "nothing of it is left")
}

// TestUnstoredSessions are those that a later process has to store something of.
func TestUnstoredSessions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, config(dir, "first"))
	assert.Empty(t, j.Unstored(), "nothing was accepted")
	assert.Equal(t, []string{"first"}, j.Sessions())
	mustAppend(t, j, makeBatch("readings", 0, 3))
	assert.Equal(t, []string{"first"}, j.Unstored())
	j.Trim(j.End())
	assert.Empty(t, j.Unstored(), "all is stored")
	mustAppend(t, j, makeBatch("readings", 3, 2))
	require.NoError(t, j.Close())

	next := open(t, config(dir, "second"))
	assert.Equal(t, []string{"first"}, next.Unstored(), "nothing was accepted under its own")
	assert.Equal(t, []string{"second", "first"}, next.Sessions())
	mustAppend(t, next, makeBatch("readings", 5, 1))
	assert.Equal(t, []string{"second", "first"}, next.Unstored())
	require.NoError(t, next.Lose("first"))
	assert.Equal(t, []string{"second"}, next.Unstored(), "a lost one becomes dead letters")
	next.Trim(next.End())
	assert.Empty(t, next.Unstored())

	memory, err := journal.Open(memoryConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, memory.Close()) })
	assert.Empty(t, memory.Unstored(), "no later process has it")
	assert.NotEmpty(t, memory.Sessions())
}

func TestLostSessionThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j, err := journal.Open(fakeConfig(files, "one"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	files.FailSync(syscall.EIO, 1)
	require.ErrorIs(t, j.Lose("one"), syscall.EIO)
	assert.NotEqual(t, "one", j.Status().Session, "new records have another one all the same")
	assert.Empty(t, j.LostSessions())
	require.NoError(t, j.Lose("one"))
	assert.Equal(t, []string{"one"}, j.LostSessions())
}

// TestSessionsChangeUnderLoad: no commit is of two sessions.
func TestSessionsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		files, l := faulttest.NewFiles(seed), newLedger()
		j, err := journal.Open(fakeConfig(files, "one"))
		require.NoError(t, err)
		var producers, others sync.WaitGroup
		done := make(chan struct{})
		others.Go(func() { l.consume(j, seed, done) })
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					journal.Redraw(j)
					runtime.Gosched()
				}
			}
		})
		for p := range uint64(6) {
			producers.Go(func() {
				for range 20 {
					l.produce(j, seed*10+p, 5)
				}
			})
		}
		producers.Wait()
		close(done)
		others.Wait()
		next := files.PowerCut()
		_ = j.Close()
		again, err := journal.Open(fakeConfig(next, "two"))
		require.NoError(t, err)
		l.keys = nil // of several sessions
		found := l.check(again)
		require.True(t, found.clean(), "seed %d: %+v", seed, found)
		require.NoError(t, again.Close())
	}
}

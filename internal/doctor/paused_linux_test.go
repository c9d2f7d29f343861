package doctor

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// pause stops a process and returns once all of its threads have stopped, since
// signals act with a delay.
func pause(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			// The format is "pid (name) state …"; the name may contain
			// anything.
			if i := bytes.LastIndexByte(stat, ')'); !bytes.HasPrefix(stat[i:], []byte(") T")) {
				return false
			}
		}
		return len(threads) > 0
	}, time.Minute, time.Millisecond)
}

// TestStoppedServer accepts requests and does not answer, like one with a hung disk: a
// sample times out, metrics can be read meanwhile, and the disk is still measured.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "the disk is that of its data files")
	server := mongodtest.Start(t, mongod.Config{})
	db := mongodtest.DatabaseAt(t, server.URI())
	insert(t, db, "readings", 10)
	b := newBench(t, Config{Database: db, Interval: time.Second, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	b.Sample(t.Context())
	before := b.scrape(t)
	require.Equal(t, 1.0, before.Value("brim_mongodb_up", nil))

	pause(t, server.Pid())
	paused := true
	t.Cleanup(func() {
		if paused {
			_ = syscall.Kill(server.Pid(), syscall.SIGCONT) // so that it can be stopped
		}
	})
	sampled := make(chan struct{})
	began := time.Now()
	go func() { b.Sample(t.Context()); close(sampled) }()
	for range 10 {
		assert.Equal(t, 1.0, b.scrape(t).Value("brim_mongodb_up", nil), "the last sample holds while another is being taken")
	}
	<-sampled
	assert.Less(t, time.Since(began), 30*time.Second)
	seen := b.scrape(t)
	assert.Equal(t, 0.0, seen.Value("brim_mongodb_up", nil))
	assert.True(t, math.IsNaN(seen.Value("brim_mongodb_collection_bytes", nil)))
	assert.True(t, math.IsNaN(seen.Value("brim_mongodb_connections", nil)))
	assert.InDelta(t, before.Value("brim_mongodb_journal_syncs_total", nil), seen.Value("brim_mongodb_journal_syncs_total", nil), 0)
	b.assertEngineUnseen(t, whyAway)
	assert.Equal(t, before.Value("brim_disk_size_bytes", nil), seen.Value("brim_disk_size_bytes", nil))

	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGCONT))
	paused = false
	require.Eventually(t, func() bool {
		b.Sample(t.Context())
		return b.scrape(t).Value("brim_mongodb_up", nil) == 1
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, 10.0, b.scrape(t).Value("brim_mongodb_collection_documents", nil), "the last sizes hold until they are asked for again")
}

package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLowestMemoryLimitCounts(t *testing.T) {
	t.Parallel()
	const machine = "proc/meminfo"
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no limit is known":     {nil, 0},
		"the machine":           {map[string]string{machine: "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8 << 30},
		"a group":               {map[string]string{machine: "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, 1 << 30},
		"a group above":         {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "536870912\n"}, 512 << 20},
		"a group of version 1":  {map[string]string{"proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "268435456\n"}, 256 << 20},
		"one without its files": {map[string]string{machine: "MemTotal: 1048576 kB\n", "proc/self/cgroup": "0::/gone\n"}, 1 << 30},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		assert.Equal(t, c.want, memoryLimit(root), name)
	}
}

func TestBudgetIsAnEighthOfMemoryLimit(t *testing.T) {
	t.Parallel()
	c := Settings{MaxBodyBytes: 8 << 20}
	assert.EqualValues(t, 1<<30, c.ingestBytes(8<<30, 8))
	assert.EqualValues(t, 512<<20, c.ingestBytes(8<<30, 4), "no more than the CPUs can decode")
	assert.EqualValues(t, 256<<20, c.ingestBytes(8<<30, 1), "enough for the largest body")
	assert.EqualValues(t, 64<<20, c.ingestBytes(256<<20, 8), "at least that")
	c.IngestMaxBytes = 100 << 20
	assert.EqualValues(t, 100<<20, c.ingestBytes(8<<30, 8))
}

// The limit leaves the rest of the process the same room as GOGC=100 if that is
// large, and never exceeds GOMEMLIMIT.
func TestCollectorLimitFollowsUse(t *testing.T) {
	t.Parallel()
	const budget = 64 << 20
	l := &collectorLimit{given: 8 << 30}
	assert.EqualValues(t, budget+restBytes, l.next(0, budget))
	for range len(l.rest) - 1 {
		assert.EqualValues(t, budget+restBytes, l.next(1<<30, budget), "the least of the last collections counts")
	}
	assert.EqualValues(t, budget+2<<30-2*restBytes, l.next(1<<30, budget))
	assert.EqualValues(t, budget+restBytes, l.next(-1, budget))
	l.given = 100 << 20
	assert.EqualValues(t, 100<<20, l.next(1<<30, budget))
}

// A running daemon lowers the limit at which the collector runs, but the queue's share is
// taken from the original one.
func TestQueueHasAPartOfTheMemoryBeforeItIsLimited(t *testing.T) { //nolint:paralleltest // the limit is global
	_, want := new(Settings).queueParts(memoryLimit("/"))
	d := newTestDaemon(t, memoryFlags(t))
	defer limitCollector(d.ingest.Memory)()
	startRunning(t, d)
	var s Status
	require.Eventually(t, func() bool { // readings are accepted before there is a queue
		_, body := d.get(t, "/status")
		return json.Unmarshal([]byte(body), &s) == nil && s.Queue != nil
	}, patience, 5*time.Millisecond)
	assert.Equal(t, want, s.Queue.MaxBytes)
}

func TestQueueHasAPartOfTheMemory(t *testing.T) {
	t.Parallel()
	for limit, want := range map[uint64]int64{0: 128 << 20, 1 << 30: 128 << 20, 4 << 30: 256 << 20, 1 << 40: 1 << 30} {
		assert.Equal(t, want, queueBytes(limit), limit)
	}
}

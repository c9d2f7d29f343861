package journal_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.Registerer = registry
	j := open(t, cfg)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
	assertMetrics(t, registry, 0, 0, 0)
	mustAppend(t, j, makeBatch("readings", 0, 3))
	assertTaken(t, j, keyed("a", 1))
	j.Stop()
	assertRefused(t, tryAppend(j, makeBatch("readings", 0, 1)), "stopping")
	assertMetrics(t, registry, 2, 1, 1)
	gathered, err := registry.Gather()
	require.NoError(t, err)
	for _, m := range gathered {
		switch m.GetName() {
		case "brim_journal_bytes":
			assert.EqualValues(t, j.Status().Bytes, m.GetMetric()[0].GetGauge().GetValue())
			assert.Positive(t, j.Status().Bytes)
		case "brim_journal_oldest_unapplied_seconds":
			assert.Positive(t, m.GetMetric()[0].GetGauge().GetValue())
		}
	}
}

// assertMetrics checks the figures that a test can know.
func assertMetrics(t *testing.T, registry *prometheus.Registry, fsyncs, keys, stopping int) {
	t.Helper()
	gathered, err := registry.Gather()
	require.NoError(t, err)
	found := make(map[string]int)
	for _, m := range gathered {
		for _, one := range m.GetMetric() {
			name := m.GetName()
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case one.GetHistogram() != nil:
				found[name] = int(one.GetHistogram().GetSampleCount())
			case one.GetCounter() != nil:
				found[name] = int(one.GetCounter().GetValue())
			case strings.HasSuffix(name, "keys"):
				found[name] = int(one.GetGauge().GetValue())
			}
		}
	}
	assert.Equal(t, map[string]int{
		"brim_journal_fsync_seconds": fsyncs, "brim_journal_commit_requests": fsyncs, "brim_journal_keys": keys,
		"brim_journal_mark_failures_total":    0,
		"brim_journal_refused_total stopping": stopping, "brim_journal_refused_total journal_full": 0,
		"brim_journal_refused_total journal_disk_full": 0, "brim_journal_refused_total journal_failed": 0, "brim_journal_refused_total journal_gone": 0,
		"brim_journal_refused_total queue_full": 0, "brim_journal_refused_total mongodb_away": 0,
	}, found)
}

func TestMetricsAreTheSameOnDiskAndInMemory(t *testing.T) {
	t.Parallel()
	names := func(registry *prometheus.Registry) (out []string) {
		gathered, err := registry.Gather()
		require.NoError(t, err)
		for _, m := range gathered {
			out = append(out, m.GetName())
		}
		return out
	}
	disk, memory := prometheus.NewRegistry(), prometheus.NewRegistry()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	cfg.Registerer = disk
	open(t, cfg)
	other := memoryConfig()
	other.Registerer = memory
	open(t, other)
	assert.Equal(t, names(disk), names(memory))
	_, err := journal.Open(other)
	assert.ErrorContains(t, err, "register metrics")
}

func TestGivenUpBytesStayVisible(t *testing.T) {
	t.Parallel()
	files, records := closedJournal(t, 1)
	name := segmentsOf(files)[0]
	files.Flip(name, int64(len(files.Bytes(name))-1), 3)
	lost := records[5].Next - records[5].Position
	for _, session := range []string{"second", "third"} {
		cfg := fakeConfig(files, session)
		cfg.AcceptLoss, cfg.Registerer = session == "second", prometheus.NewRegistry()
		j := open(t, cfg)
		assert.Equal(t, lost, j.Status().GivenUpBytes)
		assert.EqualValues(t, lost, metric(t, cfg.Registerer, "brim_journal_given_up_bytes"))
		require.NoError(t, j.Close())
	}
}

func TestFailedMarksAreCounted(t *testing.T) {
	t.Parallel()
	files, _ := killed(t)
	fillUp(files)
	cfg := fakeConfig(files, "second")
	registry := prometheus.NewRegistry()
	cfg.Registerer = registry
	j := open(t, cfg)
	assert.EqualValues(t, 1, metric(t, registry, "brim_journal_mark_failures_total"), "at the start")
	files.FailWrite(syscall.ENOSPC, -1)
	j.Trim(j.End())
	require.Eventually(t, func() bool { return metric(t, registry, "brim_journal_mark_failures_total") > 1 }, 10*time.Second, time.Millisecond)
}

// metric returns the value of a gauge or a counter without labels.
func metric(t *testing.T, registerer prometheus.Registerer, name string) float64 {
	t.Helper()
	gathered, err := registerer.(*prometheus.Registry).Gather()
	require.NoError(t, err)
	for _, m := range gathered {
		if m.GetName() == name {
			return m.GetMetric()[0].GetGauge().GetValue() + m.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "there is no such metric", name)
	return 0
}

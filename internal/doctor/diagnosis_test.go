package doctor

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// without returns the table without one diagnosis.
func without(name string) []diagnosis {
	return slices.DeleteFunc(slices.Clone(diagnoses), func(d diagnosis) bool { return d.name == name })
}

// names returns the distinct names of findings.
func names(findings []Finding) []string {
	var out []string
	for i := range findings {
		out = append(out, findings[i].Name)
	}
	return slices.Compact(out)
}

func worstOf(signals []Signal) Class {
	worst := Unknown
	for i := range signals {
		worst = max(worst, signals[i].Class)
	}
	return worst
}

// slowOnes returns the findings of kind slow.
func slowOnes(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Kind != Slow })
}

// work sets what a disk did in ten seconds.
func work(l *sample, busySeconds, operations, bytesEach, msEach float64) {
	l.disk.busySeconds += busySeconds
	l.disk.writes += operations
	l.disk.writtenBytes += operations * bytesEach
	l.disk.waitSeconds += operations * msEach / 1000
}

// TestEachDiagnosisIsNeeded: a sample that shows one problem has that diagnosis
// and no other, with figures; without its row the problem would be missed.
func TestEachDiagnosisIsNeeded(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		name   string
		change func(now *sample)
		class  Class
		cause  string
		says   []string // in the evidence
		action string   // in one of the actions
	}{
		"many small writes on a busy disk": {foundIOPS, func(l *sample) { work(l, 9, 40_000, 8192, 0.4) }, Bottleneck,
			"IOPS-bound", []string{"disk busy 90 %", "disk writes 4,000 ops/s", "8 KiB per operation", "nvme0n1, NVMe", "hardly affects writes yet"}, "--flush-max"},
		"a disk that gives no more operations": {foundIOPS, func(l *sample) { work(l, 10, 1000, 16384, 80) }, Bottleneck,
			"IOPS-bound", []string{"disk latency 80 ms", "disk writes 100 ops/s"}, "more operations/s"},
		"large writes on a busy disk": {foundThroughput, func(l *sample) { work(l, 9.5, 4000, 512<<10, 6) }, Bottleneck,
			"throughput-bound", []string{"disk busy 95 %", "disk written 210 MB/s", "512 KiB per operation"}, "--compressor zstd"},
		"slow answers of a disk that could do more": {foundLatency, func(l *sample) { work(l, 3, 1000, 8192, 5) }, Bottleneck,
			"latency-bound", []string{"disk busy 30 %", "disk latency 5 ms"}, "faster disk than nvme0n1 (NVMe)"},
		"a little slow answers": {foundLatency, func(l *sample) { work(l, 1, 1000, 8192, 1) }, Degrading,
			"latency-bound", []string{"disk latency 1 ms"}, "iostat"},
		"large writes that each take long": {foundThroughput, func(l *sample) { work(l, 7, 440, 150<<10, 20) }, Bottleneck,
			"throughput-bound", []string{"disk latency 20 ms", "150 KiB per operation"}, "more MB/s"},
		"a cache that is full": {foundCache, func(l *sample) { l.server.figures[cacheUsed] = 960 }, Bottleneck,
			"cache-bound", []string{"cache used 96 %"}, "cache_size="},
		"a cache that is dirty": {foundCache, func(l *sample) { l.server.figures[cacheDirty] = 170 }, Bottleneck,
			"cache-bound", []string{"cache dirty 17 %"}, "eviction=("},
		"a cache of updates": {foundCache, func(l *sample) { l.server.figures[cacheUpdates] = 110 }, Bottleneck,
			"cache-bound", []string{"cache updates 11 %"}, "--granularity"},
		"clients that evict": {foundEviction, func(l *sample) {
			l.server.figures[appEvictions] += 5000
			l.server.figures["cache_application_eviction_seconds_total"] = 4
		}, Bottleneck, "eviction-bound", []string{"application evictions 500 pages/s", "time of application threads in evictions 40 %"}, "cache_size="},
		"a long checkpoint": {foundCheckpoint, func(l *sample) { l.server.figures[checkpointLast] = 20 }, Bottleneck,
			"checkpoint-bound", []string{"last checkpoint 20 s"}, "--compressor zstd"},
		"old versions": {foundHistory, func(l *sample) { l.server.figures[historyInserts] += 40_000 }, Degrading,
			"history-store-bound", []string{"history store 4,000 inserts/s"}, "minSnapshotHistoryWindowInSeconds: 0"},
		"old versions as asked for": {foundHistory, func(l *sample) { l.server.figures[historyInserts] += 40_000; l.historyWindow = 300 }, Degrading,
			"history-store-bound", []string{"minSnapshotHistoryWindowInSeconds is 300"}, "minSnapshotHistoryWindowInSeconds: 0"},
		"old versions for a reader": {foundReaders, func(l *sample) { l.server.figures[historyInserts] += 40_000; l.historyWindow = 0 }, Degrading,
			"history-store-bound", []string{"a long-running read"}, "currentOp"},
		"no tickets": {foundTickets, func(l *sample) { l.server.figures[writesAvailable], l.server.figures[writesInUse] = 2, 126 }, Bottleneck,
			"ticket-bound", []string{"write tickets available 1.56 %"}, "--lanes"},
		"no tickets for reads": {foundTickets, func(l *sample) { l.server.figures[readsAvailable], l.server.figures[readsInUse] = 20, 108 }, Degrading,
			"ticket-bound", []string{"read tickets available 15.6 %"}, "currentOp"},
		"updates are late": {foundLate, func(l *sample) { l.path.writes.Overdue = 42 }, Degrading,
			"late", []string{"is 42 s late"}, "--lanes"},
		"updates are minutes late": {foundLate, func(l *sample) { l.path.writes.Overdue = 300 }, Bottleneck,
			"late", []string{"is 300 s late"}, "check whether it is falling"},
		"a file with holes": {foundFragmented, func(l *sample) { l.collections["old"] = collection{name: "old", storage: 100 << 20, free: 60 << 20} }, Bottleneck,
			"fragmented", []string{"free space inside files 60 %", "62.9 of the", "MB of stream old are empty"}, "brim compact --stream old"},
		"a disk that fills up": {foundDiskSpace, func(l *sample) { l.disk.free = 9e9; l.disk.path = "/data/db" }, Degrading,
			"disk space", []string{"disk space free 9 %", "of the 100,000 MB under /data/db 9,000 MB are free"}, "--retention"},
		"a disk that is full": {foundDiskFull, func(l *sample) { l.disk.free = 150e6 }, Bottleneck,
			"disk full", []string{"150 MB are free"}, "make room"},
		"a later collection with holes": {foundFragmented, func(l *sample) { l.collections["old"] = collection{name: "old.g2", storage: 100 << 20, free: 60 << 20} }, Bottleneck,
			"fragmented", []string{"MB of stream old are empty"}, "brim compact --stream old"},
		"sealing is behind": {foundUnsealed, func(l *sample) { l.path.writes.SealLag = 2 * 3600 }, Degrading,
			"unsealed", []string{"due for 2 h"}, "earlier releases"},
		"sealing is a day behind": {foundUnsealed, func(l *sample) { l.path.writes.SealLag = 25 * 3600 }, Bottleneck,
			"unsealed", []string{"due for 25 h"}, "check whether it is falling"},
		"a mongod without CPU time": {foundProcessor, func(l *sample) { l.server.figures[cpuUser] += 19 }, Bottleneck,
			"CPU-bound", []string{"CPU busy 95 %", "mongod uses 1.9 of 2 CPUs"}, "--granularity"},
		"a host without CPU time": {foundHostCPU, func(l *sample) { l.server.figures[cpuUser] += 2; l.machine = cpuTime{total: 120, busy: 69} }, Bottleneck,
			"CPU-bound", []string{"all processes on this host 95 %", "mongod uses 0.2 of 2 CPUs"}, "move what is not needed here"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			before, now := slowed()
			before.machine = cpuTime{total: 100, busy: 50}
			before.server.figures["cache_application_eviction_seconds_total"] = 0
			c.change(&now)
			s := newSeen(before, now, nil)
			found := Diagnose(s)
			require.Equal(t, []string{c.name}, names(found))
			for i := range found {
				f := &found[i]
				assert.Equal(t, Slow, f.Kind)
				assert.Equal(t, c.class, f.Class)
				assert.True(t, strings.HasPrefix(f.Cause, c.cause+": "), f.Cause)
				assert.Equal(t, found[0].Evidence, f.Evidence)
				assert.NotEmpty(t, f.Action)
				assert.NotEmpty(t, f.Cost)
			}
			for _, says := range c.says {
				assert.Contains(t, found[0].Evidence, says)
			}
			assert.True(t, slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Action, c.action) }), "%+v", found)
			assert.Equal(t, c.class, mostSevere(found))
			assert.Empty(t, diagnoseWith(&s, without(c.name)), "nothing else would tell")
		})
	}
}

// TestEveryDiagnosisHasACauseAndNoCycle: no diagnosis is, even indirectly, its own cause.
func TestEveryDiagnosisHasACauseAndNoCycle(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for i := range diagnoses {
		d := &diagnoses[i]
		assert.False(t, seen[d.name], d.name)
		seen[d.name] = true
		assert.Contains(t, d.cause, ": ", d.name)
		for _, cause := range d.because {
			assert.NotContains(t, reasonsOf(cause), d.name, "%s and %s cannot each be the other's reason", d.name, cause)
		}
	}
}

func reasonsOf(name string) []string {
	i := slices.IndexFunc(diagnoses, func(d diagnosis) bool { return d.name == name })
	out := slices.Clone(diagnoses[i].because)
	for _, reason := range diagnoses[i].because {
		out = append(out, reasonsOf(reason)...)
	}
	return out
}

func TestHealthyServerHasNoFindings(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	s := newSeen(before, now, nil)
	assert.Empty(t, Diagnose(s))
	assert.Equal(t, Healthy, worstOf(s.Signals))
	assert.InDelta(t, 10, s.OverSeconds, 1e-9)
	assert.Empty(t, s.Excused())
}

// TestAnIdleDiskIsNotSlow: the few operations of an idle machine may take long
// without delaying anything.
func TestAnIdleDiskIsNotSlow(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	work(&now, 0.1, 10, 4096, 9)
	s := newSeen(before, now, nil)
	assert.Equal(t, Healthy, s.Signal(diskAwait).Class)
	assert.Contains(t, s.Signal(diskAwait).Why, "nearly idle (busy 1 %)")
	assert.Empty(t, Diagnose(s))
}

// TestLargeOperationsTakeLong: an import keeps a quick disk waiting for its own
// writes, while quick syncs of the journal show that nothing else waits.
func TestLargeOperationsTakeLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy, each, sync float64 // s of 10 s; bytes; ms
		excused          bool
	}{
		"an import":              {1, 400 << 10, 1.2, true},
		"syncs wait, too":        {1, 400 << 10, 2.5, false},
		"of syncs nothing known": {1, 400 << 10, 0, false},
		"small operations":       {1, 16 << 10, 1.2, false},
		"a disk that is busy":    {6, 400 << 10, 1.2, false},
	} {
		before, now := slowed()
		for _, k := range []key{journalSyncs, "journal_sync_seconds_total"} {
			before.server.figures[k], now.server.figures[k] = 0, 0
		}
		if c.sync > 0 {
			now.server.figures[journalSyncs], now.server.figures["journal_sync_seconds_total"] = 800, 0.8*c.sync
		}
		work(&now, c.busy, 3000, c.each, 8)
		s := newSeen(before, now, nil)
		assert.Equal(t, c.excused, s.Signal(diskAwait).Class == Healthy, name)
		assert.Equal(t, c.excused, len(Diagnose(s)) == 0, name)
		assert.Equal(t, c.excused, strings.Contains(s.Signal(diskAwait).Why, "take long by nature"), name)
	}
}

// TestFewEvictedPagesAreHealthy, however short the interval.
func TestFewEvictedPagesAreHealthy(t *testing.T) {
	t.Parallel()
	for pages, want := range map[float64]Class{9: Healthy, 10: Degrading, 99: Degrading, 101: Bottleneck} {
		before, now := twoSamples()
		now.at = before.at.Add(time.Second)
		now.server.figures[appEvictions] += pages
		s := newSeen(before, now, nil)
		assert.Equal(t, want, s.Signal(applicationEvictions).Class, pages)
		assert.Equal(t, want == Healthy, strings.Contains(s.Signal(applicationEvictions).Why, "9 in all, which may be chance"), pages)
	}
}

// TestDirtyBeforeACheckpointIsNormal, whatever else is at its limit, until
// application threads must evict.
func TestDirtyBeforeACheckpointIsNormal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more  func(*sample)
		cache bool // it counts
	}{
		"alone":             {func(*sample) {}, false},
		"updates":           {func(l *sample) { l.server.figures[cacheUpdates] = 30 }, false},
		"a long checkpoint": {func(l *sample) { l.server.figures[checkpointLast] = 6 }, false},
		"tickets": {func(l *sample) {
			l.server.figures[writesAvailable], l.server.figures[writesInUse], l.server.figures[writesQueued] = 0, 4, 9
		}, false},
		"more of it":         {func(l *sample) { l.server.figures[cacheDirty] = 160 }, true},
		"clients that evict": {func(l *sample) { l.server.figures[appEvictions] += 100 }, true},
		"old versions that are not configured": {func(l *sample) {
			l.server.figures[historyInserts] += 11_000
			l.historyWindow = 0
		}, false},
		"old versions, and a client that evicts": {func(l *sample) {
			l.server.figures[historyInserts] += 11_000
			l.server.figures[appEvictions] += 3
			l.historyWindow = 0
		}, true},
	} {
		before, now := slowed()
		now.server.figures[cacheDirty] = 120
		c.more(&now)
		s := newSeen(before, now, nil)
		assert.GreaterOrEqual(t, s.Signal(cacheDirtyShare).Class, Degrading, "the threshold is as published")
		assert.Equal(t, c.cache, slices.Contains(names(Diagnose(s)), foundCache), name)
		assert.Equal(t, c.cache, s.Excused() == "", name)
		if !c.cache {
			assert.Contains(t, s.Excused(), "cache dirty 12 % is over its threshold, which is normal before a checkpoint", name)
		}
	}
}

// TestCausesComeBeforeTheirConsequences; otherwise the worst comes first.
func TestCausesComeBeforeTheirConsequences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(now *sample)
		want   []string
	}{
		"a slow disk makes checkpoints long, though that looks worse": {func(l *sample) {
			work(l, 6, 6000, 8192, 1)
			l.server.figures[checkpointLast] = 30
		}, []string{foundIOPS, foundCheckpoint}},
		"evictions keep tickets": {func(l *sample) {
			l.server.figures[appEvictions] += 50
			l.server.figures[writesAvailable], l.server.figures[writesInUse] = 0, 128
		}, []string{foundEviction, foundTickets}},
		"history fills the cache, and that evicts": {func(l *sample) {
			l.server.figures[historyInserts] += 40_000
			l.server.figures[cacheUsed], l.server.figures[cacheUpdates] = 960, 110
			l.server.figures[appEvictions] += 5000
		}, []string{foundHistory, foundCache, foundEviction}},
		"a slow reader on a slow machine": {func(l *sample) {
			l.server.figures[historyInserts] += 1500
			l.historyWindow = 0
			l.server.figures[cpuUser] += 19
		}, []string{foundProcessor, foundReaders}},
		"a cache that is too small takes CPU time": {func(l *sample) {
			l.server.figures[cacheUsed] = 910
			l.server.figures[cpuUser] += 19
		}, []string{foundCache, foundProcessor}},
		"unrelated: the worst first": {func(l *sample) {
			l.server.figures[checkpointLast] = 20
			l.server.figures[appEvictions] += 500
		}, []string{foundCheckpoint, foundEviction}},
		"unrelated: what costs disk alone is last": {func(l *sample) {
			l.server.figures[cpuUser] += 19
			l.collections["old"] = collection{name: "old", storage: 100 << 20, free: 60 << 20}
		}, []string{foundProcessor, foundFragmented}},
		"old versions that only leave with the cache's pages": {func(l *sample) {
			l.server.figures[historyInserts] += 26_000
			l.historyWindow = 0
			l.server.figures[cacheDirty] = 176
			l.server.figures[appEvictions] += 280
		}, []string{foundCache, foundEviction}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, now := slowed()
			c.change(&now)
			found := Diagnose(newSeen(before, now, nil))
			require.Equal(t, c.want, names(found))
			last := found[len(found)-1]
			assert.Equal(t, !strings.HasPrefix(name, "unrelated"), strings.Contains(last.Evidence, "It may follow from"), last.Evidence)
			if found[0].Name == foundCache && now.historyWindow == 0 {
				assert.Contains(t, found[0].Evidence, "history store 2,600 inserts/s (the history window is 0)")
			}
		})
	}
}

// TestDiskHasOneDiagnosisAtMost out of the three kinds of slow disk.
func TestDiskHasOneDiagnosisAtMost(t *testing.T) {
	t.Parallel()
	for _, busy := range []float64{0.2, 1, 5, 7.9, 8, 8.1, 10} {
		for _, each := range []float64{4096, 65535, 65536, 1 << 20} {
			for _, await := range []float64{0.1, 0.5, 2, 2.1, 100} {
				before, now := slowed()
				work(&now, busy, 1000, each, await)
				s := newSeen(before, now, nil)
				want := 0
				if s.worst(diskBusy) == Bottleneck || s.worst(diskAwait) >= Degrading && await > 0.5 { // 0.5 ms does not explain 12
					want = 1
				}
				assert.Len(t, names(Diagnose(s)), want, "busy %g, bytes %g, await %g", busy, each, await)
			}
		}
	}
}

// TestUnmeasuredSignalsAreReported once per reason, with what would help.
func TestUnmeasuredSignalsAreReported(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	now.disk = unseenDisk(whyElsewhere)
	now.cores, now.coresWhy = 0, whyNoHostInfo
	s := newSeen(before, now, nil)
	found := Diagnose(s)
	require.Equal(t, []string{"unseen_disk", "unseen_permission"}, names(found))
	assert.Equal(t, "not measured: disk busy, disk latency, disk space free", found[0].Cause)
	assert.Equal(t, whyElsewhere, found[0].Evidence)
	assert.Contains(t, found[0].Action, "--disk")
	assert.Contains(t, found[1].Action, "clusterMonitor")
	assert.Equal(t, Unknown, found[0].Class)
	assert.Equal(t, Healthy, worstOf(s.Signals), "what is not known does not count")

	one := newSeen(sample{historyWindow: math.NaN(), disk: unseenDisk(whyNoSample)}, now, nil)
	assert.Zero(t, one.OverSeconds)
	assert.Contains(t, names(Diagnose(one)), "unseen_rate")
	nothing := newSeen(sample{}, sample{serverWhy: whyAway, disk: unseenDisk(whyUnasked)}, nil)
	assert.Equal(t, Unknown, worstOf(nothing.Signals))
	assert.Empty(t, slowOnes(Diagnose(nothing)), "it was not asked yet")
}

// TestEveryReasonHasHelp: each reason for an unknown signal has an action.
func TestEveryReasonHasHelp(t *testing.T) {
	t.Parallel()
	for _, why := range []string{
		whyFirst, whyRestarted, whyNoSample, whyAway, whyRefused, whyNotPermitted, whyMongos, whyElsewhere, whyNoPath, whyUnasked, whyNoRead, whyNoHostInfo,
		whyCoresUnasked, whyNoCollection, whyNoCheckpoint, "the file system overlay names no disk", "/proc/diskstats cannot be read",
		"the dbPath cannot be examined: no such file",
	} {
		h := helpFor(why)
		assert.NotEqual(t, "unseen_other", h.name, why)
		assert.NotEmpty(t, h.action, why)
	}
	assert.Equal(t, "unseen_other", helpFor(whyOtherEngine).name)
}

// newSeen compares two samples; t nil: by the built-in thresholds.
func newSeen(before, now sample, t *Thresholds) Seen {
	return newView(now, *newView(before, view{}, t), t).Seen
}

// TestEveryVersionIsDiagnosed: the formats of MongoDB 6, 7 and 8 give the same
// diagnosis.
func TestEveryVersionIsDiagnosed(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"serverstatus-6.0.5.json", "serverstatus-7.0.json", "serverstatus-8.0.json"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			at := func(seconds int) sample {
				s, why := parseStatus(recorded(t, file), noon.Add(time.Duration(seconds)*time.Second))
				require.Empty(t, why)
				s.uptime += float64(seconds)
				_, l := slowed()
				l.at, l.server, l.disk.at = noon.Add(time.Duration(seconds)*time.Second), s, noon.Add(time.Duration(seconds)*time.Second)
				return l
			}
			before, now := at(0), at(10)
			for _, k := range []key{cacheDirty, cacheUpdates} {
				now.server.figures[k] = 0
			}
			now.server.figures[checkpointLast] = 1
			require.Empty(t, Diagnose(newSeen(before, now, nil)), "idle")

			now.server.figures[cacheDirty] = 0.18 * now.server.figures[cacheMax]
			now.server.figures[appEvictions] += 3000
			now.server.figures[historyInserts] += 300_000
			now.server.figures[checkpointLast] = 20
			now.server.figures[cpuUser] += 19.5
			now.server.figures[writesAvailable], now.server.figures[writesInUse], now.server.figures[writesQueued] = 0, 10, 4
			assert.Equal(t, []string{foundHistory, foundCache, foundEviction, foundProcessor, foundCheckpoint, foundTickets}, names(Diagnose(newSeen(before, now, nil))))
		})
	}
}

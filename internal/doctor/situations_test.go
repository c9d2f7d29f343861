package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTenSituations: each is named by its cause, and nothing that is below its
// limit is blamed. A busy resource is no finding while writes take as long as
// usual.
func TestTenSituations(t *testing.T) {
	t.Parallel()
	const slow = 0.05 // of a write path that usually takes 5 ms
	cpu := func(l *sample, mongod, all float64) {
		l.server.figures[cpuUser] += 20 * mongod
		l.machine = cpuTime{total: 120, busy: 50 + 20*all}
	}
	for situation, c := range map[string]struct {
		change func(now *sample)
		path   float64 // seconds of an update; 0: idle
		found  []string
		class  Class
		says   string
	}{
		"idle": {func(*sample) {}, 0, nil, Healthy, ""},
		"idle, other processes eat 75 % of the CPU":               {func(l *sample) { cpu(l, 0.04, 0.75) }, 0, nil, Healthy, ""},
		"idle, other processes eat all of the CPU":                {func(l *sample) { cpu(l, 0.04, 1) }, 0, nil, Healthy, ""},
		"CPU eaten by other processes, writes as usual":           {func(l *sample) { cpu(l, 0.04, 1) }, 0.006, nil, Healthy, ""},
		"CPU three quarters busy, writes slow for something else": {func(l *sample) { cpu(l, 0.04, 0.75) }, slow, nil, Healthy, ""},
		"CPU eaten by other processes, writes slow": {func(l *sample) { cpu(l, 0.04, 0.97) }, slow, []string{foundHostCPU}, Bottleneck,
			"CPU busy 97 %; mongod uses 0.08 of 2 CPUs, and all processes on this host 97 %; updates take 50 ms, usually 5 ms"},
		"CPU eaten by other processes, writes a little slow": {func(l *sample) { cpu(l, 0.04, 0.97) }, 0.02, []string{foundHostCPU}, Degrading, "updates take 20 ms, usually 5 ms"},
		"CPU eaten by mongod":                                {func(l *sample) { cpu(l, 0.9, 0.97) }, slow, []string{foundProcessor}, Bottleneck, "mongod uses 1.8 of 2 CPUs"},
		"slow disk":                                          {func(l *sample) { work(l, 3, 1000, 8192, 5) }, slow, []string{foundLatency}, Bottleneck, "disk latency 5 ms"},
		"a disk of 3 ms, and writes that take 500":           {func(l *sample) { work(l, 3, 1000, 8192, 3) }, 0.5, nil, Healthy, ""},
		"slow disk that nothing waits for":                   {func(l *sample) { work(l, 3, 1000, 8192, 5) }, 0, nil, Healthy, ""},
		"full disk":                                          {func(l *sample) { l.disk.size, l.disk.free, l.disk.path = 10e9, 4e6, "/data/db" }, slow, []string{foundDiskFull}, Bottleneck, "of the 10,000 MB under /data/db 4 MB are free"},
		"full disk that has ended MongoDB": {func(l *sample) {
			l.disk.size, l.disk.free, l.disk.path = 10e9, 4e6, "/data/db"
			l.server, l.answered, l.serverWhy, l.away = nil, false, whyAway, "connection refused"
		}, slow, []string{foundDiskFull, foundAway}, Bottleneck, "4 MB are free"},
		"stopped mongod": {func(l *sample) {
			work(l, 3, 1000, 8192, 20)
			l.server, l.answered, l.serverWhy, l.away = nil, false, whyAway, "no reply to any ping within 2s"
			l.machine = cpuTime{total: 120, busy: 70}
		}, 8, []string{foundAway}, Bottleneck, "no reply to any ping within 2s"},
		"history window":                  {func(l *sample) { l.server.figures[historyInserts] += 40_000; l.historyWindow = 300 }, slow, []string{foundHistory}, Degrading, "minSnapshotHistoryWindowInSeconds is 300"},
		"history window, writes as usual": {func(l *sample) { l.server.figures[historyInserts] += 40_000; l.historyWindow = 300 }, 0.005, nil, Healthy, ""},
		"cache pressure": {func(l *sample) {
			l.server.figures[cacheUsed], l.server.figures[appEvictions] = 970, 5040
		}, slow, []string{foundCache, foundEviction}, Bottleneck, "cache used 97 %"},
		"tickets": {func(l *sample) {
			l.server.figures[writesAvailable], l.server.figures[writesInUse], l.server.figures[writesQueued] = 0, 4, 9
		}, 6, []string{foundTickets}, Bottleneck, "write tickets available 0 %"},
		"network delay":                         {func(l *sample) { l.roundTrip = 0.2 }, 0.21, []string{foundNetwork}, Bottleneck, "a ping takes 200 ms"},
		"network delay on a busy host":          {func(l *sample) { l.roundTrip = 0.2; cpu(l, 0.04, 0.97); work(l, 3, 1000, 8192, 5) }, 0.21, []string{foundNetwork}, Bottleneck, "a ping takes 200 ms"},
		"MongoDB that has always been far away": {func(l *sample) { l.roundTrip = 0.09; l.path.Baseline = 0.095 }, 0.1, nil, Healthy, ""},
	} {
		t.Run(situation, func(t *testing.T) {
			t.Parallel()
			before, now := twoSamples()
			before.machine = cpuTime{total: 100, busy: 50}
			now.path.Seconds, now.path.Idle = c.path, c.path == 0
			c.change(&now)
			seen := newSeen(before, now, nil)
			found := slowOnes(Diagnose(seen))
			assert.Equal(t, c.found, names(found))
			assert.Equal(t, c.class, mostSevere(found))
			if c.says != "" {
				require.NotEmpty(t, found)
				assert.Contains(t, found[0].Evidence, c.says)
			}
		})
	}
}

// TestNoteExplainsSignalsWithoutFindings: a signal is over its threshold, or writes are slow
// for no visible reason.
func TestNoteExplainsSignalsWithoutFindings(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	before.machine, now.machine = cpuTime{total: 100, busy: 50}, cpuTime{total: 120, busy: 65}
	seen := newSeen(before, now, nil)
	assert.Equal(t, "CPU busy 75 % (degrading from 70 %), but writes are not slower than usual: updates take 5 ms, usually 5 ms", seen.Excused())
	now.path.Seconds = 0.05
	seen = newSeen(before, now, nil)
	assert.Empty(t, Diagnose(seen))
	assert.Contains(t, seen.Excused(), "writes are slower than usual (updates take 50 ms, usually 5 ms), and no resource is at its limit")
}

// A told is what a daemon counts, sample by sample.
type told []Writes

func (w *told) next() (Writes, error) {
	first := (*w)[0]
	*w = (*w)[1:]
	return first, nil
}

// steadily are samples of a daemon whose updates all take the same time.
func steadily(from Writes, looks int, updates, each float64) told {
	var out told
	for range looks {
		from.Updates += updates
		from.Seconds += updates * each
		out = append(out, from)
	}
	return out
}

func TestBaselineIsLearnedWhileWritesAreNotSlow(t *testing.T) {
	t.Parallel()
	w := steadily(Writes{}, 20, 100, 0.004)
	last := w[len(w)-1]
	slow := steadily(last, 1000, 100, 0.2)
	w = append(w, slow...)
	last = slow[len(slow)-1]
	idle, hangs := last, last
	hangs.Overdue = 7
	w = append(w, idle, idle, idle, hangs)
	p := NewPace(w.next)
	var path WritePath
	assert.Equal(t, whyFirst, p.Sample(t.Context()).Why)
	for range 19 {
		path = p.Sample(t.Context())
		assert.InDelta(t, 0.004, path.Seconds, 1e-9)
	}
	assert.InDelta(t, 0.004, path.Baseline, 1e-9)
	assert.InDelta(t, 1, path.slowdown(), 1e-6)
	for range slow {
		path = p.Sample(t.Context())
	}
	assert.InDelta(t, 50, path.slowdown(), 1e-6, "an hour of slow writes is not usual")
	for range 3 {
		path = p.Sample(t.Context())
	}
	assert.True(t, path.Idle)
	assert.InDelta(t, 1, path.slowdown(), 0)
	path = p.Sample(t.Context())
	assert.False(t, path.Idle)
	assert.InDelta(t, 7/0.004, path.slowdown(), 1e-6, "nothing is stored, and readings wait")
}

// TestAPathThatWasAlwaysSlowIsSlow, although there is no better baseline.
func TestAPathThatWasAlwaysSlowIsSlow(t *testing.T) {
	t.Parallel()
	w := steadily(Writes{}, 30, 10, 0.6)
	p := NewPace(w.next)
	var path WritePath
	for range 30 {
		path = p.Sample(t.Context())
	}
	assert.InDelta(t, 6, path.slowdown(), 1e-6)
	assert.Empty(t, path.measure().harmless)
}

// TestWritePathFromTheServersCounters, where no daemon reports how long its writes take.
func TestWritePathFromTheServersCounters(t *testing.T) {
	t.Parallel()
	const latency = "operation_seconds_total write"
	for name, c := range map[string]struct {
		change func(before, now *sample)
		value  float64 // 0: unknown
	}{
		"as before":             {func(_, now *sample) { now.server.figures[operationsWrite] += 50; now.server.figures[latency] += 0.2 }, 1},
		"slow":                  {func(_, now *sample) { now.server.figures[operationsWrite] += 50; now.server.figures[latency] += 2 }, 10},
		"nothing is written":    {func(_, _ *sample) {}, 1},
		"what is written hangs": {func(_, now *sample) { now.server.figures[writesInUse] = 4 }, 2500},
		"too little was written so far": {func(before, now *sample) {
			before.server.figures[operationsWrite] = 2
			now.server.figures[operationsWrite] = 10
		}, 0},
	} {
		before, now := twoSamples()
		for _, l := range []*sample{&before, &now} {
			l.server.figures[operationsWrite], l.server.figures[latency] = 1000, 4
		}
		c.change(&before, &now)
		path := pathOfServer(before, now, ratesBetween(before, now))
		if c.value == 0 {
			assert.NotEmpty(t, path.Why, name)
			continue
		}
		assert.InDelta(t, c.value, path.slowdown(), 1e-6, name)
	}
	before, now := twoSamples()
	now.at = before.at.Add(time.Second)
	now.server.pid++
	assert.Equal(t, whyRestarted, pathOfServer(before, now, ratesBetween(before, now)).Why)
}

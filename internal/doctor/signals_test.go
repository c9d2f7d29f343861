package doctor

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClassesAtTheirBounds checks every signal on both sides of each bound.
func TestClassesAtTheirBounds(t *testing.T) {
	t.Parallel()
	type bounds struct{ healthy, degrading, stillDegrading, bottleneck float64 }
	want := map[string]bounds{
		diskBusy:             {49.9, 50, 80, 80.1},
		diskFree:             {20, 19.9, 10.1, 10},
		cacheDirtyShare:      {4.9, 5, 15, 15.1},
		cacheUpdatesShare:    {2.4, 2.5, 10, 10.1},
		cacheUsedShare:       {89.9, 90, 95, 95.1},
		applicationEvictions: {0.9, 1, 100, 101},
		checkpointDuration:   {4.9, 5, 15, 15.1},
		historyStore:         {99, 100, 10_000, 10_001},
		writeTickets:         {20, 19.9, 5.1, 5},
		readTickets:          {20, 19.9, 5.1, 5},
		fragmentation:        {19.9, 20, 50, 50.1},
		processor:            {69.9, 70, 90, 90.1},
		writeSlowdown:        {1.9, 2, 5, 5.1},
	}
	disks := map[diskKind]bounds{
		diskNVMe:    {0.49, 0.5, 2, 2.1},
		diskSSD:     {1.9, 2, 10, 10.1},
		diskHDD:     {9.9, 10, 25, 25.1},
		diskUnknown: {1.9, 2, 10, 10.1},
	}
	check := func(name string, threshold Threshold, b bounds) {
		assert.Equal(t, Healthy, threshold.Class(b.healthy), name)
		assert.Equal(t, Degrading, threshold.Class(b.degrading), name)
		assert.Equal(t, Degrading, threshold.Class(b.stillDegrading), name)
		assert.Equal(t, Bottleneck, threshold.Class(b.bottleneck), name)
	}
	for _, r := range signalRules {
		if r.name != diskAwait {
			require.Contains(t, want, r.name)
			check(r.name, r.threshold, want[r.name])
			assert.NotEmpty(t, r.source, r.name)
		}
		assert.NotEmpty(t, r.means, r.name)
	}
	require.Len(t, signalRules, len(want)+1)
	for kind, b := range disks {
		check("disk_await of "+string(kind), awaits[kind].threshold, b)
		assert.NotEmpty(t, awaits[kind].source)
	}
	require.Len(t, awaits, len(disks))
}

// twoSamples are ten seconds of an idle server and disk.
func twoSamples() (before, now sample) {
	figures := func() map[key]float64 {
		return map[key]float64{
			cacheMax: 1000, cacheUsed: 100, cacheDirty: 10, cacheUpdates: 5, appEvictions: 40, historyInserts: 70, checkpoints: 3, checkpointLast: 0.5,
			cpuUser: 20, cpuSystem: 5, readsAvailable: 128, readsInUse: 0, readsQueued: 0, writesAvailable: 128, writesInUse: 0, writesQueued: 0,
		}
	}
	at := func(seconds float64) sample {
		return sample{
			at: noon.Add(time.Duration(seconds) * time.Second), answered: true, roundTrip: 0.0005, cores: 2, path: WritePath{Seconds: 0.005, Baseline: 0.005}, historyWindow: math.NaN(), server: &status{host: "db1", pid: 7, uptime: seconds, figures: figures()},
			collections: map[string]collection{"readings": {name: "readings", storage: 1 << 30, free: 1 << 20}},
			disk:        diskSample{at: noon.Add(time.Duration(seconds) * time.Second), device: "nvme0n1", kind: diskNVMe, size: 100e9, free: 60e9, reads: 100, writes: 100, busySeconds: 5, waitSeconds: 1},
		}
	}
	return at(100), at(110)
}

// slowed are samples of a daemon whose updates take six times as long as usual.
func slowed() (before, now sample) {
	before, now = twoSamples()
	now.path = WritePath{Seconds: 0.015, Baseline: 0.0025}
	return before, now
}

func classes(before, now sample) map[string]Signal {
	out := make(map[string]Signal)
	for _, s := range signals(now, ratesBetween(before, now), nil) {
		out[s.Name] = s
	}
	return out
}

// TestEachSignalIsSeen changes one thing at a time: only the signal for it
// reacts.
func TestEachSignalIsSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal string
		change func(now *sample)
		value  float64
		class  Class
	}{
		"nothing":                    {"", func(*sample) {}, 0, Healthy},
		"a busy disk":                {diskBusy, func(l *sample) { l.disk.busySeconds += 6 }, 60, Degrading},
		"a disk that is always busy": {diskBusy, func(l *sample) { l.disk.busySeconds += 10.2 }, 100, Bottleneck},
		"a slow disk":                {diskAwait, func(l *sample) { l.disk.writes += 100; l.disk.busySeconds++; l.disk.waitSeconds += 0.1 }, 1, Degrading},
		"a very slow disk": {diskAwait, func(l *sample) {
			l.disk.reads += 50
			l.disk.writes += 50
			l.disk.busySeconds++
			l.disk.waitSeconds += 0.3
		}, 3, Bottleneck},
		"a disk that fills up":           {diskFree, func(l *sample) { l.disk.free = 15e9 }, 15, Degrading},
		"a disk that is nearly full":     {diskFree, func(l *sample) { l.disk.free = 10e9 }, 10, Bottleneck},
		"a mongod that works hard":       {processor, func(l *sample) { l.server.figures[cpuUser] += 13; l.server.figures[cpuSystem] += 3 }, 80, Degrading},
		"a dirty cache":                  {cacheDirtyShare, func(l *sample) { l.server.figures[cacheDirty] = 160 }, 16, Bottleneck},
		"a cache of updates":             {cacheUpdatesShare, func(l *sample) { l.server.figures[cacheUpdates] = 30 }, 3, Degrading},
		"a cache that is full and well":  {"", func(l *sample) { l.server.figures[cacheUsed] = 810 }, 0, Healthy},
		"an overfull cache":              {cacheUsedShare, func(l *sample) { l.server.figures[cacheUsed] = 960 }, 96, Bottleneck},
		"clients' threads that evict":    {applicationEvictions, func(l *sample) { l.server.figures[appEvictions] += 50 }, 5, Degrading},
		"clients' threads evicting much": {applicationEvictions, func(l *sample) { l.server.figures[appEvictions] += 5000 }, 500, Bottleneck},
		"a long checkpoint":              {checkpointDuration, func(l *sample) { l.server.figures[checkpointLast] = 6 }, 6, Degrading},
		"history that is kept":           {historyStore, func(l *sample) { l.server.figures[historyInserts] += 200_000 }, 20_000, Bottleneck},
		"few write tickets":              {writeTickets, func(l *sample) { l.server.figures[writesAvailable], l.server.figures[writesInUse] = 10, 90 }, 10, Degrading},
		"no read tickets":                {readTickets, func(l *sample) { l.server.figures[readsAvailable], l.server.figures[readsInUse] = 0, 128 }, 0, Bottleneck},
		"a file with holes":              {fragmentation, func(l *sample) { l.collections["other"] = collection{storage: 100 << 20, free: 60 << 20} }, 60, Bottleneck},
		"a small file with holes":        {"", func(l *sample) { l.collections["other"] = collection{storage: 1 << 20, free: 1 << 19} }, 0, Healthy},
		"slow writes":                    {writeSlowdown, func(l *sample) { l.path.Seconds = 0.02 }, 4, Degrading},
		"writes that hang":               {writeSlowdown, func(l *sample) { l.path.Seconds = 10 }, 2000, Bottleneck},
		"nothing is written":             {"", func(l *sample) { l.path = WritePath{Idle: true} }, 0, Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, now := twoSamples()
			c.change(&now)
			got := classes(before, now)
			require.Len(t, got, len(signalRules))
			for _, s := range got {
				if s.Name == c.signal {
					assert.InDelta(t, c.value, s.Value, 1e-9)
					assert.Equal(t, c.class, s.Class)
					assert.NotEmpty(t, s.Why)
					continue
				}
				assert.Equal(t, Healthy, s.Class, s.Name)
				assert.Empty(t, s.Why, s.Name)
			}
		})
	}
}

func TestFewTicketsMatterOnlyIfOperationsWait(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	now.server.version = "7.0.14"
	now.server.figures[writesAvailable], now.server.figures[writesInUse] = 0, 4
	got := classes(before, now)[writeTickets]
	assert.Equal(t, Healthy, got.Class)
	assert.Contains(t, got.Why, "no operation waits")
	now.server.figures[writesQueued] = 3
	assert.Equal(t, Bottleneck, classes(before, now)[writeTickets].Class)
}

func TestUnknownSignalsSayWhy(t *testing.T) {
	t.Parallel()
	ofEngine := []string{cacheDirtyShare, cacheUpdatesShare, cacheUsedShare, applicationEvictions, checkpointDuration, historyStore, writeTickets, readTickets, processor}
	ofDisk := []string{diskBusy, diskAwait, diskFree}
	for name, c := range map[string]struct {
		change  func(before, now *sample)
		unknown []string
		why     string
	}{
		"MongoDB was and is away": {func(before, now *sample) {
			before.server, before.serverWhy = nil, whyAway
			now.server, now.serverWhy = nil, whyAway
		}, ofEngine, whyAway},
		"it may not tell, as before": {func(before, now *sample) {
			before.server, now.server, now.serverWhy = nil, nil, whyNotPermitted
		}, ofEngine, whyNotPermitted},
		"MongoDB is away":        {func(_, now *sample) { now.server, now.serverWhy, now.answered = nil, whyAway, false }, ofEngine, whyAway},
		"it may not tell":        {func(_, now *sample) { now.server, now.serverWhy = nil, whyNotPermitted }, ofEngine, whyNotPermitted},
		"it lacks a statistic":   {func(_, now *sample) { delete(now.server.figures, cacheDirty) }, []string{cacheDirtyShare}, whyMissing},
		"the first sample":       {func(before, _ *sample) { *before = sample{disk: unseenDisk(whyNoSample)} }, []string{diskBusy, diskAwait, applicationEvictions, historyStore, processor}, whyFirst},
		"it was started anew":    {func(_, now *sample) { now.server.uptime = 1 }, []string{applicationEvictions, historyStore, processor}, whyRestarted},
		"another is primary":     {func(_, now *sample) { now.server.host = "db2" }, []string{applicationEvictions, historyStore, processor}, whyRestarted},
		"the disk is elsewhere":  {func(_, now *sample) { now.disk = unseenDisk(whyElsewhere) }, ofDisk, whyElsewhere},
		"the disk is another":    {func(_, now *sample) { now.disk.device = "sda" }, []string{diskBusy, diskAwait}, whyFirst},
		"no sizes are reported":  {func(_, now *sample) { now.collections = map[string]collection{"readings": unseenCollection(whyNoRead)} }, []string{fragmentation}, whyNoRead},
		"there is no collection": {func(_, now *sample) { now.collections = nil }, []string{fragmentation}, whyNoCollection},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, now := twoSamples()
			c.change(&before, &now)
			var unknown []string
			for _, s := range signals(now, ratesBetween(before, now), nil) {
				if s.Class != Unknown {
					continue
				}
				unknown = append(unknown, s.Name)
				assert.True(t, math.IsNaN(s.Value), s.Name)
				assert.Equal(t, c.why, s.Why, s.Name)
			}
			assert.ElementsMatch(t, c.unknown, unknown)
		})
	}
}

func TestSignalsAreJSON(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	now.server.figures[cacheDirty] = 60
	now.disk = unseenDisk(whyElsewhere)
	got := classes(before, now)
	dirty, err := json.Marshal(got[cacheDirtyShare])
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"cache_dirty","title":"Cache dirty","value":6,"unit":"%","class":"degrading","threshold":{"degrading":5,"bottleneck":15},
		"source":"published","why":"pages are changed faster than they are written: the engine evicts them from 5 % on, and at 20 % application threads must"}`, string(dirty))
	busy, err := json.Marshal(got[diskBusy])
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"disk_busy","title":"Disk busy","value":null,"unit":"%","class":"unknown","threshold":{"degrading":50,"bottleneck":80},
		"source":"published","why":"MongoDB does not run on this machine"}`, string(busy))
	assert.Equal(t, "degrading from 2.5 %, bottleneck over 10 %", got[cacheUpdatesShare].Describe())
	assert.Equal(t, "degrading under 20 %, bottleneck at 5 % or less", got[readTickets].Describe())
}

// TestFreeSpaceOfASmallFileIsHealthy, which matches what compact reports.
func TestFreeSpaceOfASmallFileIsHealthy(t *testing.T) {
	t.Parallel()
	small := collection{storage: 25 << 20, free: 12 << 20}
	for name, c := range map[string]struct {
		there map[string]collection
		value float64
		class Class
		why   string
	}{
		"only a small file":      {map[string]collection{"a": small}, 48, Healthy, "no file is larger than 64 MiB"},
		"beside a larger one":    {map[string]collection{"a": small, "b": {storage: 100 << 20, free: 10 << 20}}, 10, Healthy, ""},
		"beside one with holes":  {map[string]collection{"a": small, "b": {storage: 100 << 20, free: 30 << 20}}, 30, Degrading, "compact"},
		"nothing is free":        {map[string]collection{"a": {storage: 4096}}, 0, Healthy, ""},
		"it is not there yet":    {map[string]collection{"a": {missing: true}}, 0, Healthy, ""},
		"beside one not told":    {map[string]collection{"a": small, "b": unseenCollection(whyNoRead)}, 48, Healthy, "no file is larger than 64 MiB"},
		"its size is not told":   {map[string]collection{"a": unseenCollection(whyNoRead)}, math.NaN(), Unknown, whyNoRead},
		"there is no collection": {nil, math.NaN(), Unknown, whyNoCollection},
	} {
		_, now := twoSamples()
		now.collections = c.there
		seen := Seen{Signals: signals(now, rates{}, nil)}
		assert.Equal(t, c.value == 48, strings.Contains(seen.Excused(), "free space inside files 48 %: no file is larger than 64 MiB"), name)
		for _, s := range seen.Signals {
			if s.Name != fragmentation {
				continue
			}
			assert.Equal(t, c.class, s.Class, name)
			assert.Contains(t, s.Why, c.why, name)
			assert.Equal(t, math.IsNaN(c.value), math.IsNaN(s.Value), name)
			if !math.IsNaN(c.value) {
				assert.InDelta(t, c.value, s.Value, 1e-9, name)
			}
		}
	}
}

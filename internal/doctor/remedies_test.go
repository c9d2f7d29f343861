package doctor

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// actions are the actions for one diagnosis.
func actions(name string, s *Seen) (texts []string) {
	for i := range diagnoses {
		for _, r := range diagnoses[i].remedies {
			if diagnoses[i].name == name && (r.when == nil || r.when(s)) {
				texts = append(texts, r.fill(s))
			}
		}
	}
	return texts
}

// TestMoreCacheOnlyWhereThereIsMemory: with a cache larger than the memory, the
// system would kill mongod.
func TestMoreCacheOnlyWhereThereIsMemory(t *testing.T) {
	t.Parallel()
	const gibi = 1 << 30
	for name, c := range map[string]struct {
		cache, memory float64
		says          string
	}{
		"twice what it has":              {1 * gibi, 64 * gibi, "cache_size=2048M"},
		"no more than mongod would take": {10 * gibi, 32 * gibi, "cache_size=15872M"},
		"it has its part":                {100 * gibi, 128 * gibi, "add memory to MongoDB's machine and give the engine's cache its share: the cache already has 107,374 MB of 137,439 MB"},
		"it has nearly its part":         {14 * gibi, 32 * gibi, "add memory"},
		"how much there is is not told":  {1 * gibi, 0, "cache_size=2048M"},
		"nothing is told":                {0, 0, "cache_size=2G"},
	} {
		s := Seen{Server: Server{CacheBytes: c.cache, MemoryBytes: c.memory}}
		assert.Contains(t, actions(foundEviction, &s)[1], c.says, name)
	}
}

func TestMemoryIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		system bson.D
		want   float64
	}{
		"of the machine":   {bson.D{{Key: "memSizeMB", Value: int64(2048)}}, 2 << 30},
		"of its container": {bson.D{{Key: "memSizeMB", Value: int64(2048)}, {Key: "memLimitMB", Value: 512.0}}, 512 << 20},
		"not told":         {bson.D{}, 0},
	} {
		raw, err := bson.Marshal(bson.D{{Key: "system", Value: c.system}})
		require.NoError(t, err)
		assert.InDelta(t, c.want, memoryOf(raw), 0, name)
	}
	assert.Zero(t, memoryOf(bson.Raw{1, 2}))
}

// TestOtherUsersOfTheDiskAreTheFirstRemedy if most of the traffic is not MongoDB's.
func TestOtherUsersOfTheDiskAreTheFirstRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, each float64 // bytes: of MongoDB in all; per operation
		want      string
		others    bool
	}{
		"a copy of files": {200e6, 512 << 10, foundThroughput, true},
		"an import":       {1900e6, 512 << 10, foundThroughput, false},
		"another's index": {10e6, 8 << 10, foundIOPS, true},
		"appends":         {20e6, 8 << 10, foundIOPS, false},
	} {
		before, now := slowed()
		for _, k := range []key{"block_written_bytes_total", "journal_written_bytes_total", "cache_read_bytes_total"} {
			before.server.figures[k], now.server.figures[k] = 7, 7
		}
		now.server.figures["block_written_bytes_total"] += c.own
		work(&now, 9.5, 4000, c.each, 6)
		s := newSeen(before, now, nil)
		found := Diagnose(s)
		require.Equal(t, []string{c.want}, names(found), name)
		assert.Equal(t, c.others, strings.Contains(found[0].Action, "what else uses the disk"), name)
		assert.Equal(t, c.others, strings.Contains(found[0].Evidence, "the rest is other programs'"), name)
	}
}

// TestJournalSyncsDescribeARemoteDisk, whose counters cannot be read.
func TestJournalSyncsDescribeARemoteDisk(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	now.disk = unseenDisk(whyElsewhere)
	for _, k := range []key{journalSyncs, "journal_sync_seconds_total"} {
		before.server.figures[k], now.server.figures[k] = 0, 0
	}
	s := newSeen(before, now, nil)
	assert.Equal(t, whyElsewhere, Diagnose(s)[0].Evidence, "there was none")
	now.server.figures[journalSyncs], now.server.figures["journal_sync_seconds_total"] = 50, 2
	s = newSeen(before, now, nil)
	assert.Contains(t, Diagnose(s)[0].Evidence, whyElsewhere+"; what is known of it: a sync of MongoDB's journal, which writes wait for, took 40 ms")
}

// TestStandaloneServerHasNoAdviceAboutMembers, since it has none that may lag.
func TestStandaloneServerHasNoAdviceAboutMembers(t *testing.T) {
	t.Parallel()
	for topology, member := range map[string]bool{"standalone": false, "replica_set": true} {
		before, now := slowed()
		now.server.topology = topology
		now.server.figures[historyInserts] += 40_000
		now.historyWindow = 0
		found := Diagnose(newSeen(before, now, nil))
		require.Equal(t, []string{foundReaders}, names(found))
		assert.Equal(t, member, strings.Contains(found[0].Evidence, "member"), topology)
		assert.Len(t, found, map[bool]int{false: 1, true: 2}[member], topology)
	}
}

// TestFirstRemedyOfABusyCPU depends on what uses it.
func TestFirstRemedyOfABusyCPU(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, all float64 // of two CPUs; % of the machine
		first    string
	}{
		"others do":                   {0.2, 95, "what else runs on this host"},
		"mongod does":                 {1.8, 95, "merge more readings"},
		"how much is its is not told": {math.NaN(), 95, "find what runs on this host"},
		"it is seen alone":            {1.8, math.NaN(), "merge more readings"},
	} {
		s := Seen{Server: Server{Processors: 2}, Rates: []Rate{{Name: rateProcessors, Value: c.own}, {Name: rateMachineBusy, Value: c.all}}}
		assert.Contains(t, actions(foundProcessor, &s)[0], c.first, name)
	}
}

// TestCPUUseOfOtherProcesses, which may include brim serve.
func TestCPUUseOfOtherProcesses(t *testing.T) {
	t.Parallel()
	s := Seen{Server: Server{Processors: 2}, Rates: []Rate{{Name: rateProcessors, Value: 0.02}, {Name: rateMachineBusy, Value: 97.8}}}
	assert.Contains(t, actions(foundProcessor, &s)[0], "everything except mongod, including brim serve if it runs here, takes 96.8 % of the CPU, and mongod 1 %")
}

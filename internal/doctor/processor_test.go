package doctor

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestProcessorSignalIsTheLargerOfServerAndHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(before, now *sample)
		value  float64
		about  string
	}{
		"mongod alone can be seen":            {func(_, now *sample) { now.server.figures[cpuUser] += 8 }, 40, ""},
		"mongod has most of the machine's":    {func(before, now *sample) { now.server.figures[cpuUser] += 8; machines(before, now, 0.4) }, 40, ""},
		"others keep the machine busy":        {func(before, now *sample) { now.server.figures[cpuUser] += 8; machines(before, now, 0.6) }, 60, "counts all processes on the host; mongod's own share is 40 %"},
		"how many there are is not told":      {func(before, now *sample) { now.cores, now.coresWhy = 0, whyNoHostInfo; machines(before, now, 0.6) }, 60, "counts all processes on the host; mongod's own share is unknown: " + whyNoHostInfo},
		"neither can be seen":                 {func(_, now *sample) { now.cores, now.coresWhy = 0, whyNoHostInfo }, math.NaN(), whyNoHostInfo},
		"it was started anew, elsewhere":      {func(_, now *sample) { now.server.pid++ }, math.NaN(), whyRestarted},
		"the machine was seen once":           {func(_, now *sample) { now.server.figures[cpuUser] += 8; now.machine = cpuTime{total: 5, busy: 5} }, 40, ""},
		"the machine's counters began anew":   {func(before, now *sample) { now.server.figures[cpuUser] += 8; machines(now, before, 1) }, 40, ""},
		"more than all is told as it is seen": {func(_, now *sample) { now.server.figures[cpuUser] += 30 }, 150, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, now := twoSamples()
			c.change(&before, &now)
			got := classes(before, now)[processor]
			if math.IsNaN(c.value) {
				assert.Equal(t, Unknown, got.Class)
				assert.Equal(t, c.about, got.Why)
				return
			}
			assert.InDelta(t, c.value, got.Value, 1e-9)
			if got.Class == Healthy {
				assert.Equal(t, c.about, got.Why)
			} else {
				assert.Contains(t, got.Why, "little CPU time is left")
			}
		})
	}
}

// machines sets up samples of a machine whose CPUs were busy for a share of the
// time.
func machines(before, now *sample, share float64) {
	before.machine = cpuTime{total: 1000, busy: 300}
	now.machine = cpuTime{total: 1020, busy: 300 + 20*share}
}

func TestProcessorsAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		system bson.D
		count  float64
		why    string
	}{
		"all of the machine's":        {bson.D{{Key: "numCores", Value: 8}}, 8, ""},
		"some are for this process":   {bson.D{{Key: "numCores", Value: 8}, {Key: "numCoresAvailableToProcess", Value: int64(2)}}, 2, ""},
		"those for it are not known":  {bson.D{{Key: "numCores", Value: 8.0}, {Key: "numCoresAvailableToProcess", Value: -1}}, 8, ""},
		"none are reported":           {bson.D{}, 0, whyCoresNotThere},
		"what is told is not a count": {bson.D{{Key: "numCores", Value: "8"}}, 0, whyCoresNotThere},
	} {
		raw, err := bson.Marshal(bson.D{{Key: "system", Value: c.system}})
		require.NoError(t, err)
		count, why := countProcessors(raw)
		assert.Equal(t, c.count, count, name)
		assert.Equal(t, c.why, why, name)
	}
	_, why := countProcessors(bson.Raw{1, 2})
	assert.Equal(t, whyNoSense, why)
}

func TestProcessorsOfTheMachineAreRead(t *testing.T) {
	t.Parallel()
	got := linux(259, 2).machine()
	assert.InDelta(t, 1000, got.total, 1e-9, "without what is of guests, which is in the user's time")
	assert.InDelta(t, 600, got.busy, 1e-9, "waiting for a disk is no work")
	none := linux(259, 2)
	none.proc = t.TempDir()
	assert.Zero(t, none.machine())
}

// TestProcessorsAreAskedForOnce per process, since they do not change.
func TestProcessorsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "processors are counted on Linux only")
	var asked atomic.Int64
	c := client(t, options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "hostInfo" {
			asked.Add(1)
		}
	}}))
	now := time.Now()
	b := newBench(t, Config{Database: c.Database("nothing"), Now: func() time.Time { return now }})
	for range 3 {
		b.Sample(t.Context())
		now = now.Add(10 * time.Millisecond)
	}
	assert.Equal(t, int64(1), asked.Load())
	seen := b.Seen()
	assert.GreaterOrEqual(t, seen.Server.Processors, 1.0)
	assert.Greater(t, seen.Server.MemoryBytes, seen.Server.CacheBytes)
	assert.NotEqual(t, Unknown, b.signal(t, processor).Class)
	assert.Equal(t, seen.Server.Processors, b.scrape(t).Value("brim_mongodb_processors", nil))
	assert.InDelta(t, b.signal(t, processor).Value/100, b.scrape(t).Value("brim_processor_utilization_ratio", nil), 1e-12)
	assert.NotNil(t, seen.Server.HistoryWindowSeconds, "a member of a replica set tells it")
}

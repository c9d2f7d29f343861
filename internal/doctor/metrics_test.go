package doctor

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// ofFixture is a monitor that has just sampled the recorded server.
func ofFixture(t testing.TB) *bench {
	t.Helper()
	c := client(t, options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	b := newBench(t, Config{Database: c.Database("brim"), Streams: []Stream{{Name: "readings", Storage: store.Bucket}, {Name: "native", Storage: store.TimeSeries}}})
	server, why := parseStatus(recorded(t, "serverstatus-6.0.5.json"), noon)
	require.Empty(t, why)
	before, now := twoSamples()
	now.server, now.collections = server, map[string]collection{}
	for _, s := range b.config.Streams {
		file := map[store.Storage]string{store.Bucket: "collstats-6.0.5.json", store.TimeSeries: "collstats-timeseries-6.0.5.json"}[s.Storage]
		now.collections[s.Name] = parseCollection([]bson.Raw{recorded(t, file)}, s.Storage == store.TimeSeries)
	}
	now.disk.size, now.disk.free, now.disk.readBytes, now.disk.writtenBytes = 1e12, 6e11, 4096, 8192
	now.disk.reads, now.disk.busySeconds, now.disk.waitSeconds = now.disk.reads+100, now.disk.busySeconds+2.5, now.disk.waitSeconds+0.02
	b.seen.Store(newView(now, *newView(before, view{}, nil), nil))
	return b
}

// A value is one metric's, named without the prefix.
type value struct {
	name   string
	labels scrape.Labels
	value  float64
}

// serverValues are the recorded server's.
func serverValues() []value {
	return []value{
		{"mongodb_up", nil, 1},
		{"mongodb_info", scrape.Labels{"version": "6.0.5", "topology": "replica_set", "engine": "wiredTiger"}, 1},
		{"mongodb_cache_max_bytes", nil, 268435456},
		{"mongodb_cache_used_bytes", nil, 16723817},
		{"mongodb_cache_dirty_bytes", nil, 1898},
		{"mongodb_cache_updates_bytes", nil, 6048570},
		{"mongodb_cache_read_bytes_total", nil, 686},
		{"mongodb_cache_written_bytes_total", nil, 14921958},
		{"mongodb_cache_evicted_pages_total", scrape.Labels{"pages": "modified"}, 37},
		{"mongodb_cache_evicted_pages_total", scrape.Labels{"pages": "unmodified"}, 0},
		{"mongodb_cache_application_evictions_total", nil, 0},
		{"mongodb_cache_application_eviction_seconds_total", nil, 0},
		{"mongodb_history_store_bytes", nil, 4096},
		{"mongodb_history_store_inserts_total", nil, 0},
		{"mongodb_checkpoints_total", nil, 5},
		{"mongodb_checkpoint_seconds_total", nil, 0.037},
		{"mongodb_checkpoint_last_seconds", nil, 0.023},
		{"mongodb_checkpoint_running", nil, 0},
		{"mongodb_block_read_bytes_total", nil, 45056},
		{"mongodb_block_written_bytes_total", nil, 4104192},
		{"mongodb_block_checkpoint_written_bytes_total", nil, 1736704},
		{"mongodb_journal_written_bytes_total", nil, 2293248},
		{"mongodb_journal_syncs_total", nil, 125},
		{"mongodb_journal_sync_seconds_total", nil, 0.039723},
		{"mongodb_tickets_available", scrape.Labels{"kind": "write"}, 128},
		{"mongodb_tickets_in_use", scrape.Labels{"kind": "read"}, 0},
		{"mongodb_queued_operations", scrape.Labels{"kind": "write"}, 0},
		{"mongodb_operations_total", scrape.Labels{"kind": "write"}, 60},
		{"mongodb_operations_total", scrape.Labels{"kind": "command"}, 333},
		{"mongodb_operation_seconds_total", scrape.Labels{"kind": "write"}, 0.339282},
		{"mongodb_operation_seconds_total", scrape.Labels{"kind": "transaction"}, 0},
		{"mongodb_connections", nil, 3},
		{"mongodb_resident_bytes", nil, 155 << 20},
		{"mongodb_cpu_seconds_total", scrape.Labels{"mode": "user"}, 0.749296},
		{"mongodb_cpu_seconds_total", scrape.Labels{"mode": "system"}, 0.144609},
	}
}

// otherValues are those of the collections, the disk and the signals.
func otherValues() []value {
	return []value{
		{"mongodb_collection_bytes", scrape.Labels{"stream": "readings"}, 1196700},
		{"mongodb_collection_storage_bytes", scrape.Labels{"stream": "readings"}, 458752},
		{"mongodb_collection_free_bytes", scrape.Labels{"stream": "readings"}, 16384},
		{"mongodb_collection_index_bytes", scrape.Labels{"stream": "readings"}, 311296},
		{"mongodb_collection_documents", scrape.Labels{"stream": "readings"}, 30000},
		{"mongodb_timeseries_buckets", scrape.Labels{"stream": "native"}, 126},
		{"mongodb_timeseries_bucket_closes_total", scrape.Labels{"stream": "native", "reason": "time_forward"}, 123},
		{"mongodb_timeseries_bucket_closes_total", scrape.Labels{"stream": "native", "reason": "reopening"}, 0},
		{"mongodb_timeseries_commits_total", scrape.Labels{"stream": "native"}, 213},
		{"mongodb_timeseries_measurements_total", scrape.Labels{"stream": "native"}, 30000},
		{"disk_utilization_ratio", nil, 0.25},
		{"disk_await_seconds", nil, 0.0002},
		{"disk_read_bytes_total", nil, 4096},
		{"disk_written_bytes_total", nil, 8192},
		{"disk_operations_total", scrape.Labels{"op": "read"}, 200},
		{"disk_operations_total", scrape.Labels{"op": "write"}, 100},
		{"disk_size_bytes", nil, 1e12},
		{"disk_free_bytes", nil, 6e11},
		{"disk_info", scrape.Labels{"device": "nvme0n1", "kind": "nvme"}, 1},
		{"storage_health", scrape.Labels{"signal": "disk_await"}, 0},
		{"storage_health", scrape.Labels{"signal": "application_evictions"}, -1}, // another process than at the previous sample
	}
}

func TestMetricsHaveTheValuesOfTheSample(t *testing.T) {
	t.Parallel()
	b := ofFixture(t)
	linted, err := testutil.GatherAndLint(b.registry)
	require.NoError(t, err)
	assert.Empty(t, linted)
	seen := b.scrape(t)
	for _, want := range append(serverValues(), otherValues()...) {
		metrics := seen.Metrics("brim_"+want.name, want.labels)
		require.Len(t, metrics, 1, "%s%v", want.name, want.labels)
		assert.InDelta(t, want.value, seen.Value("brim_"+want.name, want.labels), 1e-9, "%s%v", want.name, want.labels)
	}
}

// TestCountersKeepTheirValueWhileMongoDBIsAway: NaN would spoil the rates
// before and after.
func TestCountersKeepTheirValueWhileMongoDBIsAway(t *testing.T) {
	t.Parallel()
	b := ofFixture(t)
	before := b.scrape(t)
	away := sample{at: noon, serverWhy: whyAway, disk: unseenDisk(whyElsewhere), collections: map[string]collection{
		"readings": unseenCollection(whyAway), "native": unseenCollection(whyAway),
	}}
	for range 2 {
		b.seen.Store(newView(away, *b.seen.Load(), nil))
	}
	seen := b.scrape(t)
	assert.Equal(t, 0.0, seen.Value("brim_mongodb_up", nil))
	counters := 0
	for name, family := range seen {
		for i, m := range family.GetMetric() {
			switch {
			case m.GetCounter() != nil:
				counters++
				assert.InDelta(t, before[name].GetMetric()[i].GetCounter().GetValue(), m.GetCounter().GetValue(), 0, name)
			case name != "brim_mongodb_up" && name != "brim_storage_health" && m.GetGauge() != nil:
				assert.True(t, math.IsNaN(m.GetGauge().GetValue()), name)
			}
		}
	}
	assert.Greater(t, counters, 30)
}

// TestCountersKeepTheirValueIfTheServerReportsLess: a status has no figures at all.
func TestCountersKeepTheirValueIfTheServerReportsLess(t *testing.T) {
	t.Parallel()
	b := ofFixture(t)
	before := b.scrape(t)
	now := b.seen.Load().last
	less := *now.server
	less.figures = map[key]float64{}
	now.server = &less
	for range 2 {
		b.seen.Store(newView(now, *b.seen.Load(), nil))
	}
	for name, family := range b.scrape(t) {
		for i, m := range family.GetMetric() {
			if m.GetCounter() != nil {
				assert.InDelta(t, before[name].GetMetric()[i].GetCounter().GetValue(), m.GetCounter().GetValue(), 0, name)
			}
		}
	}
}

// TestMetricsAreThereBeforeTheFirstSample, all of them and no others: unknown
// values are NaN, not absent.
func TestMetricsAreThereBeforeTheFirstSample(t *testing.T) {
	t.Parallel()
	b := ofFixture(t)
	after := b.scrape(t)
	b.seen.Store(newView(sample{serverWhy: whyNoSample, disk: unseenDisk(whyNoSample)}, view{}, nil))
	before := b.scrape(t)
	for name := range after {
		assert.Len(t, before[name].GetMetric(), len(after[name].GetMetric()), name)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			assert.False(t, strings.HasSuffix(name, suffix), name)
		}
	}
	assert.Len(t, before, len(after))
	assert.Len(t, before.Metrics("brim_disk_info", scrape.Labels{"device": "unknown", "kind": "unknown"}), 1)
	took := before["brim_mongodb_server_status_seconds"].GetMetric()[0].GetHistogram()
	assert.NotEmpty(t, took.GetBucket(), "classic")
	assert.NotNil(t, took.Schema, "native")
}

// TestFiguresOfOneMetricFollowEachOther and agree in help and label.
func TestFiguresOfOneMetricFollowEachOther(t *testing.T) {
	t.Parallel()
	keys := make(map[key]bool)
	last := make(map[string]int)
	for i := range figures {
		f := &figures[i]
		assert.False(t, keys[f.key], f.key)
		keys[f.key] = true
		assert.NotEmpty(t, f.paths, f.key)
		if before, ok := last[f.name]; ok {
			assert.Equal(t, i-1, before, f.key)
			assert.Equal(t, figures[before].help, f.help)
			assert.Equal(t, figures[before].label, f.label)
		}
		last[f.name] = i
	}
	for _, k := range []key{cacheMax, cacheUsed, cacheDirty, cacheUpdates, appEvictions, historyInserts, checkpoints, checkpointLast,
		readsAvailable, readsInUse, readsQueued, writesAvailable, writesInUse, writesQueued} {
		assert.True(t, keys[k], k)
	}
}

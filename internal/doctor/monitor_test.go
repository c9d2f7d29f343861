package doctor

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// A bench is a monitor with its log.
type bench struct {
	*Monitor
	registry *prometheus.Registry
	log      *bytes.Buffer // to be read only between samples
}

func newBench(t testing.TB, config Config) *bench {
	t.Helper()
	b := &bench{registry: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	config.Registerer, config.Logger = b.registry, slog.New(slog.NewTextHandler(b.log, nil))
	var err error
	b.Monitor, err = New(config)
	require.NoError(t, err)
	return b
}

func (b *bench) scrape(t testing.TB) scrape.Sample {
	t.Helper()
	seen, err := scrape.Gather(b.registry)
	require.NoError(t, err)
	return seen
}

func (b *bench) signal(t testing.TB, name string) Signal {
	t.Helper()
	for _, s := range b.Signals() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no signal %s", name)
	return Signal{}
}

// assertEngineUnseen checks that every signal of the storage engine is unknown
// because of why.
func (b *bench) assertEngineUnseen(t testing.TB, why string) {
	t.Helper()
	for _, name := range []string{
		cacheDirtyShare, cacheUpdatesShare, cacheUsedShare, applicationEvictions, checkpointDuration, historyStore, writeTickets, readTickets,
	} {
		assert.Equal(t, why, b.signal(t, name).Why, name)
	}
}

// client connects to a mongod with the test's options.
func client(t testing.TB, opts *options.ClientOptions) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	return c
}

func insert(t testing.TB, db *mongo.Database, collection string, n int) {
	t.Helper()
	documents := make([]any, n)
	for i := range documents {
		documents[i] = bson.D{
			{Key: "ts", Value: noon.Add(time.Duration(i) * time.Minute)}, {Key: "sensor", Value: bson.D{{Key: "id", Value: "s-1"}}}, {Key: "t", Value: 20.5 + float64(i)},
		}
	}
	_, err := db.Collection(collection).InsertMany(t.Context(), documents)
	require.NoError(t, err)
}

func TestSamplesOfARealServer(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := newBench(t, Config{Database: db, Streams: []Stream{
		{Name: "readings", Storage: store.Bucket},
		{Name: "native", Storage: store.TimeSeries},
		{Name: "quick", Storage: store.Memory},
	}})
	b.Sample(t.Context())
	first := b.scrape(t)
	stream := func(name string) scrape.Labels { return scrape.Labels{"stream": name} }
	assert.Equal(t, 1.0, first.Value("brim_mongodb_up", nil))
	assert.Len(t, first.Metrics("brim_mongodb_info", scrape.Labels{"topology": "replica_set", "engine": "wiredTiger"}), 1)
	assert.Equal(t, 0.0, first.Value("brim_mongodb_collection_documents", stream("readings")), "a collection that is not there has nothing in it")
	assert.Len(t, first["brim_mongodb_collection_bytes"].GetMetric(), 2, "a stream in memory has no collection")
	assert.Equal(t, Unknown, b.signal(t, historyStore).Class)
	assert.Equal(t, whyFirst, b.signal(t, historyStore).Why)

	require.NoError(t, db.CreateCollection(t.Context(), "native",
		options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts").SetMetaField("sensor"))))
	insert(t, db, "readings", 2000)
	insert(t, db, "native", 200) // 200 minutes; a bucket spans at most 60
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}}).Err())
	b.Sample(t.Context())
	second := b.scrape(t)
	for _, name := range []string{"brim_mongodb_checkpoints_total", "brim_mongodb_journal_written_bytes_total", "brim_mongodb_block_written_bytes_total", "brim_mongodb_journal_syncs_total"} {
		assert.Greater(t, second.Value(name, nil), first.Value(name, nil), name)
	}
	writes := scrape.Labels{"kind": "write"}
	assert.Greater(t, second.Value("brim_mongodb_operations_total", writes), first.Value("brim_mongodb_operations_total", writes))
	assert.Equal(t, 2000.0, second.Value("brim_mongodb_collection_documents", stream("readings")), "a collection is measured as soon as it exists")
	assert.Greater(t, second.Value("brim_mongodb_collection_bytes", stream("readings")), 2000.0*50)
	assert.Equal(t, 200.0, second.Value("brim_mongodb_timeseries_measurements_total", stream("native")))
	assert.Equal(t, 4.0, second.Value("brim_mongodb_timeseries_buckets", stream("native")))
	closes := second["brim_mongodb_timeseries_bucket_closes_total"].GetMetric()
	assert.Len(t, closes, len(closeReasons))
	assert.Equal(t, 3.0, second.Value("brim_mongodb_timeseries_bucket_closes_total", scrape.Labels{"stream": "native", "reason": "time_forward"}))
	assert.InDelta(t, 256<<20, second.Value("brim_mongodb_cache_max_bytes", nil), 0)
	assert.Equal(t, uint64(2), second["brim_mongodb_server_status_seconds"].GetMetric()[0].GetHistogram().GetSampleCount())
	emulated := mongodtest.Emulated(t)
	for k, v := range b.seen.Load().last.server.figures {
		if emulated && (k == cpuUser || k == cpuSystem) {
			continue // not reported on Windows
		}
		assert.False(t, math.IsNaN(v), "%s is not reported", k)
	}
	for _, name := range []string{cacheDirtyShare, cacheUsedShare, checkpointDuration, historyStore, applicationEvictions, writeTickets} {
		assert.NotEqual(t, Unknown, b.signal(t, name).Class, name)
	}
}

// TestDiskOfARealServer: the server runs on this machine, so it is asked for
// its dbPath. The kind of disk depends on the machine.
func TestDiskOfARealServer(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "the disk is that of its data files")
	b := newBench(t, Config{Database: mongodtest.Database(t)})
	b.Sample(t.Context())
	b.Sample(t.Context())
	seen := b.scrape(t)
	assert.Greater(t, seen.Value("brim_disk_size_bytes", nil), 1e6)
	assert.Greater(t, seen.Value("brim_disk_size_bytes", nil), seen.Value("brim_disk_free_bytes", nil))
	busy := b.signal(t, diskBusy)
	if math.IsNaN(busy.Value) {
		assert.Contains(t, busy.Why, "names no disk")
		return
	}
	assert.GreaterOrEqual(t, busy.Value, 0.0)
	assert.LessOrEqual(t, busy.Value, 100.0)
	assert.Positive(t, seen.Value("brim_disk_operations_total", scrape.Labels{"op": "write"}))
}

// TestScrapeSendsNoCommand: MongoDB is sampled once per interval, however
// often metrics are read.
func TestScrapeSendsNoCommand(t *testing.T) {
	t.Parallel()
	var asked, all atomic.Int64
	looked := make(chan struct{}, 100)
	c := client(t, options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			all.Add(1)
			if e.CommandName == "serverStatus" {
				asked.Add(1)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "serverStatus" {
				looked <- struct{}{}
			}
		},
	}))
	// The first use of a client sends commands of its own.
	require.NoError(t, c.Ping(t.Context(), nil))
	b := newBench(t, Config{Database: c.Database("nothing"), Interval: time.Hour})
	before := all.Load()
	for range 100 {
		assert.True(t, math.IsNaN(b.scrape(t).Value("brim_mongodb_cache_max_bytes", nil)), "there was no sample")
		b.Signals()
	}
	assert.Equal(t, before, all.Load())

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.Run(ctx); close(ended) }()
	<-looked
	require.Eventually(t, func() bool { return b.seen.Load().last.answered }, time.Minute, time.Millisecond)
	for range 100 {
		assert.Equal(t, 1.0, b.scrape(t).Value("brim_mongodb_up", nil))
	}
	assert.Equal(t, int64(1), asked.Load())
	stop()
	<-ended
}

// nowhere is a client for a server that does not exist.
func nowhere(t *testing.T) *mongo.Client {
	t.Helper()
	return client(t, options.Client().ApplyURI("mongodb://127.0.0.1/?directConnection=true").
		SetHosts([]string{"127.0.0.1:1"}).SetServerSelectionTimeout(50*time.Millisecond))
}

// TestCanceledSampleIsDiscarded: it says nothing about MongoDB.
func TestCanceledSampleIsDiscarded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Database: nowhere(t).Database("brim")})
	before := b.seen.Load()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Sample(ctx)
	assert.Same(t, before, b.seen.Load())
	assert.Empty(t, b.log.String())
	b.Sample(t.Context())
	assert.NotSame(t, before, b.seen.Load())
}

// TestASampleIsMeasuredInSeconds with a clock that advances 250 ms per call.
func TestASampleIsMeasuredInSeconds(t *testing.T) {
	t.Parallel()
	now := noon
	b := newBench(t, Config{Database: nowhere(t).Database("brim"), Now: func() time.Time {
		now = now.Add(250 * time.Millisecond)
		return now
	}})
	b.Sample(t.Context())
	took := b.scrape(t)["brim_mongodb_server_status_seconds"].GetMetric()[0].GetHistogram()
	assert.InDelta(t, 0.25, took.GetSampleSum(), 1e-9)
}

func TestServerThatIsAway(t *testing.T) {
	t.Parallel()
	c := nowhere(t)
	b := newBench(t, Config{Database: c.Database("brim"), Interval: time.Second, Streams: []Stream{{Name: "readings", Storage: store.TimeSeries}}})
	b.Sample(t.Context())
	b.Sample(t.Context())
	seen := b.scrape(t)
	assert.Equal(t, 0.0, seen.Value("brim_mongodb_up", nil))
	for name, family := range seen {
		for _, m := range family.GetMetric() {
			switch name {
			case "brim_mongodb_up", "brim_mongodb_server_status_seconds":
			case "brim_storage_health":
				assert.Equal(t, -1.0, m.GetGauge().GetValue(), scrape.Label(m, "signal"))
			default:
				assert.True(t, math.IsNaN(m.GetGauge().GetValue()+m.GetCounter().GetValue()), name)
			}
		}
	}
	assert.Len(t, seen["brim_storage_health"].GetMetric(), len(signalRules))
	b.assertEngineUnseen(t, whyAway)
	assert.Equal(t, whyUnasked, b.signal(t, diskBusy).Why)
	assert.Equal(t, 1, bytes.Count(b.log.Bytes(), []byte("subject=\"storage engine\"")), "said once: %s", b.log)
}

// TestUserWithoutPermission has a user like those of Atlas's shared tiers, or one with
// minimal privileges.
func TestUserWithoutPermission(t *testing.T) {
	t.Parallel()
	c := client(t, options.Client().ApplyURI(mongodtest.URI(t)).SetAppName("may not tell"))
	fail := func(mode any) {
		require.NoError(t, c.Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "errorCode", Value: codeUnauthorized}, {Key: "failCommands", Value: bson.A{"serverStatus"}}, {Key: "appName", Value: "may not tell"}}},
		}).Err())
	}
	db := c.Database("test_may_not_tell")
	insert(t, db, "readings", 3)
	t.Cleanup(func() { require.NoError(t, db.Drop(context.Background())) })
	fail("alwaysOn")
	t.Cleanup(func() { fail("off") })
	b := newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	b.Sample(t.Context())
	b.Sample(t.Context())
	seen := b.scrape(t)
	assert.Equal(t, 1.0, seen.Value("brim_mongodb_up", nil), "it answers")
	assert.True(t, math.IsNaN(seen.Value("brim_mongodb_cache_max_bytes", nil)))
	assert.Equal(t, 3.0, seen.Value("brim_mongodb_collection_documents", nil), "what may be seen is")
	b.assertEngineUnseen(t, whyNotPermitted)
	assert.Equal(t, 1, bytes.Count(b.log.Bytes(), []byte("serverStatus: the role clusterMonitor")), "said once: %s", b.log)
	assert.Equal(t, whyNoPath, b.signal(t, diskBusy).Why, "nor does it tell where its files are")

	fail("off")
	b.Sample(t.Context())
	assert.Empty(t, b.signal(t, cacheUsedShare).Why)
	assert.Equal(t, 1, bytes.Count(b.log.Bytes(), []byte("can sample again\" subject=\"storage engine\"")), "%s", b.log)
}

// TestRefusedUser: a wrong password is not a missing role.
func TestRefusedUser(t *testing.T) {
	t.Parallel()
	uri := strings.Replace(mongodtest.URI(t), "mongodb://", "mongodb://unknown:open-sesame@", 1)
	c := client(t, options.Client().ApplyURI(uri))
	b := newBench(t, Config{Database: c.Database("brim"), Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	b.Sample(t.Context())
	b.assertEngineUnseen(t, whyRefused)
	assert.Contains(t, b.log.String(), whyRefused)
	assert.NotContains(t, b.log.String(), "clusterMonitor")
	assert.NotContains(t, b.log.String(), "sesame")
	_, err := ReadCounters(t.Context(), c)
	require.ErrorContains(t, err, "AuthenticationFailed")
	assert.NotContains(t, err.Error(), "clusterMonitor")
	assert.False(t, NotPermitted(err))
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.ErrorContains(t, err, "database is missing")
	c := client(t, options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	_, err = New(Config{Database: c.Database("brim"), Interval: time.Millisecond})
	require.ErrorContains(t, err, "interval 1ms is less than 1s")
	registry := prometheus.NewRegistry()
	_, err = New(Config{Database: c.Database("brim"), Registerer: registry})
	require.NoError(t, err)
	_, err = New(Config{Database: c.Database("brim"), Registerer: registry})
	require.ErrorContains(t, err, "register metrics of the doctor")
}

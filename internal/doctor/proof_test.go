package doctor

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// proofPatience is how long a test waits for a change to affect the server.
const proofPatience = 2 * time.Minute

// A patient is a test's own server with appends to hourly buckets, and a
// monitor that assumes slow updates.
type patient struct {
	*bench
	t     testing.TB
	db    *mongo.Database
	names []string // of the buckets
}

func newPatient(t testing.TB, window string) *patient {
	t.Helper()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": window}})
	db := mongodtest.DatabaseAt(t, server.URI())
	slow := func(context.Context) WritePath { return WritePath{Seconds: 1, Baseline: 0.01} }
	return &patient{t: t, db: db, bench: newBench(t, Config{Database: db, WritePath: slow, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})}
}

// command runs a command that changes the server.
func (p *patient) command(command bson.D) {
	p.t.Helper()
	require.NoError(p.t, p.db.Client().Database("admin").RunCommand(p.t.Context(), command).Err())
}

func (p *patient) set(parameter string, value any) {
	p.t.Helper()
	p.command(bson.D{{Key: "setParameter", Value: 1}, {Key: parameter, Value: value}})
}

// fill creates buckets that already hold readings.
func (p *patient) fill(buckets, readings int) {
	p.t.Helper()
	documents := make([]any, buckets)
	measurements := make(bson.A, readings)
	for i := range measurements {
		measurements[i] = oneReading(i)
	}
	for i := range documents {
		name := fmt.Sprintf("s-%d", i)
		p.names = append(p.names, name)
		documents[i] = bson.D{{Key: "_id", Value: name}, {Key: "count", Value: readings}, {Key: "measurements", Value: measurements}}
	}
	_, err := p.db.Collection("readings").InsertMany(p.t.Context(), documents)
	require.NoError(p.t, err)
}

func oneReading(i int) bson.D {
	return bson.D{{Key: "ts", Value: noon.Add(time.Duration(i) * time.Second)}, {Key: "t", Value: 20 + float64(i)/8}, {Key: "h", Value: 40 + float64(i)/16}}
}

// append appends a reading to each bucket, one per update.
func (p *patient) append(ctx context.Context, i int) error {
	updates := make([]mongo.WriteModel, len(p.names))
	for j, name := range p.names {
		updates[j] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: name}}).SetUpdate(bson.D{
			{Key: "$push", Value: bson.D{{Key: "measurements", Value: oneReading(i)}}}, {Key: "$inc", Value: bson.D{{Key: "count", Value: 1}}},
		})
	}
	_, err := p.db.Collection("readings").BulkWrite(ctx, updates)
	return err
}

// appendUntil appends with the concurrency of a small daemon, and samples until
// the findings are as awaited.
func (p *patient) appendUntil(awaited func([]Finding) bool) []Finding {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), proofPatience)
	defer cancel()
	appending, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	failed := make(chan error, 4)
	for range cap(failed) {
		writers.Go(func() {
			for i := 0; appending.Err() == nil; i++ {
				if err := p.append(appending, i); err != nil && appending.Err() == nil {
					failed <- err
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var found []Finding
	for {
		p.Sample(ctx)
		if found = Diagnose(p.Seen()); awaited(found) {
			return found
		}
		select {
		case <-tick.C:
		case err := <-failed:
			require.NoError(p.t, err)
		case <-ctx.Done():
			require.Fail(p.t, "what was done to the server is not named", "found %v", namesIn(found))
		}
	}
}

// named returns the findings with a name.
func named(found []Finding, name string) []Finding {
	var out []Finding
	for _, f := range found {
		if f.Name == name {
			out = append(out, f)
		}
	}
	return out
}

// namesIn returns the distinct names of findings, in order.
func namesIn(found []Finding) []string {
	var out []string
	for _, f := range found {
		if len(out) == 0 || out[len(out)-1] != f.Name {
			out = append(out, f.Name)
		}
	}
	return out
}

// TestTinyCacheIsNamed: appends, one reading per update, go to buckets that do
// not fit in the cache.
func TestTinyCacheIsNamed(t *testing.T) {
	t.Parallel()
	p := newPatient(t, "0")
	p.fill(150, 700) // about 6 MB
	p.set("wiredTigerEngineRuntimeConfig", "cache_size=4MB")
	found := p.appendUntil(func(found []Finding) bool {
		return len(named(found, foundCache))+len(named(found, foundEviction)) > 0
	})
	first := namesIn(found)[0]
	assert.NotEqual(t, foundHistory, first, "the window is 0: what history there is follows from the cache")
	for _, f := range append(named(found, foundCache), named(found, foundEviction)...) {
		assert.Equal(t, Slow, f.Kind)
		assert.GreaterOrEqual(t, f.Class, Degrading)
		assert.NotEmpty(t, f.Action)
		assert.NotEmpty(t, f.Cost)
	}
}

// TestHistoryWindowIsNamedUntilTheAdviceIsFollowed: checkpoints write every
// version of a bucket within the window, and none without a window.
func TestHistoryWindowIsNamedUntilTheAdviceIsFollowed(t *testing.T) {
	t.Parallel()
	p := newPatient(t, "300")
	p.fill(60, 60)
	// diagnose appends, takes a checkpoint and returns the findings.
	diagnose := func() []Finding {
		for i := range 50 {
			require.NoError(t, p.append(t.Context(), i))
		}
		p.Sample(t.Context())
		p.command(bson.D{{Key: "fsync", Value: 1}})
		p.Sample(t.Context())
		return named(Diagnose(p.Seen()), foundHistory)
	}
	found := diagnose()
	require.NotEmpty(t, found, "%s", p.signal(t, historyStore).Text())
	assert.GreaterOrEqual(t, found[0].Class, Degrading)
	assert.Contains(t, found[0].Evidence, "minSnapshotHistoryWindowInSeconds is 300")
	const advice = "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 0})"
	assert.Contains(t, found[0].Action, advice)
	p.set("minSnapshotHistoryWindowInSeconds", 0)
	var after []Finding
	for range 10 { // earlier versions may still be on their way out
		if after = diagnose(); len(after) == 0 {
			break
		}
	}
	assert.Empty(t, after, "%s", p.signal(t, historyStore).Text())
}

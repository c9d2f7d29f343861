package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"
)

const (
	rateTime        = 12 * time.Second
	rateConnections = 4
	rateHosts       = 100
	rateStep        = 10 * time.Second // of event time between two readings of a host
)

// BenchmarkRate measures the whole way: line protocol of 100 hosts with ten
// tags and ten integer fields, 10 s apart and in the order of time, over 4
// connections into a daemon with hourly buckets and its own mongod, until all
// of it is stored: once acknowledged when journaled, once when stored, and once
// without a journal. It runs for a fixed time, whatever -benchtime says.
//
//	go test -run '^$' -bench Rate ./cmd/brim
func BenchmarkRate(b *testing.B) {
	if raceEnabled {
		b.Skip("the race detector is what would be measured")
	}
	for _, lines := range []int{1000, 5000, 10_000} {
		for _, way := range []struct{ journal, ack string }{{"on", "journaled"}, {"on", "stored"}, {"off", "stored"}} {
			b.Run(fmt.Sprintf("lines=%d/journal=%s/ack=%s", lines, way.journal, way.ack), func(b *testing.B) {
				benchmarkRate(b, &rate{lines: lines, ack: way.ack}, "--journal", way.journal)
			})
		}
	}
}

func benchmarkRate(b *testing.B, r *rate, args ...string) {
	lines := r.lines
	daemon := startBrim(b, append(append(embedded(b), "--granularity", "1h"), args...)...).awaitStorage()
	s := daemon.status()
	b.Logf("%d cores, %s; mongod %s, %s", runtime.NumCPU(), processorModel(), s.Mongod.Version, runtime.Version())
	bodies := make([]*rateBody, rateConnections)
	for i := range bodies {
		bodies[i] = newRateBody(lines, uint64(i))
	}
	processes := map[string]int{"brim": daemon.Cmd.Process.Pid, "mongod": s.Mongod.Pid, "client": os.Getpid()}
	before := make(map[string]time.Duration)
	for name, pid := range processes {
		before[name] = cpu(b, pid)
	}
	r.daemon = daemon
	began := time.Now()
	var connections errgroup.Group
	for _, body := range bodies {
		connections.Go(func() error { return r.post(body, began.Add(rateTime)) })
	}
	require.NoError(b, connections.Wait())
	code, answer := daemon.admin(http.MethodPost, "/flush")
	require.Equal(b, http.StatusOK, code, answer)
	took := time.Since(began)
	sent := r.requests.Load() * int64(lines)

	for name, pid := range processes {
		used := cpu(b, pid) - before[name]
		b.ReportMetric(float64(used.Nanoseconds())/1000/float64(sent), name+"-cpu-µs/line")
	}
	b.ReportMetric(0, "ns/op") // of no meaning here
	b.ReportMetric(float64(sent)/took.Seconds(), "lines/s")
	b.ReportMetric(readingsPerUpdate(b, daemon), "readings/update")
	inDatabase(b, s.MongoURI, func(db *mongo.Database) {
		require.Equal(b, sent, countReadings(b, db.Collection("readings")), "readings in MongoDB")
	})
}

func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	used, ok := processorTime(pid)
	require.True(b, ok, "the system does not tell the processor time of %d", pid)
	return used
}

// rate is what the connections of one measurement have in common.
type rate struct {
	daemon   *brimProcess
	lines    int
	ack      string
	next     atomic.Int64 // number of the next request
	requests atomic.Int64 // that were acknowledged
}

// post sends one request after the other on one connection. All connections
// together go through time in order.
func (r *rate) post(body *rateBody, end time.Time) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}, Timeout: patience}
	defer client.CloseIdleConnections()
	steps := int64(r.lines / rateHosts)
	for time.Now().Before(end) {
		body.moveTo((r.next.Add(1) - 1) * steps)
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+r.daemon.HTTP+"/write?ack="+r.ack, bytes.NewReader(body.text))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		// 202 is what is journaled, or waits.
		if resp.StatusCode != http.StatusNoContent {
			return fmt.Errorf("answer %d %s", resp.StatusCode, answer)
		}
		r.requests.Add(1)
	}
	return nil
}

// rateBody is a request of which only the timestamps change, so that making it
// costs next to nothing.
type rateBody struct {
	text   []byte
	stamps []int // where the timestamps stand, host after host, step after step
}

const stampDigits = 19 // of nanoseconds since the epoch, until the year 2286

func newRateBody(lines int, seed uint64) *rateBody {
	random := rand.New(rand.NewPCG(seed, 7))
	body := &rateBody{}
	for i := range lines {
		body.text = append(body.text, hostTags(i%rateHosts)...)
		for f, name := range []string{"user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"} {
			separator := byte(',')
			if f == 0 {
				separator = ' '
			}
			body.text = append(body.text, separator)
			body.text = append(append(body.text, "usage_"...), name...)
			body.text = strconv.AppendInt(append(body.text, '='), random.Int64N(101), 10)
			body.text = append(body.text, 'i')
		}
		body.text = append(body.text, ' ')
		body.stamps = append(body.stamps, len(body.text))
		body.text = append(append(body.text, strings.Repeat("0", stampDigits)...), '\n')
	}
	return body
}

// hostTags returns the series of a host, the same in every body.
func hostTags(host int) string {
	regions := [...]string{"eu-central-1", "us-west-2", "ap-southeast-1", "sa-east-1"}
	region := regions[host%len(regions)]
	return fmt.Sprintf("cpu,hostname=host_%d,region=%s,datacenter=%s%c,rack=%d,os=Ubuntu16.04LTS,arch=x%d,team=%s,service=%d,service_version=%d,service_environment=%s",
		host, region, region, 'a'+host%3, host*37%100, 64+22*(host%2), []string{"NYC", "SF", "LON", "CHI"}[host/3%4], host*7%20, host%2, []string{"production", "staging", "test"}[host/5%3])
}

// moveTo makes the body begin at this step of time.
func (r *rateBody) moveTo(step int64) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := 0; i < len(r.stamps); i += rateHosts {
		var digits [stampDigits]byte
		stamp := strconv.AppendInt(digits[:0], begin+(step+int64(i/rateHosts))*rateStep.Nanoseconds(), 10)
		for _, at := range r.stamps[i : i+rateHosts] {
			copy(r.text[at:], stamp)
		}
	}
}

// readingsPerUpdate asks the daemon's metrics.
func readingsPerUpdate(b *testing.B, daemon *brimProcess) float64 {
	b.Helper()
	_, metrics := daemon.admin(http.MethodGet, "/metrics")
	value := func(name string) float64 {
		_, rest, found := strings.Cut(metrics, "\n"+name+" ")
		require.True(b, found, "no metric %s", name)
		text, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(text, 64)
		require.NoError(b, err)
		return v
	}
	return value("brim_store_update_readings_sum") / value("brim_store_update_readings_count")
}

// countReadings counts the measurements themselves.
func countReadings(b *testing.B, coll *mongo.Collection) int64 {
	b.Helper()
	cursor, err := coll.Aggregate(b.Context(), bson.A{bson.D{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: nil},
		{Key: "n", Value: bson.D{{Key: "$sum", Value: bson.D{{Key: "$size", Value: "$measurements"}}}}},
	}}}})
	require.NoError(b, err)
	var counts []struct{ N int64 }
	require.NoError(b, cursor.All(b.Context(), &counts))
	require.Len(b, counts, 1)
	return counts[0].N
}

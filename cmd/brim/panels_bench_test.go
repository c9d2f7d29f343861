package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A dashboard shows a day of a hundred machines, each with the ten fields below.
const (
	panelSensors = 100
	panelStep    = 120 // seconds: what Grafana chooses for a day on 720 pixels
	panelDay     = 24 * time.Hour
)

func panelFields() []string {
	return []string{"user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "interrupts", "switches"}
}

// panelQueries are the dashboard's queries. Interrupts and switches are counters.
func panelQueries() []string {
	return []string{
		`avg by (region) (user)`,
		`max by (region) (system)`,
		`topk(5, iowait)`,
		`quantile(0.95, user)`,
		`sum by (region) (rate(interrupts[5m]))`,
		`topk(10, rate(switches[5m]))`,
		`avg by (region) (avg_over_time(idle[10m]))`,
		`max by (region) (max_over_time(irq[1h]))`,
		`min by (region) (min_over_time(idle[30m]))`,
		`100 - avg(idle)`,
		`count(user > 90)`,
		`sum by (region) (softirq + steal + nice)`,
	}
}

// panels is a daemon with a day of readings.
type panels struct {
	*brimProcess
	stream string
	every  time.Duration
	db     *mongo.Database
	client *http.Client
}

// BenchmarkPanels measures how long a dashboard of twelve panels takes when all are queried at
// once, from the first request to the last answer:
//
//	60s, 10s            interval of the machines' readings: 144,000 or 864,000 in a day
//	documents, series   bucket documents of 5 minutes, a time series
//	stored              all readings are in MongoDB
//	waiting             of 10,000 sensors, these among them, 100 readings each are not stored yet
//
// find-s is how long MongoDB alone takes to send that day's documents once, two sensors at a
// time; ratio compares the two. Loading is not measured.
//
//	go test -run '^$' -bench Panels/60s -benchtime 5x ./cmd/brim
func BenchmarkPanels(b *testing.B) {
	for _, every := range []time.Duration{time.Minute, 10 * time.Second} {
		b.Run(strconv.Itoa(int(every.Seconds()))+"s", func(b *testing.B) {
			for _, stream := range []string{"documents", "series"} {
				b.Run(stream, func(b *testing.B) {
					p := newPanels(b, every, stream, int(panelDay/every))
					b.Run("stored", p.measure)
					b.Run("waiting", func(b *testing.B) {
						p.wait(b)
						p.measure(b)
					})
				})
			}
		})
	}
}

// BenchmarkPanelsUsers measures how long 2,000 requests per second with one reading each wait
// for the journal, alternately without and with 50 users who query one panel after another from
// two seconds earlier. The panels' readings are stored in documents. Clients would be other
// machines, so the users are a low-priority process, and this one, which posts, gets priority
// if possible.
//
//	go test -run '^$' -bench PanelsUsers -benchtime 3x ./cmd/brim
func BenchmarkPanelsUsers(b *testing.B) {
	p := newPanels(b, time.Minute, "documents", int(panelDay/time.Minute))
	p.load(b)
	var answers []float64
	p.compareAcks(b, func() (end func()) {
		leave := p.admitUsers(b)
		time.Sleep(2 * time.Second) //nolint:forbidigo // queries may work at once for a moment, before they are paced
		return func() { answers = append(answers, leave()) }
	})
	slices.Sort(answers)
	b.ReportMetric(answers[len(answers)/2], "answers/s")
}

// admitUsers starts 50 users. The returned function ends them, and returns the answers per
// second they got.
func (p *panels) admitUsers(b *testing.B) (leave func() float64) {
	b.Helper()
	path, err := os.Executable()
	require.NoError(b, err)
	users := brimtest.Idle(path)
	users.Env = append(brimtest.Env(), panelUsersMode+"=http://"+p.HTTP+"/prometheus/"+p.stream)
	users.Stderr = os.Stderr
	in, err := users.StdinPipe()
	require.NoError(b, err)
	out, err := users.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, users.Start())
	began := time.Now()
	return func() float64 {
		n := 0
		require.NoError(b, in.Close())
		_, err := fmt.Fscanln(out, &n)
		require.NoError(b, err)
		rate := float64(n) / time.Since(began).Seconds()
		require.NoError(b, users.Wait())
		return rate
	}
}

// panelUsersMode, in the environment, is the panels' URL for a process that plays 50 users.
const panelUsersMode = "BRIM_TEST_PANEL_USERS"

// usePanels queries panels until its input ends, and then prints the number of answers.
func usePanels(panels string) {
	const users = 50
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: users}}
	var answers atomic.Int64
	for user := range users {
		go func() {
			for n := user; ctx.Err() == nil; n++ {
				if err := askPanel(ctx, client, panels, panelQueries()[n%len(panelQueries())]); err != nil && ctx.Err() == nil {
					panic(err)
				}
				answers.Add(1)
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	_, _ = fmt.Fprintln(os.Stdout, answers.Load()) // fails only if the benchmark has ended
}

// newPanels stores readings of each of the dashboard's sensors.
func newPanels(b *testing.B, every time.Duration, stream string, readings int) *panels {
	b.Helper()
	file := filepath.Join(b.TempDir(), "brim.yaml")
	require.NoError(b, os.WriteFile(file, []byte("stream: documents\nstreams:\n  documents: {storage: bucket}\n  series: {storage: timeseries}\n"), 0o600))
	p := &panels{stream: stream, every: every, db: mongodtest.Database(b), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	b.Cleanup(p.client.CloseIdleConnections)
	// It writes nothing unless asked, so readings can wait.
	p.brimProcess = startBrim(b, "--config", file, "--mongo-uri", mongodtest.URI(b), "--database", p.db.Name(), "--data-dir", b.TempDir(),
		"--flush-max", "1h", "--merge-readings", "1000000", "--flush-budget", "0%", "--queue-max-bytes", "4GiB", "--ack", "journaled").awaitStorage()
	p.post(b, panelSensors, daySide(), readings)
	code, answer := p.admin(http.MethodPost, "/flush?timeout=10m")
	require.Equal(b, http.StatusOK, code, answer)
	return p
}

// wait posts readings of the day's last minutes, which then stay unstored.
func (p *panels) wait(b *testing.B) {
	b.Helper()
	const sensors, each = 10_000, 100
	p.post(b, sensors, daySide().Add(panelDay-each*p.every+p.every/2), each)
	require.GreaterOrEqual(b, p.status().Queue.Readings, sensors*each)
}

// post sends readings of sensors from a time on, in time order.
func (p *panels) post(b *testing.B, sensors int, from time.Time, each int) {
	b.Helper()
	const perRequest = 5000
	var body []byte
	n := 0
	send := func() {
		code, answer, err := p.send("/v1/streams/"+p.stream+"/readings", body, "Content-Type", "application/x-ndjson")
		require.NoError(b, err)
		require.Equal(b, http.StatusOK, code, answer)
		body, n = body[:0], 0
	}
	for i := range each {
		at := from.Add(time.Duration(i) * p.every)
		for s := range sensors {
			body = appendMachine(body, s, at)
			if n++; n == perRequest {
				send()
			}
		}
	}
	if n > 0 {
		send()
	}
}

// appendMachine appends a line with a machine's reading.
func appendMachine(dst []byte, n int, at time.Time) []byte {
	dst = fmt.Appendf(dst, `{"sensorId":"host-%d","ts":%d,"tags":{"host":"host-%d","rack":"%d","region":"region-%d"},"fields":{`, n, at.UnixMilli(), n, n%20, n%5)
	for i, name := range panelFields() {
		if i > 0 {
			dst = append(dst, ',')
		}
		v := 50 + 50*math.Sin(float64(at.Unix())/float64(600*(i+1))+float64(n)) // per cent
		if i >= 8 {
			v = float64(at.Unix()%1e6) * float64(n+i)
		}
		if n >= panelSensors {
			name = "other_" + name // not shown by the dashboard
		}
		dst = fmt.Appendf(dst, `"%s":%.2f`, name, v)
	}
	return append(dst, "}}\n"...)
}

// measure loads the dashboard repeatedly.
func (p *panels) measure(b *testing.B) {
	p.load(b) // warms up MongoDB's cache
	find := p.find(b)
	brim, mongod := cpuTime(b, p.Cmd.Process.Pid), cpuTime(b, mongodtest.Shared(b).Pid())
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		p.load(b)
		took = append(took, time.Since(began))
	}
	n := float64(len(took))
	slices.Sort(took)
	median := took[len(took)/2].Seconds()
	b.ReportMetric(median, "s")
	b.ReportMetric((cpuTime(b, p.Cmd.Process.Pid)-brim)/n, "brim-cpu-s")
	b.ReportMetric((cpuTime(b, mongodtest.Shared(b).Pid())-mongod)/n, "mongod-cpu-s")
	b.ReportMetric(find, "find-s")
	b.ReportMetric(median/find, "ratio")
	if peak, ok := peakMemory(p.Cmd.Process.Pid); ok {
		b.ReportMetric(float64(peak>>20), "peak-MiB")
	}
}

// load queries all panels at once.
func (p *panels) load(b *testing.B) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	for _, q := range panelQueries() {
		group.Go(func() error { return p.ask(ctx, q) })
	}
	require.NoError(b, group.Wait())
}

// ask queries one panel.
func (p *panels) ask(ctx context.Context, query string) error {
	return askPanel(ctx, p.client, "http://"+p.HTTP+"/prometheus/"+p.stream, query)
}

func askPanel(ctx context.Context, client *http.Client, panels, query string) error {
	form := url.Values{
		"query": {query}, "step": {strconv.Itoa(panelStep)},
		"start": {strconv.FormatInt(daySide().Unix(), 10)}, "end": {strconv.FormatInt(daySide().Add(panelDay).Unix(), 10)},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, panels+"/api/v1/query_range?"+form.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	const points = int(panelDay / time.Second / panelStep)
	if err == nil && (resp.StatusCode != http.StatusOK || len(body) < 10*points) {
		err = fmt.Errorf("%s: %s %.200s", query, resp.Status, body)
	}
	return err
}

// find returns how many seconds MongoDB alone takes to send the day's documents.
func (p *panels) find(b *testing.B) float64 {
	b.Helper()
	var took []time.Duration
	for range 3 {
		began := time.Now()
		group, ctx := errgroup.WithContext(b.Context())
		group.SetLimit(2)
		for n := range panelSensors {
			group.Go(func() error { return p.findOne(ctx, fmt.Sprintf("host-%d", n)) })
		}
		require.NoError(b, group.Wait())
		took = append(took, time.Since(began))
	}
	return slices.Min(took).Seconds()
}

func (p *panels) findOne(ctx context.Context, sensor string) error {
	from, to := daySide(), daySide().Add(panelDay)
	filter := bson.D{{Key: "sensor.id", Value: sensor}, {Key: "ts", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}}}
	if p.stream == "documents" {
		filter = bson.D{{Key: "_id", Value: bson.D{
			{Key: "$gte", Value: bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: from}}},
			{Key: "$lt", Value: bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: to}}},
		}}}
	}
	cursor, err := p.db.Collection(p.stream).Find(ctx, filter, options.Find())
	if err != nil {
		return err
	}
	n := 0
	for cursor.Next(ctx) {
		n++
	}
	if n == 0 {
		return fmt.Errorf("no documents of %s", sensor)
	}
	return cursor.Close(ctx)
}

// cpuTime returns the CPU time of a process in seconds.
func cpuTime(b *testing.B, pid int) float64 {
	b.Helper()
	process, err := procfs.NewProc(pid)
	require.NoError(b, err)
	stat, err := process.Stat()
	require.NoError(b, err)
	return stat.CPUTime()
}

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// ProducerConfig configures simulated sensors that send readings over HTTP.
type ProducerConfig struct {
	Log    *Log
	Number int64  // the producer in every Mark; further producers count up from it
	URL    string // of the daemon's data listener; grpc://host:port uses pkg/client
	Token  string // to show; empty: none
	Stream string // empty: the default one

	LineProtocol bool    // instead of NDJSON
	Batch        int     // readings per request; 0: 1
	FirstSensor  int64   // number of the first sensor, as in s-0
	Sensors      int     // 0: 1; producers share them
	Rate         float64 // readings per second; 0: the next request follows each answer
	Most         int64   // readings until the producer ends; 0: unlimited
	Ack          string  // journaled or stored; empty: the daemon's default

	// Event time starts at Start and advances by Step per reading, whatever the
	// rate. Some readings are up to Late older.
	Start time.Time // zero: 2026-01-01
	Step  time.Duration
	Late  time.Duration

	Keys   bool    // requests have an Idempotency-Key, and are repeated until the outcome is known
	Repeat float64 // fraction of requests sent twice concurrently, with the same key
	Poison float64 // fraction of readings that break a rule
	Seed   uint64
	Timed  bool // measure the duration of requests
}

// ProducerCounts count the answers to producers.
type ProducerCounts struct {
	Requests  atomic.Int64
	Answered  atomic.Int64 // with 200, 202, 204 or 207
	Journaled atomic.Int64 // 202: stored was requested, but only journaled was reached
	Refused   atomic.Int64 // 503 and 429: nothing was accepted, and the request was repeated
	Away      atomic.Int64 // no listener; the request was repeated
	Unknown   atomic.Int64 // cut, timed out, or any other error
	Repeated  atomic.Int64 // repeated, or sent twice, with the same key
	Wronged   atomic.Int64 // valid readings that were refused
	Poisoned  atomic.Int64 // invalid readings sent

	mu   sync.Mutex
	took []time.Duration // from a request's first attempt to its acknowledgement, if Timed
}

// Took returns how long requests took that were acknowledged since the last
// call of Took.
func (c *ProducerCounts) Took() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	return took
}

// Slowest sorts the times and returns the longest one, excluding this fraction of the
// longest: 0.01 gives the 99th percentile. Without times it is 0.
func Slowest(took []time.Duration, without float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(float64(len(took)-1)*(1-without))]
}

// Producers are running producers.
type Producers struct {
	Counts ProducerCounts

	stop context.CancelFunc
	done sync.WaitGroup
}

// Produce starts n producers; they run until Stop, or have sent cfg.Most
// readings.
func Produce(n int, cfg ProducerConfig) *Producers {
	cfg.Batch, cfg.Sensors = max(cfg.Batch, 1), max(cfg.Sensors, 1)
	if cfg.Start.IsZero() {
		cfg.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	ctx, stop := context.WithCancel(context.Background())
	all := &Producers{stop: stop}
	for i := range n {
		one := cfg
		one.Number += int64(i)
		one.Rate /= float64(n)
		p := &producer{
			cfg: one, counts: &all.Counts, rnd: rand.New(rand.NewPCG(cfg.Seed, uint64(one.Number))),
			client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: requestTimeout},
		}
		if strings.HasPrefix(cfg.URL, "grpc://") {
			p.grpc, p.grpcErr = client.New(client.Config{
				Addresses: []string{cfg.URL}, Stream: cfg.Stream, Ack: telemetry.Ack(cfg.Ack), Timeout: requestTimeout, RetryFor: client.Never,
			})
		}
		all.done.Go(func() { p.run(ctx) })
	}
	return all
}

// Stop ends the producers after the answers to requests in flight, which are not
// repeated. It may be called repeatedly.
func (p *Producers) Stop() {
	p.stop()
	p.done.Wait()
}

// Wait returns when all producers have ended on their own.
func (p *Producers) Wait() {
	p.done.Wait()
	p.stop()
}

// requestTimeout is longer than any daemon in the tests waits for MongoDB.
const requestTimeout = 30 * time.Second

// retryPause is the pause between attempts to send a request.
const retryPause = 20 * time.Millisecond

type producer struct {
	cfg    ProducerConfig
	counts *ProducerCounts
	rnd    *rand.Rand
	client *http.Client
	next   int64 // number of the next reading

	grpc    *client.Client // nil: HTTP
	grpcErr error          // why there is none
}

// request is a request that may be repeated.
type request struct {
	entry    Entry // attempt
	at       time.Time
	key      string // empty: none
	body     []byte
	readings []telemetry.Reading // instead of the body, for gRPC
}

func (p *producer) run(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	if p.grpc != nil {
		defer p.grpc.Close()
	}
	began := time.Now()
	for ctx.Err() == nil && (p.cfg.Most == 0 || p.next < p.cfg.Most) {
		if p.cfg.Rate > 0 {
			due := began.Add(time.Duration(float64(p.next) / p.cfg.Rate * float64(time.Second)))
			if machine.Pause(ctx, time.Until(due)) != nil {
				return
			}
		}
		r := p.make()
		p.cfg.Log.Note(r.entry)
		if p.rnd.Float64() < p.cfg.Repeat {
			p.counts.Repeated.Add(1)
			var twin sync.WaitGroup
			twin.Go(func() { p.deliver(ctx, r) })
			p.deliver(ctx, r)
			twin.Wait()
			continue
		}
		p.deliver(ctx, r)
	}
}

// make prepares the next request.
func (p *producer) make() request {
	n := p.cfg.Batch
	if p.cfg.Most > 0 {
		n = int(min(int64(n), p.cfg.Most-p.next))
	}
	r := request{at: time.Now(), entry: Entry{Event: attempt, Producer: p.cfg.Number, From: p.next, Count: n}}
	if p.cfg.Keys {
		r.key = fmt.Sprintf("%d-%d-%d", p.cfg.Seed, p.cfg.Number, p.next)
	}
	for range n {
		bad := p.rnd.Float64() < p.cfg.Poison
		if bad {
			p.counts.Poisoned.Add(1)
			r.entry.Bad = append(r.entry.Bad, p.next)
		}
		switch {
		case p.grpc != nil:
			reading := p.reading()
			if bad {
				reading.Sensor = ""
			}
			r.readings = append(r.readings, reading)
		case bad:
			r.body = append(r.body, badReadings[p.rnd.IntN(len(badReadings))]...)
		default:
			r.body = p.appendReading(r.body)
		}
		r.body = append(r.body, '\n')
		p.next++
	}
	return r
}

// reading returns the next reading. Its value, and sums of such values, are exact in binary.
func (p *producer) reading() telemetry.Reading {
	at := p.cfg.Start.Add(time.Duration(p.next) * p.cfg.Step)
	if p.cfg.Late > 0 && p.next%11 == 0 {
		at = at.Add(-time.Duration(p.rnd.Int64N(int64(p.cfg.Late))))
	}
	return telemetry.Reading{
		Sensor: fmt.Sprintf("s-%d", p.cfg.FirstSensor+p.next%int64(p.cfg.Sensors)), Time: at,
		Tags: (Mark{p.cfg.Number, p.next}).Tags(""), // one, or none
		Fields: []telemetry.Field{
			{Name: "producer", Value: telemetry.IntValue(p.cfg.Number)}, {Name: "number", Value: telemetry.IntValue(p.next)},
			{Name: "v", Value: telemetry.FloatValue(float64(p.next%1000) / 8)},
		},
	}
}

// appendReading appends the next reading as a line.
func (p *producer) appendReading(dst []byte) []byte {
	r := p.reading()
	value := r.Fields[2].Value.Float()
	if p.cfg.LineProtocol {
		return fmt.Appendf(dst, "weather,station=%s producer=%di,number=%di,v=%g %d", r.Sensor, p.cfg.Number, p.next, value, r.Time.UnixNano())
	}
	dst = fmt.Appendf(dst, `{"sensorId":%q,"ts":%d,"fields":{"producer":%d,"number":%d,"v":%g}`, r.Sensor, r.Time.UnixMilli(), p.cfg.Number, p.next, value)
	for _, tag := range r.Tags {
		dst = fmt.Appendf(dst, `,"tags":{%q:%q}`, tag.Name, tag.Value)
	}
	return append(dst, '}')
}

// badReadings break one rule each. None is truncated, which would invalidate the
// whole body.
var badReadings = [...]string{
	`{"sensorId":"bad","ts":1,"fields":{"producer":1,"number":}}`,
	`{"sensorId":"bad","ts":1,"fields":{}}`,
	`{"sensorId":"bad","ts":1}`,
	`{"ts":1,"fields":{"v":1}}`,
	`{"sensorId":"","ts":1,"fields":{"v":1}}`,
	`{"sensorId":"bad","ts":-1,"fields":{"v":1}}`,
	`{"sensorId":"bad","ts":99999999999999,"fields":{"v":1}}`,
	`{"sensorId":"bad","ts":"yesterday","fields":{"v":1}}`,
	`{"sensorId":"bad","ts":1,"fields":{"a.b":1}}`,
	`{"sensorId":"bad","ts":1,"fields":{"$v":1}}`,
	`{"sensorId":"bad","ts":1,"fields":{"_id":1}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":1,"v":2}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":99999999999999999999}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":1e999}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":null}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":[1,2]}}`,
	`{"sensorId":"bad","ts":1,"fields":{"v":1},"tags":{"a.b":"x"}}`,
}

// deliver sends a request until its outcome is known, or cannot be determined.
func (p *producer) deliver(ctx context.Context, r request) {
	for {
		p.counts.Requests.Add(1)
		code, refused, err := p.send(r)
		e := r.entry
		e.Event, e.Bad, e.Code, e.Refused = answer, nil, code, refused
		p.cfg.Log.Note(e)
		again := false
		switch {
		case acknowledges(code):
			p.answered(r, code, refused)
		case code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests:
			p.counts.Refused.Add(1)
			again = true
		case errors.Is(err, syscall.ECONNREFUSED):
			p.counts.Away.Add(1)
			again = true
		default:
			p.counts.Unknown.Add(1)
			if code >= http.StatusBadRequest && code < http.StatusInternalServerError {
				p.counts.Wronged.Add(int64(r.entry.Count - len(r.entry.Bad)))
			}
			again = p.cfg.Keys && code != http.StatusBadRequest && code != http.StatusConflict
			if again {
				p.counts.Repeated.Add(1)
			}
		}
		if !again || machine.Pause(ctx, retryPause) != nil {
			return
		}
	}
}

// answered counts an acknowledgement, and wrongly refused readings.
func (p *producer) answered(r request, code int, refused []int64) {
	p.counts.Answered.Add(1)
	if code == http.StatusAccepted {
		p.counts.Journaled.Add(1)
	}
	p.counts.Wronged.Add(max(0, int64(len(refused)-len(r.entry.Bad))))
	if p.cfg.Timed {
		p.counts.mu.Lock()
		p.counts.took = append(p.counts.took, time.Since(r.at))
		p.counts.mu.Unlock()
	}
}

// sendGRPC is send over gRPC, with the status that HTTP would have.
func (p *producer) sendGRPC(r request) (code int, refused []int64, err error) {
	if p.grpc == nil {
		return 0, nil, p.grpcErr
	}
	result, err := p.grpc.Send(context.Background(), client.Request{Readings: r.readings, Key: r.key})
	var some *client.RefusedError
	var failed *client.Error
	switch {
	case errors.As(err, &some):
		for _, one := range result.Refused {
			refused = append(refused, r.entry.From+int64(one.Index))
		}
		return http.StatusMultiStatus, refused, nil
	case errors.As(err, &failed) && !failed.Unknown:
		return http.StatusServiceUnavailable, nil, nil // nothing was accepted
	case err != nil:
		return 0, nil, err
	case result.Ack == telemetry.Journaled:
		return http.StatusAccepted, nil, nil
	}
	return http.StatusOK, nil, nil
}

// send posts a request once, and returns the numbers of refused readings.
func (p *producer) send(r request) (code int, refused []int64, err error) {
	if strings.HasPrefix(p.cfg.URL, "grpc://") {
		return p.sendGRPC(r)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.cfg.url(), bytes.NewReader(r.body))
	if err != nil {
		return 0, nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if p.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.cfg.Token)
	}
	if p.cfg.Ack != "" {
		req.Header.Set("Brim-Ack", p.cfg.Ack)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err // the status arrived, but not its details
	}
	if resp.StatusCode != http.StatusMultiStatus {
		return resp.StatusCode, nil, nil
	}
	var answer struct {
		Errors []struct{ Index int64 }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, nil, fmt.Errorf("read an answer: %w", err)
	}
	for _, e := range answer.Errors {
		refused = append(refused, r.entry.From+e.Index)
	}
	return resp.StatusCode, refused, nil
}

func (c *ProducerConfig) url() string {
	switch {
	case c.LineProtocol:
		return c.URL + "/write?precision=ns"
	case c.Stream != "":
		return c.URL + "/v1/streams/" + c.Stream + "/readings"
	default:
		return c.URL + "/v1/readings"
	}
}

// String formats the counts for a test's log.
func (c *ProducerCounts) String() string {
	text := "requests " + strconv.FormatInt(c.Requests.Load(), 10)
	for _, one := range []struct {
		name  string
		count *atomic.Int64
	}{
		{"answered", &c.Answered}, {"of these 202", &c.Journaled}, {"refused with 503", &c.Refused}, {"away", &c.Away},
		{"unknown", &c.Unknown}, {"repeated", &c.Repeated}, {"good readings refused", &c.Wronged},
	} {
		text += ", " + one.name + " " + strconv.FormatInt(one.count.Load(), 10)
	}
	return text
}

package speed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// The load follows the Time Series Benchmark Suite's use case cpu-only: every host reports ten
// integers every ten seconds, with ten tags.
const (
	measurementOf = "cpu"
	interval      = 10 * time.Second // of event time, between a host's readings
	fieldsOf      = 10
	variants      = 8 // value sets that readings cycle through
	heatUp        = 5 // largest change of a value between two variants
	mostUsage     = 100
)

var fieldNames = [fieldsOf]string{
	"usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
	"usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
}

var tagNames = [...]string{
	"hostname", "region", "datacenter", "rack", "os", "arch", "team", "service", "service_version", "service_environment",
}

type hosts []host

type host struct {
	id     string                      // series key in line protocol
	tags   []telemetry.Tag             // ordered as tagNames
	fields [variants][]telemetry.Field // ordered as fieldNames
}

// newHosts returns the same hosts for the same n.
func newHosts(n int) hosts {
	all := make(hosts, n)
	for i := range all {
		random := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // synthetic load
		h := &all[i]
		h.tags = hostTags(i, random)
		h.id = seriesKey(h.tags)
		for _, name := range fieldNames {
			value := random.Int64N(mostUsage + 1)
			for v := range variants {
				h.fields[v] = append(h.fields[v], telemetry.Field{Name: name, Value: telemetry.IntValue(value)})
				value = min(max(value+random.Int64N(2*heatUp+1)-heatUp, 0), mostUsage)
			}
		}
	}
	return all
}

func hostTags(number int, random *rand.Rand) (tags []telemetry.Tag) {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	region := one("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "ap-northeast-1", "sa-east-1")
	for t, value := range [len(tagNames)]string{
		"host_" + strconv.Itoa(number), region, region + one("a", "b", "c"), strconv.Itoa(random.IntN(100)),
		one("Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"), one("x64", "x86"), one("SF", "NYC", "LON", "CHI"),
		strconv.Itoa(random.IntN(20)), strconv.Itoa(random.IntN(2)), one("production", "staging", "test"),
	} {
		tags = append(tags, telemetry.Tag{Name: tagNames[t], Value: value})
	}
	return tags
}

// seriesKey is the measurement and the sorted tags: the sensor ID that line protocol gives.
func seriesKey(tags []telemetry.Tag) string {
	var pairs []string
	for _, t := range tags {
		pairs = append(pairs, ","+t.Name+"="+t.Value)
	}
	slices.Sort(pairs)
	return measurementOf + strings.Join(pairs, "")
}

// ID returns a host's ID, repeating beyond the last host. Hosts are a shape.Source.
func (h hosts) ID(sensor int) string { return h[sensor%len(h)].id }

// Tags returns the tags sorted, as Brim stores them.
func (h hosts) Tags(sensor int) []telemetry.Tag {
	return slices.SortedFunc(slices.Values(h[sensor%len(h)].tags), func(a, b telemetry.Tag) int { return cmp.Compare(a.Name, b.Name) })
}

// AppendFields appends the values of a reading.
func (h hosts) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	return append(dst, h[sensor%len(h)].fields[k%variants]...)
}

// named are hosts without tags, as a program that inserts documents would have them.
type named struct{ hosts }

func (n named) ID(sensor int) string   { return n.hosts[sensor%len(n.hosts)].tags[0].Value }
func (named) Tags(int) []telemetry.Tag { return nil }

// step returns a reading of each host, all with the same time.
func (h hosts) step(k uint64, at time.Time) []telemetry.Reading {
	readings := make([]telemetry.Reading, len(h))
	for i := range h {
		readings[i] = telemetry.Reading{Sensor: h[i].id, Time: at, Fields: slices.Clone(h[i].fields[k%variants]), Tags: h[i].tags}
	}
	return readings
}

// A format is a way to send readings.
type format struct {
	path, contentType string // for HTTP; empty: gRPC
	encode            func(readings []telemetry.Reading) ([]byte, error)
	// stamp appends a time the way encode does. All times have the same length.
	stamp func(dst []byte, at time.Time) []byte
}

var formats = map[string]format{
	lineProtocol: {"/write?ack=journaled", "text/plain", encodeLines, func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixNano(), 10) }},
	ndjson:       {"/v1/readings?ack=journaled", "application/x-ndjson", encodeNDJSON, func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixMilli(), 10) }},
	compactGRPC: {encode: encodeSeries, stamp: func(dst []byte, at time.Time) []byte {
		return protowire.AppendVarint(dst, uint64(at.UnixMilli())) //nolint:gosec // after 1970
	}},
}

func encodeLines(readings []telemetry.Reading) (text []byte, _ error) {
	for i := range readings {
		text = append(text, measurementOf...)
		for _, t := range readings[i].Tags {
			text = append(text, ","+t.Name+"="+t.Value...)
		}
		separator := byte(' ')
		for _, f := range readings[i].Fields {
			text = append(append(text, separator), f.Name+"="...)
			text = append(f.Value.AppendJSON(text), 'i')
			separator = ','
		}
		text = append(strconv.AppendInt(append(text, ' '), readings[i].Time.UnixNano(), 10), '\n')
	}
	return text, nil
}

func encodeNDJSON(readings []telemetry.Reading) ([]byte, error) {
	return telemetry.AppendNDJSON(nil, readings), nil
}

// encodeSeries makes a WriteRequest with one series per reading.
func encodeSeries(readings []telemetry.Reading) ([]byte, error) {
	request := &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED}
	for i := range readings {
		r := &readings[i]
		series := &telemetrypb.Series{SensorId: r.Sensor, TsMs: []int64{r.Time.UnixMilli()}}
		for _, t := range r.Tags {
			series.Tags = append(series.Tags, &telemetrypb.Tag{Name: t.Name, Value: t.Value})
		}
		for _, f := range r.Fields {
			series.Columns = append(series.Columns, &telemetrypb.Column{Name: f.Name, Ints: []int64{f.Value.Int()}})
		}
		request.Series = append(request.Series, series)
	}
	return proto.Marshal(request)
}

// A body is a prebuilt request in which only the timestamps change, so that sending it costs
// next to nothing. It is one step of the hosts, so all its readings have the same time.
type body struct {
	text   []byte
	stamps []int // offsets of the timestamps
	stamp  func(dst []byte, at time.Time) []byte
}

// newBody encodes a step with a variant's values.
func (f format) newBody(of hosts, variant uint64) (*body, error) {
	stampedAt := time.Unix(1.7e9, 0).UTC()
	text, err := f.encode(of.step(variant, stampedAt))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	b, mark := &body{text: text, stamp: f.stamp}, f.stamp(nil, stampedAt)
	for from := 0; ; from += len(mark) {
		next := bytes.Index(text[from:], mark)
		if next < 0 {
			break
		}
		from += next
		b.stamps = append(b.stamps, from)
	}
	if len(b.stamps) != len(of) {
		return nil, fmt.Errorf("make a request: it has %d timestamps, not %d", len(b.stamps), len(of))
	}
	return b, nil
}

// moveTo sets the time of all readings.
func (b *body) moveTo(at time.Time) {
	var room [20]byte
	stamp := b.stamp(room[:0], at)
	for _, offset := range b.stamps {
		copy(b.text[offset:], stamp)
	}
}

const (
	linesOf       = 1000                   // per request
	answerTimeout = time.Minute            // for one request
	fullPause     = 100 * time.Millisecond // before retrying a request that the daemon had no room for
)

// A sender sends the hosts' readings in one format, step by step. A step takes one request per
// thousand hosts; each connection has its own.
type sender struct {
	format

	bodies [connections][variants][]*body
}

func newSender(of format, all hosts) (*sender, error) {
	s := &sender{format: of}
	for c := range s.bodies {
		for v := range s.bodies[c] {
			for first := 0; first < len(all); first += linesOf {
				b, err := of.newBody(all[first:min(first+linesOf, len(all))], uint64(v)) //nolint:gosec // counts from 0
				if err != nil {
					return nil, err
				}
				s.bodies[c][v] = append(s.bodies[c][v], b)
			}
		}
	}
	return s, nil
}

// send sends steps from an event time on for a while; the connections share their sequence. It
// returns how many readings the daemon accepted.
func (s *sender) send(ctx context.Context, d *bench.Daemon, begin time.Time, length time.Duration) (readings int64) {
	var given atomic.Int64 // requests
	end := time.Now().Add(length)
	bench.Together(ctx, connections, func(ctx context.Context, c int) {
		bodies, sent := &s.bodies[c], 0
		// request returns the next body. Requests that may be unanswered at the same time have
		// different bodies.
		request := func() ([]byte, bool) {
			if ctx.Err() != nil || !time.Now().Before(end) {
				return nil, false
			}
			number, parts := given.Add(1)-1, int64(len(bodies[0]))
			b := bodies[sent%variants][number%parts]
			sent++
			b.moveTo(begin.Add(time.Duration(number/parts) * interval))
			return b.text, true
		}
		if s.path == "" {
			bench.Checkf(stream(ctx, d.GRPC, request), "send readings")
		} else {
			bench.Checkf(s.post(ctx, "http://"+d.HTTP, request), "send readings")
		}
	})
	bench.Check(context.Cause(ctx))
	return given.Load() * linesOf
}

// post sends on one connection, waiting for each answer before the next request.
func (s *sender) post(ctx context.Context, address string, request func() ([]byte, bool)) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: answerTimeout}
	defer client.CloseIdleConnections()
	for text, ok := request(); ok; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+s.path, bytes.NewReader(text))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", s.contentType)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		switch resp.StatusCode {
		case http.StatusOK, http.StatusNoContent:
			text, ok = request()
		case http.StatusServiceUnavailable: // nothing was accepted
			if err := machine.Pause(ctx, fullPause); err != nil {
				return err
			}
		default:
			return fmt.Errorf("answer %d %s", resp.StatusCode, answer)
		}
	}
	return nil
}

// window is the maximum number of unanswered requests in a call.
const window = 4

// stream sends encoded WriteRequests in one WriteStream call until request returns false, at
// most window of them unanswered. It fetches a request once there is room. An answer that
// rejects readings is an error.
func stream(ctx context.Context, address string, request func() ([]byte, bool)) (err error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	sides, under := errgroup.WithContext(ctx)
	call, err := telemetrypb.NewIngestServiceClient(conn).WriteStream(under, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)}))
	if err != nil {
		return fmt.Errorf("open a call: %w", err)
	}
	room := make(chan struct{}, window)
	sides.Go(func() error {
		for {
			select {
			case room <- struct{}{}:
			case <-under.Done():
				return context.Cause(under)
			}
			text, ok := request()
			if !ok {
				return call.CloseSend()
			}
			if err := call.SendMsg(rawMessage(text)); err != nil && !errors.Is(err, io.EOF) { // for io.EOF the receiver gets the actual error
				return err
			}
		}
	})
	sides.Go(func() error {
		var answer telemetrypb.WriteResponse
		for {
			if err := call.RecvMsg(&answer); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if e := answer.GetError(); e != nil || answer.GetRejected() > 0 {
				return fmt.Errorf("the answer is %s %s, %d readings refused", codes.Code(uint32(e.GetStatus())), e.GetMessage(), answer.GetRejected()) //nolint:gosec // a code
			}
			<-room
		}
	})
	return sides.Wait()
}

// A rawMessage is an already encoded message.
type rawMessage []byte

// rawCodec passes a rawMessage through and leaves everything else to the protobuf codec.
type rawCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if message, ok := v.(rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(message)}, nil
	}
	return c.CodecV2.Marshal(v)
}

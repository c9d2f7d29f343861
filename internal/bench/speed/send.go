package speed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
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
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// The load has the shape of the Time Series Benchmark Suite's use case
// cpu-only: every host reports ten integers every ten seconds, with ten tags.
const (
	measurementOf = "cpu"
	interval      = 10 * time.Second // of event time, between two readings of a host
	fieldsOf      = 10
	variants      = 8 // of values; requests take one after the other
	heatUp        = 5 // most that a value of the random walk changes between two variants
	mostUsage     = 100
)

var fieldNames = [fieldsOf]string{
	"usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
	"usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
}

var tagNames = [...]string{
	"hostname", "region", "datacenter", "rack", "os", "arch", "team", "service", "service_version", "service_environment",
}

// values are those of one reading, in the order of fieldNames.
type values [fieldsOf]int64

type host struct {
	name   string                // short
	key    string                // of its series in line protocol, by which Brim knows it
	tags   [len(tagNames)]string // in the order of tagNames
	values [variants]values
}

// newHosts returns the same hosts for the same number.
func newHosts(n int) []host {
	hosts := make([]host, n)
	for i := range hosts {
		random := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // synthetic load
		h := &hosts[i]
		h.name = fmt.Sprintf("host_%d", i)
		h.tags = hostTags(h.name, random)
		h.key = seriesKey(&h.tags)
		for f := range fieldsOf {
			value := random.Int64N(mostUsage + 1)
			for v := range variants {
				h.values[v][f] = value
				value = min(max(value+random.Int64N(2*heatUp+1)-heatUp, 0), mostUsage)
			}
		}
	}
	return hosts
}

func hostTags(name string, random *rand.Rand) [len(tagNames)]string {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	region := one("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "ap-northeast-1", "sa-east-1")
	return [...]string{
		name, region, region + one("a", "b", "c"), strconv.Itoa(random.IntN(100)),
		one("Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"), one("x64", "x86"), one("SF", "NYC", "LON", "CHI"),
		strconv.Itoa(random.IntN(20)), strconv.Itoa(random.IntN(2)), one("production", "staging", "test"),
	}
}

// seriesKey is the measurement and the tags in the order of their names, the
// sensor's id of what comes as line protocol.
func seriesKey(tags *[len(tagNames)]string) string {
	pairs := make([]string, len(tags))
	for i, value := range tags {
		pairs[i] = "," + tagNames[i] + "=" + value
	}
	slices.Sort(pairs)
	return measurementOf + strings.Join(pairs, "")
}

// A body is a request made beforehand, of which only the timestamps change, so
// that sending it costs next to nothing. All readings have the same time: it is
// one step of the hosts.
type body struct {
	text   []byte
	stamps []int // where the timestamps stand
	// stamp appends one; all have the same length.
	stamp func(dst []byte, at time.Time) []byte
}

// moveTo sets the time.
func (b *body) moveTo(at time.Time) {
	var room [20]byte
	stamp := b.stamp(room[:0], at)
	for _, place := range b.stamps {
		copy(b.text[place:place+len(stamp)], stamp)
	}
}

// stampedAt is the time of a body before it is moved.
func stampedAt() time.Time { return time.Unix(1.7e9, 0) }

// appendStamp appends a timestamp that will be moved.
func (b *body) appendStamp() {
	b.stamps = append(b.stamps, len(b.text))
	b.text = b.stamp(b.text, stampedAt())
}

// lineBody is a step in line protocol, with the values of a variant.
func lineBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixNano(), 10) }}
	for i := range hosts {
		b.text = append(b.text, measurementOf...)
		for t, name := range tagNames {
			b.text = append(b.text, ","+name+"="+hosts[i].tags[t]...)
		}
		separator := byte(' ')
		for f, value := range hosts[i].values[variant] {
			b.text = append(append(b.text, separator), fieldNames[f]+"="...)
			b.text = append(strconv.AppendInt(b.text, value, 10), 'i')
			separator = ','
		}
		b.text = append(b.text, ' ')
		b.appendStamp()
		b.text = append(b.text, '\n')
	}
	return b, nil
}

// ndjsonBody is a step as JSON objects, a line each; timestamps are integers.
func ndjsonBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.UnixMilli(), 10) }}
	for i := range hosts {
		h := &hosts[i]
		fields, tags := make(map[string]int64, fieldsOf), make(map[string]string, len(tagNames))
		for f, value := range h.values[variant] {
			fields[fieldNames[f]] = value
		}
		for t, value := range h.tags {
			tags[tagNames[t]] = value
		}
		rest, err := json.Marshal(struct {
			Fields map[string]int64  `json:"fields"`
			Tags   map[string]string `json:"tags"`
		}{fields, tags})
		if err != nil {
			return nil, fmt.Errorf("make a reading in JSON: %w", err)
		}
		b.text = fmt.Appendf(b.text, `{"sensorId":%q,"ts":`, h.key)
		b.appendStamp()
		b.text = append(append(append(b.text, ','), rest[1:]...), '\n')
	}
	return b, nil
}

// compactBody is a step as a WriteRequest of the compact form: a series for
// each host, with one reading.
func compactBody(hosts []host, variant int) (*body, error) {
	b := &body{stamp: func(dst []byte, at time.Time) []byte {
		return protowire.AppendVarint(dst, uint64(at.UnixMilli())) //nolint:gosec // after 1970
	}}
	head, err := proto.Marshal(&telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED})
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	b.text = append(b.text, head...)
	for i := range hosts {
		h := &hosts[i]
		series := &telemetrypb.Series{SensorId: h.key, TsMs: []int64{stampedAt().UnixMilli()}}
		for t, value := range h.tags {
			series.Tags = append(series.Tags, &telemetrypb.Tag{Name: tagNames[t], Value: value})
		}
		for f, value := range h.values[variant] {
			series.Columns = append(series.Columns, &telemetrypb.Column{Name: fieldNames[f], Ints: []int64{value}})
		}
		text, err := proto.Marshal(&telemetrypb.WriteRequest{Series: []*telemetrypb.Series{series}})
		if err != nil {
			return nil, fmt.Errorf("make a series: %w", err)
		}
		place := bytes.Index(text, b.stamp(nil, stampedAt()))
		if place < 0 {
			return nil, fmt.Errorf("find the time in the series of %s", h.name)
		}
		b.stamps = append(b.stamps, len(b.text)+place)
		b.text = append(b.text, text...) // messages that stand together are one
	}
	return b, nil
}

const (
	linesOf       = 1000                   // readings of a request
	answerTimeout = time.Minute            // of one request
	fullPause     = 100 * time.Millisecond // before a request is repeated that the daemon had no room for
)

// A stretch is a time in which requests are sent. All connections together go
// through event time in order.
type stretch struct {
	begin time.Time    // of event time
	end   time.Time    // by the clock
	next  atomic.Int64 // number of the next request
}

func newStretch(begin time.Time, duration time.Duration) *stretch {
	return &stretch{begin: begin, end: time.Now().Add(duration)}
}

// stepTime is the event time of all readings of a step.
func (s *stretch) stepTime(step int64) time.Time {
	return s.begin.Add(time.Duration(step) * interval)
}

// take gives out the number of the next request, until the time is over.
func (s *stretch) take(ctx context.Context) (number int64, ok bool) {
	if ctx.Err() != nil || !time.Now().Before(s.end) {
		return 0, false
	}
	return s.next.Add(1) - 1, true
}

// given is how many were given out.
func (s *stretch) given() int64 { return s.next.Load() }

// A deck is the requests of one connection: a step of the hosts takes one for each
// thousand of them, and there are variants of it.
type deck struct {
	bodies [][]*body // of a variant, of a part of the hosts
	sent   int
}

// An encoder makes the request of a step of these hosts, with the values of a
// variant.
type encoder func(hosts []host, variant int) (*body, error)

func newDeck(hosts []host, encode encoder) (*deck, error) {
	d := &deck{bodies: make([][]*body, variants)}
	for v := range d.bodies {
		for first := 0; first < len(hosts); first += linesOf {
			b, err := encode(hosts[first:min(first+linesOf, len(hosts))], v)
			if err != nil {
				return nil, err
			}
			d.bodies[v] = append(d.bodies[v], b)
		}
	}
	return d, nil
}

// next is the next request, with the time of the next step of all connections; false
// when the stretch is over. Requests that may be unanswered have bodies of their own.
func (d *deck) next(ctx context.Context, s *stretch) ([]byte, bool) {
	number, ok := s.take(ctx)
	if !ok {
		return nil, false
	}
	parts := int64(len(d.bodies[0]))
	b := d.bodies[d.sent%len(d.bodies)][number%parts]
	d.sent++
	b.moveTo(s.stepTime(number / parts))
	return b.text, true
}

// A sender sends the hosts' readings in one format, step by step.
type sender struct {
	path, contentType string  // of HTTP; empty: gRPC
	decks             []*deck // one for each connection
}

func newSender(format string, hosts []host) (*sender, error) {
	encode := map[string]encoder{lineProtocol: lineBody, ndjson: ndjsonBody, compactGRPC: compactBody}[format]
	s := &sender{}
	switch format {
	case lineProtocol:
		s.path, s.contentType = "/write?ack=journaled", "text/plain"
	case ndjson:
		s.path, s.contentType = "/v1/readings?ack=journaled", "application/x-ndjson"
	}
	for range connections {
		d, err := newDeck(hosts, encode)
		if err != nil {
			return nil, err
		}
		s.decks = append(s.decks, d)
	}
	return s, nil
}

// send returns how many readings the daemon has accepted. Over gRPC each connection
// has one call of WriteStream.
func (s *sender) send(ctx context.Context, d *bench.Daemon, over *stretch) (readings int64, err error) {
	connections, under := errgroup.WithContext(ctx)
	for _, one := range s.decks {
		connections.Go(func() error {
			if s.path == "" {
				return stream(under, d.GRPC, func() ([]byte, bool) { return one.next(under, over) })
			}
			return s.post(under, d, over, one)
		})
	}
	if err := connections.Wait(); err != nil {
		return 0, fmt.Errorf("send readings: %w", err)
	}
	return over.given() * linesOf, context.Cause(ctx)
}

// post sends on one connection, each request when the one before is answered:
// with the messages of fasthttp, but not its client, whose goroutines outlive
// it.
func (s *sender) post(ctx context.Context, to *bench.Daemon, over *stretch, d *deck) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.HTTP)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()                         // everything is answered, or lost
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // also in mid-request
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	request, response := &fasthttp.Request{}, &fasthttp.Response{}
	request.Header.SetMethod(http.MethodPost)
	request.Header.SetContentType(s.contentType)
	request.SetRequestURI("http://" + to.HTTP + s.path)
	for {
		text, ok := d.next(ctx, over)
		if !ok {
			return nil
		}
		request.SetBodyRaw(text)
		for taken := false; !taken; {
			if err := exchange(conn, in, out, request, response); err != nil {
				return err
			}
			switch code := response.StatusCode(); code {
			case http.StatusOK, http.StatusNoContent:
				taken = true
			case http.StatusServiceUnavailable: // nothing was taken
				if err := machine.Pause(ctx, fullPause); err != nil {
					return err
				}
			default:
				return fmt.Errorf("answer %d %s", code, response.Body())
			}
		}
	}
}

// exchange sends a request and reads the response.
func exchange(conn net.Conn, in *bufio.Reader, out *bufio.Writer, request *fasthttp.Request, response *fasthttp.Response) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if err := request.Write(out); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := response.Read(in); err != nil {
		return fmt.Errorf("wait for the answer: %w", err)
	}
	return nil
}

// window is how many requests of a call may be unanswered.
const window = 4

// stream sends encoded WriteRequests in one call of WriteStream until there are
// none, up to window of them unanswered at a time. A request is asked for when
// there is room for it. An answer that refuses anything is an error.
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
			if err := call.SendMsg(rawMessage(text)); err != nil && !errors.Is(err, io.EOF) { // of which receiving tells why
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

// A rawMessage is a message that is encoded already.
type rawMessage []byte

// rawCodec passes on a rawMessage as it is, and all else to the codec of
// protobuf.
type rawCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if message, ok := v.(rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(message)}, nil
	}
	return c.CodecV2.Marshal(v)
}

package speed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	linesOf       = 1000                   // readings of a request
	answerTimeout = time.Minute            // of one request
	fullPause     = 100 * time.Millisecond // before a request is repeated that the daemon had no room for
)

// A sender sends the hosts' readings in one format, step by step. Each connection has
// requests of its own: a step takes one for each thousand hosts.
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

// send sends for some time, from an event time on, in whose order all connections
// together go. It returns how many readings the daemon has accepted.
func (s *sender) send(ctx context.Context, d *bench.Daemon, begin time.Time, length time.Duration) (readings int64, err error) {
	var given atomic.Int64 // requests
	end := time.Now().Add(length)
	group, under := errgroup.WithContext(ctx)
	for c := range s.bodies {
		bodies, sent := &s.bodies[c], 0
		// request returns the next one; requests that may be unanswered have bodies of
		// their own.
		request := func() ([]byte, bool) {
			if under.Err() != nil || !time.Now().Before(end) {
				return nil, false
			}
			number, parts := given.Add(1)-1, int64(len(bodies[0]))
			b := bodies[sent%variants][number%parts]
			sent++
			b.moveTo(begin.Add(time.Duration(number/parts) * interval))
			return b.text, true
		}
		group.Go(func() error {
			if s.path == "" {
				return stream(under, d.GRPC, request)
			}
			return s.post(under, "http://"+d.HTTP, request)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("send readings: %w", err)
	}
	return given.Load() * linesOf, context.Cause(ctx)
}

// post sends on one connection, each request when the one before is answered.
func (s *sender) post(ctx context.Context, address string, request func() ([]byte, bool)) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: answerTimeout}
	defer client.CloseIdleConnections()
	for text, ok := request(); ok; text, ok = request() {
		for {
			code, answer, err := s.postOnce(ctx, client, address, text)
			if err != nil {
				return err
			}
			if code == http.StatusOK || code == http.StatusNoContent {
				break
			}
			if code != http.StatusServiceUnavailable { // with which nothing was taken
				return fmt.Errorf("answer %d %s", code, answer)
			}
			if err := machine.Pause(ctx, fullPause); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sender) postOnce(ctx context.Context, client *http.Client, address string, text []byte) (code int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+s.path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", s.contentType)
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
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

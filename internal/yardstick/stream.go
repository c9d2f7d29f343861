package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// window is how many requests of a call may be unanswered.
const window = 4

// A streamer sends over gRPC: each connection has one call of WriteStream.
type streamer struct {
	decks []*deck
}

// newCompactStreamer streams the compact form.
func newCompactStreamer(connections int, f *fleet) (*streamer, error) {
	decks, err := newDecks(connections, f.hosts, compactBody)
	return &streamer{decks}, err
}

// send implements sender.
func (s *streamer) send(ctx context.Context, r *rig, over *stretch) (int64, error) {
	connections, under := errgroup.WithContext(ctx)
	for _, d := range s.decks {
		connections.Go(func() error {
			return stream(under, r.GRPC, func(i int64) ([]byte, bool) { return d.next(under, over, i) })
		})
	}
	if err := connections.Wait(); err != nil {
		return 0, fmt.Errorf("stream: %w", err)
	}
	return over.given() * linesOf, context.Cause(ctx)
}

// next is the i-th request of this connection, with the time of the next step
// of all. It is another body than those of the requests before that may be
// unanswered.
func (d *deck) next(ctx context.Context, s *stretch, i int64) ([]byte, bool) {
	number, ok := s.take(ctx)
	if !ok {
		return nil, false
	}
	b := d.bodies[i%variants][0]
	b.moveTo(s.stepTime(number))
	return b.text, true
}

// stream sends requests in one call until there are none, a few of them
// unanswered at a time. A request is asked for when there is room for it.
func stream(ctx context.Context, address string, request func(i int64) ([]byte, bool)) (err error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	sides, under := errgroup.WithContext(ctx)
	call, err := telemetrypb.NewIngestServiceClient(conn).WriteStream(under, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		return fmt.Errorf("open a call: %w", err)
	}
	room := make(chan struct{}, window)
	sides.Go(func() error {
		for i := int64(0); ; i++ {
			select {
			case room <- struct{}{}:
			case <-under.Done():
				return context.Cause(under)
			}
			text, ok := request(i)
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

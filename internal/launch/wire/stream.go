// Package wire brings requests that are encoded beforehand to a daemon over
// gRPC, so that who sends them costs next to nothing beside it: for programs
// that measure a daemon, or fill its collections before they do.
package wire

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

// Window is how many requests of a call may be unanswered.
const Window = 4

// Stream sends encoded WriteRequests in one call of WriteStream until there are
// none, up to Window of them unanswered at a time. Request i is asked for when
// there is room for it. An answer that refuses anything is an error.
func Stream(ctx context.Context, address string, request func(i int64) ([]byte, bool)) (err error) {
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
	room := make(chan struct{}, Window)
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

package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/launch/wire"
)

// window is how many requests of a call may be unanswered.
const window = wire.Window

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
			return wire.Stream(under, r.GRPC, func(i int64) ([]byte, bool) { return d.next(under, over, i) })
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

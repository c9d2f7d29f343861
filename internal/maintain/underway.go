package maintain

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Work is what a command has begun on a stream.
type Work struct {
	To    string // what becomes of the stream: zstd, 1h, timeseries
	Phase string
	Done  bool // but for what is kept
}

// UnderWay tells what work of the kind there is on the stream, of any owner.
// The error is a *BusyError where it is of another kind.
func UnderWay(ctx context.Context, db *mongo.Database, stream, kind string) (*Work, error) {
	s, err := readState(ctx, db, stream)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, fmt.Errorf("stream %q: %w", stream, errNoWork)
	case s.Kind != kind:
		return nil, &BusyError{Stream: stream, What: other(s)}
	}
	return &Work{To: s.To, Phase: s.Phase, Done: s.Phase == phaseDone}, nil
}

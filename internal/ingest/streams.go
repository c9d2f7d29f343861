package ingest

import (
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// What to do with fields that a stream does not name.
const (
	refuseOthers = "refuse" // the reading is refused; also where nothing is said
	dropOthers   = "drop"   // they are left out of it
)

// A inputStream is a stream that readings come in for. Its name stays; what else
// there is of it may be replaced at any time, and a request keeps what it began
// with.
type inputStream struct {
	Name string
	live atomic.Pointer[liveStream]
}

// A liveStream is how a stream is now.
type liveStream struct {
	Stream
	fields *batch.FieldList // nil: all may be had
}

func newInputStream(s Stream) *inputStream {
	out := &inputStream{Name: s.Name}
	out.set(s)
	return out
}

func (s *inputStream) set(to Stream) {
	live := &liveStream{Stream: to}
	if len(to.Fields) > 0 {
		live.fields = batch.NewFieldList(to.Fields, to.OtherFields == dropOthers)
	}
	s.live.Store(live)
}

// times returns the timestamps that the stream accepts at the instant now.
func (srv *Server) times(now time.Time, s *liveStream) telemetry.TimeRange {
	r := telemetry.TimeRange{Earliest: srv.config.MinTime.UnixMilli(), Newest: now.Add(time.Duration(srv.ahead.Load())).UnixMilli()}
	if s.Retention > 0 {
		r.Oldest = max(0, now.Add(-s.Retention).UnixMilli())
	}
	return r
}

// SetMaxFuture changes Config.MaxFuture, which must be above 0, for the requests
// that come from now on.
func (srv *Server) SetMaxFuture(ahead time.Duration) {
	if ahead > 0 {
		srv.ahead.Store(int64(ahead))
	}
}

// SetStreams changes the retention, caps and fields of streams, for requests that arrive
// from now on. Their names, storage and granularity do not change.
func (srv *Server) SetStreams(streams []Stream) {
	for _, s := range streams {
		srv.streams[s.Name].set(s)
	}
}

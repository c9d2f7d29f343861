package ingest

import (
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// What to do with fields that a stream does not list.
const (
	refuseOthers = "refuse" // refuse the reading; the default
	dropOthers   = "drop"   // drop the fields
)

// An inputStream is a stream that receives readings. Its settings other than the name may be
// replaced at any time; a request uses those in force when it is decoded.
type inputStream struct {
	Name string
	live atomic.Pointer[liveStream]
}

// A liveStream has the current settings of a stream.
type liveStream struct {
	Stream
	fields *batch.FieldList // nil: all are allowed
}

func (s *inputStream) set(to Stream) {
	live := &liveStream{Stream: to}
	if len(to.Fields) > 0 {
		live.fields = batch.NewFieldList(to.Fields, to.OtherFields == dropOthers)
	}
	s.live.Store(live)
}

// times returns the range of timestamps that the stream accepts at the time now.
func (srv *Server) times(now time.Time, s *liveStream) telemetry.TimeRange {
	r := telemetry.TimeRange{Earliest: srv.config.MinTime.UnixMilli(), Newest: now.Add(time.Duration(srv.ahead.Load())).UnixMilli()}
	if s.Retention > 0 {
		r.Oldest = max(0, now.Add(-s.Retention).UnixMilli())
	}
	return r
}

// SetMaxFuture changes Config.MaxFuture for further requests. It must be above 0.
func (srv *Server) SetMaxFuture(ahead time.Duration) {
	if ahead > 0 {
		srv.ahead.Store(int64(ahead))
	}
}

// SetStreams changes the retention, caps and fields of streams for further requests. Their
// names, storage and granularity do not change.
func (srv *Server) SetStreams(streams []Stream) {
	for _, s := range streams {
		srv.streams[s.Name].set(s)
	}
}

package ingest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// What becomes of fields that a stream does not name.
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

// SetStreams replaces what may change of the streams while readings come in:
// retention, caps and fields. There must be all that the Server was made with,
// with the storage and granularity that they have; otherwise nothing changes.
// Requests that are being decoded keep to what they began with.
func (srv *Server) SetStreams(streams []Stream) error {
	srv.setting.Lock()
	defer srv.setting.Unlock()
	config := srv.config
	config.Streams = streams
	if err := config.checkStreams(); err != nil {
		return err
	}
	if len(streams) != len(srv.order) {
		return fmt.Errorf("the streams cannot change from %d to %d while the daemon runs; restart it", len(srv.order), len(streams))
	}
	for i := range streams {
		s, ok := srv.streams[streams[i].Name]
		if !ok {
			return fmt.Errorf("stream %s cannot be added while the daemon runs; restart it", streams[i].Name)
		}
		if now := s.live.Load(); now.Storage != streams[i].Storage || now.Granularity != streams[i].Granularity {
			return fmt.Errorf("storage and granularity of stream %s cannot change while the daemon runs; restart it", s.Name)
		}
	}
	for i := range streams {
		srv.streams[streams[i].Name].set(streams[i])
	}
	return nil
}

// checkFields checks which fields a stream takes.
func (s Stream) checkFields() error {
	switch s.OtherFields {
	case "", refuseOthers, dropOthers:
	default:
		return fmt.Errorf("stream %s: other-fields %s is unknown; allowed are %s and %s", s.Name, telemetry.Quote([]byte(s.OtherFields)), refuseOthers, dropOthers)
	}
	for _, name := range s.Fields {
		if r := telemetry.CheckFieldName([]byte(name)); r != nil {
			return fmt.Errorf("stream %s: fields: %s", s.Name, r.Message)
		}
	}
	return nil
}

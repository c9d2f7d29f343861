package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
	"github.com/brim-telemetry/brim/internal/seal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// SealPath is the path for sealing on the data listener: POST begins a pass, GET returns its
// progress.
const SealPath = "/v1/streams/{stream}/seal"

// A SealBegun says which pass a request for sealing began.
type SealBegun struct {
	Stream  string `json:"stream"`
	Pass    int64  `json:"pass"`
	Session string `json:"session"` // of the process
}

// A SealStatus is the progress of a stream's sealing.
type SealStatus struct {
	Stream  string `json:"stream"`
	Session string `json:"session"` // of the process
	seal.Progress
}

// seal implements adminPages.seal.
func (d *daemon) seal(stream string) (answer any, err error) {
	return d.sealing(stream, func(s *seal.Sealer) (any, bool) {
		pass, ok := s.Seal(stream)
		return SealBegun{Stream: stream, Pass: pass, Session: d.session}, ok
	})
}

func (d *daemon) sealProgress(stream string) (answer any, err error) {
	return d.sealing(stream, func(s *seal.Sealer) (any, bool) {
		p, ok := s.Progress(stream)
		return SealStatus{Stream: stream, Session: d.session, Progress: p}, ok
	})
}

// sealing calls the sealer; call returns false if the sealer does not have the stream.
func (d *daemon) sealing(stream string, call func(*seal.Sealer) (any, bool)) (answer any, err error) {
	s := d.storage.Load()
	switch {
	case !d.cfg.hasStream(stream):
		return nil, fmt.Errorf("%w: %q", errUnknownStream, stream)
	case s == nil:
		return nil, errNotReady
	}
	answer, ok := call(s.sealer)
	if !ok {
		return nil, fmt.Errorf("%w: stream %q has storage %s, and only buckets can be packed", errNoBuckets, stream, d.cfg.stream(stream).Storage)
	}
	return answer, nil
}

// streamToSeal returns the stream if a path matches SealPath.
func streamToSeal(escaped string) (stream string, ok bool) {
	before, after, _ := strings.Cut(SealPath, "{stream}")
	rest, begins := strings.CutPrefix(escaped, before)
	name, ends := strings.CutSuffix(rest, after)
	stream, err := url.PathUnescape(name)
	return stream, begins && ends && err == nil && name != "" && !strings.Contains(name, "/")
}

// sealHandler serves SealPath. It needs scope admin.
func (d *daemon) sealHandler() http.Handler {
	return access.Require(d.guard, access.Admin, d.ingest.WriteProblem, openapi.Only("GET, HEAD, POST", func(w http.ResponseWriter, r *http.Request) {
		stream, _ := streamToSeal(r.URL.EscapedPath())
		do := d.sealProgress
		if r.Method == http.MethodPost {
			do = d.seal
		}
		answer, err := do(stream)
		switch {
		case errors.Is(err, errUnknownStream):
			err = telemetry.Errorf(telemetry.NotFound, "stream_unknown", "%v", err)
		case errors.Is(err, errNoBuckets):
			err = telemetry.Errorf(telemetry.Invalid, "no_buckets", "%v", err)
		case err != nil:
			err = telemetry.Errorf(telemetry.Unavailable, "starting", "%v", err)
		}
		if err != nil {
			d.ingest.WriteProblem(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // fails only if the client is gone
	}))
}

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/peers"
	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// newReader returns the reader, which refuses queries until openReader is called.
func (d *daemon) newReader() (*read.Reader, error) {
	c := &d.cfg.Settings
	r, err := read.New(read.Config{
		DefaultStream: c.Default.Name, Daemon: d.session, Guard: d.guard, Problem: d.ingest.WriteProblem,
		Timeout: c.QueryTimeout, MaxQueries: c.MaxQueries, MaxBytes: c.QueryMaxBytes, MaxBacklog: c.QueryMaxBacklog,
		Logger: d.log, Registerer: d.registry,
	})
	if err != nil {
		return nil, fmt.Errorf("set up queries: %w", err)
	}
	return r, nil
}

// newPromAPI returns the Prometheus query API over the reader.
func (d *daemon) newPromAPI() (*promapi.API, error) {
	c := &d.cfg.Settings
	api, err := promapi.New(promapi.Config{
		Reader: d.reader, Guard: d.guard, MaxSamples: c.QueryMaxSamples,
		Lookback: func(stream string) time.Duration { return d.current().stream(stream).Lookback },
		Window: func(stream string) time.Duration {
			if s := d.current().stream(stream); s.hasBuckets() {
				return s.Granularity
			}
			return 0
		},
		Rollup: func(stream string) (every, retention time.Duration) {
			s := d.current().stream(stream)
			return s.Rollup, s.Retention
		},
		Version: d.version.Version, Logger: d.log, Registerer: d.registry,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the Prometheus query API: %w", err)
	}
	return api, nil
}

// openReader lets the reader answer queries from the storage and the unstored part of the
// journal.
func (d *daemon) openReader(j *journal.Journal, s *storage) {
	flush := func(ctx context.Context) error {
		if err := s.queue.Flush(ctx); err != nil {
			return err
		}
		return j.Secure()
	}
	stored := read.Stored{
		Sources: s.sources(), Duplicates: func(stream string) store.Duplicates { return d.current().stream(stream).Duplicates }, Catalogs: s.catalogs(), Available: s.readable, Up: s.up,
		Backlog: read.Backlog{
			Journal: j, Target: s.targetOf, WaitingSensors: s.queue.WaitingSensors, WaitingNewest: s.queue.WaitingNewest,
			Waiting: func(stream, sensor string) ([]batch.Ref, uint64) {
				w := s.queue.Waiting(stream, sensor)
				return w.Rows, w.From
			},
			Granularity: func(stream string) time.Duration { return d.cfg.stream(stream).Granularity },
		},
		FlushSensor: func(ctx context.Context, stream, sensor string) error {
			durable, err := s.queue.FlushSensor(ctx, stream, sensor)
			if err != nil || durable {
				return err
			}
			return flush(ctx)
		},
		Flush: flush,
	}
	if s.peers != nil {
		stored.Others = s.peers
	}
	d.reader.Open(stored)
}

// dataHandler serves the data listener: queries, the OpenAPI description, and ingest for other
// paths. A path that is not clean is unknown; http.ServeMux would redirect it.
func (d *daemon) dataHandler() http.Handler {
	in, out, prom, description, links := d.ingest.Handler(), d.reader.Handler(), d.promapi.Handler(), openapi.Handler(), openapi.Only("GET, HEAD", d.serveLinks)
	seal := d.sealHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		_, seals := streamToSeal(escaped)
		switch {
		case seals:
			seal.ServeHTTP(w, r)
		case read.Serves(r):
			out.ServeHTTP(w, r)
		case promapi.Serves(r.URL):
			prom.ServeHTTP(w, r)
		case escaped == peers.ProbePath:
			w.Header().Set(peers.DaemonHeader, d.session)
			in.ServeHTTP(w, r)
		case escaped == "/":
			links.ServeHTTP(w, r)
		case escaped == openapi.Path:
			description.ServeHTTP(w, r)
		case path.Clean("/"+escaped) != escaped && path.Clean("/"+escaped)+"/" != escaped:
			d.ingest.WriteProblem(w, telemetry.Errorf(telemetry.NotFound, "path_unknown",
				"there is nothing at %s; readings go to POST /v1/readings", telemetry.Quote([]byte(r.URL.Path))))
		default:
			in.ServeHTTP(w, r)
		}
	})
}

// serveLinks answers GET / with the main paths, and where the live page is.
func (d *daemon) serveLinks(w http.ResponseWriter, _ *http.Request) {
	type link struct {
		Method string `json:"method"`
		Path   string `json:"path"`
		About  string `json:"about"`
	}
	answer := struct {
		Page  string `json:"page"`
		Links []link `json:"links"`
	}{
		Page: d.scheme() + "://" + reachable(d.listeners.admin) + "/",
		Links: []link{
			{http.MethodPost, "/v1/readings", "send readings"},
			{http.MethodGet, "/v1/sensors", "list the sensors"},
			{http.MethodGet, "/v1/sensors/{sensorId}/readings", "read back"},
			{http.MethodGet, "/v1/sensors/{sensorId}/summary?every=1h", "summaries"},
			{http.MethodGet, "/v1/streams", "list the streams"},
			{http.MethodGet, openapi.Path, "all paths, as OpenAPI"},
		},
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(answer) // fails only if the client is gone
}

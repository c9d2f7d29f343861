// Package ingest receives readings: JSON, InfluxDB line protocol and Prometheus' remote write
// over HTTP, protobuf over gRPC, and OpenTelemetry's metrics over both. It decodes a request,
// refuses the readings that break a rule, gives the others to the journal as one batch, and
// answers when that batch has reached the ack that the client asked for.
//
//	HTTP  /v1/readings  ─ body ─ JSON, NDJSON ─┐
//	HTTP  /write        ─ body ─ line protocol ┤
//	HTTP  /api/v1/write ─ body ─ remote write  ┼─ intake ─ batch ─→ Journal
//	gRPC  Write, WriteStream ─── protobuf ─────┤      └─ answer ←─ Receipt
//	HTTP  /v1/metrics, gRPC Export ─── OTLP ───┘
package ingest

import (
	"bufio"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Journal takes the readings that a Server has accepted.
//
// Append takes all readings of the batch or none. It blocks until they have
// reached r.Want, or as much of it as could be had in time, and the receipt says
// what they reached; Journaled is a good answer to a wish for Stored. Readings
// that the database refused for their content are named in the receipt, the
// others are acknowledged.
//
// An error means that nothing is promised. It is a *telemetry.Error: of kind
// Unavailable if nothing was taken and nothing will be stored, UnknownOutcome if
// the readings may or may not be stored in the end. Any other error counts as a
// defect, with an unknown outcome. When ctx ends first, Append returns, and what
// it took may still be stored.
//
// A request whose key was taken before is not taken again: the receipt is
// Repeated and holds the first one's answer, after waiting for it where it is
// not there yet. The same key with another body is an error of kind Conflict.
//
// Append is called by any number of goroutines at once. The batch is never
// empty; it belongs to the journal from the call on, which sets Session and
// FirstSeq and bounds the memory that waiting batches hold.
//
// Repeat is for a request none of whose readings can be accepted now: if its key
// is known, it answers as Append would; if not, the receipt is not Repeated.
type Journal interface {
	Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error)
	Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error)
}

// A pool keeps values that requests need, between them.
type pool[T any] struct{ values sync.Pool }

// get returns a value that was used before, or a zero one.
func (p *pool[T]) get() *T {
	if v, ok := p.values.Get().(*T); ok {
		return v
	}
	return new(T)
}

func (p *pool[T]) put(v *T) { p.values.Put(v) }

// A Server serves the protocols. It starts no goroutines except for WriteStream.
type Server struct {
	journal Journal
	config  Config
	streams map[string]*inputStream
	order   []*inputStream // the same, as they are configured
	ahead   atomic.Int64   // Config.MaxFuture, which may change
	acks    string         // as messages name them
	names   string         // of the streams, likewise
	logger  *slog.Logger
	metrics *metrics
	budget  *budget
	pace    pace
	rooms   roomPool
	json    pool[jsonDecoder]
	wires   pool[wireDecoder]
	remotes pool[remoteDecoder]

	inflaters inflaters
	known     *batch.Interner // series and shapes of earlier requests
	exchanges pool[exchange]
	health    *health.Server

	open        openCalls // of gRPC
	callers     sync.WaitGroup
	callReaders pool[bufio.Reader]
	answerTime  time.Duration

	stopped context.Context //nolint:containedctx // ends when Stop is called
	stop    context.CancelFunc
}

// New returns a Server whose readings go to journal.
func New(config Config, journal Journal) (*Server, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	srv := &Server{
		journal: journal,
		config:  config,
		streams: make(map[string]*inputStream, len(config.Streams)),
		logger:  config.Logger,
		metrics: newMetrics(config.Registerer),
		health:  health.NewServer(),
		known:   config.Interner,

		answerTime: answerTime,
	}
	srv.stopped, srv.stop = context.WithCancel(context.Background())
	srv.budget = newBudget(config.MaxBytes, longestWait, srv.metrics.isBusy)
	srv.budget.large.beside = func() int64 { return connectionBytes * config.Connections() }
	srv.metrics.watchBudget(config.Registerer, srv.budget)
	srv.pace = pace{grace: config.BodyGrace, rate: config.MinBodyRate}
	srv.ahead.Store(int64(config.MaxFuture))
	for i := range config.Streams {
		s := newInputStream(config.Streams[i])
		srv.streams[s.Name], srv.order = s, append(srv.order, s)
	}
	srv.acks, srv.names = listAcks(config.Acks), listStreams(config.Streams)
	srv.SetReady(true)
	return srv, nil
}

// SetReady tells gRPC's health service whether readings can be taken. A new
// Server is ready; after Stop it never is again.
func (srv *Server) SetReady(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	srv.health.SetServingStatus("", status)
	srv.health.SetServingStatus(serviceName, status)
}

// Stop refuses every request from now on: over HTTP with 503, over gRPC with
// UNAVAILABLE, and health turns to NOT_SERVING. Requests that came before are
// not touched. Stop may be called more than once.
func (srv *Server) Stop() {
	srv.stop()
	srv.health.Shutdown()
}

func (srv *Server) stopping() bool { return srv.stopped.Err() != nil }

// Memory is how much requests and connections hold now, and may hold together.
func (srv *Server) Memory() (held, most int64) { return srv.budget.held(), srv.config.MaxBytes }

// Wait returns when all gRPC calls have ended, which they do soon after their server was
// closed.
func (srv *Server) Wait() { srv.callers.Wait() }

// retryAfter is how long a refused client is told to wait where the refusal
// itself does not say.
const retryAfter = time.Second

func errStopping() *telemetry.Error {
	e := telemetry.Errorf(telemetry.Unavailable, "stopping", "the daemon is stopping; nothing was accepted, send the request again")
	e.RetryAfter = retryAfter
	return e
}

// Package ingest receives readings: JSON, InfluxDB line protocol and Prometheus' remote write
// over HTTP, protobuf over gRPC, and OpenTelemetry's metrics over both. It decodes a request,
// refuses the readings that break a rule, appends the others to the journal as one batch, and
// answers when that batch has reached the ack that the client asked for.
//
//	HTTP  /v1/readings  ─ body ─ JSON, NDJSON ─┐
//	HTTP  /write        ─ body ─ line protocol ┤
//	HTTP  /api/v1/write ─ body ─ remote write  ┼─ intake ─ batch ─→ Journal
//	gRPC  Write, WriteStream ─── protobuf ─────┤      └─ answer ←─ Receipt
//	HTTP  /v1/metrics, gRPC Export ─── OTLP ───┤
//	a broker's messages ─── Feed ─── payloads ─┘
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

// A Journal stores the readings that a Server has accepted.
//
// Append appends all readings of the batch or none. It blocks until they have reached r.Want,
// or a timeout has passed; the receipt says what they reached, which may be Journaled if
// Stored was wanted. The receipt lists readings that the database refused for their content;
// all others are acknowledged.
//
// An error acknowledges nothing. It is a *telemetry.Error: of kind Unavailable if nothing was
// appended and nothing will be stored, UnknownOutcome if the readings may or may not be
// stored. Any other error counts as a defect with an unknown outcome. If ctx ends first,
// Append returns, and the readings may still be stored.
//
// If the key of a request is known, nothing is appended: the receipt is Repeated and has the
// answer to the first request, after waiting for it if necessary. The same key with another
// body is an error of kind Conflict.
//
// Append is called by any number of goroutines concurrently. The batch is never empty. It
// belongs to the journal as soon as Append is called; the journal sets Session and FirstSeq,
// and bounds the memory of waiting batches.
//
// Repeat is for a request with no readings that could be accepted now. If its key is known,
// it answers as Append would; otherwise the receipt is not Repeated.
type Journal interface {
	Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error)
	Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error)
}

// A pool keeps values that requests can reuse.
type pool[T any] struct{ values sync.Pool }

// get returns a value that was used before, or a zero value.
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
	order   []*inputStream // the same, in the order of the configuration
	ahead   atomic.Int64   // Config.MaxFuture, which may change
	logger  *slog.Logger
	metrics *metrics
	budget  *budget
	pace    pace
	buffers bufferPool
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
	for _, of := range config.Streams {
		s := &inputStream{Name: of.Name}
		s.set(of)
		srv.streams[s.Name], srv.order = s, append(srv.order, s)
	}
	srv.SetReady(true)
	return srv, nil
}

// SetReady tells gRPC's health service whether readings can be accepted. A new Server is
// ready; after Stop it is never ready again.
func (srv *Server) SetReady(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	srv.health.SetServingStatus("", status)
	srv.health.SetServingStatus(serviceName, status)
}

// Stop refuses all further requests, with 503 over HTTP and UNAVAILABLE over gRPC, and sets
// the health to NOT_SERVING. It does not affect requests in progress. It may be called more
// than once.
func (srv *Server) Stop() {
	srv.stop()
	srv.health.Shutdown()
}

func (srv *Server) stopping() bool { return srv.stopped.Err() != nil }

// Memory returns how much memory requests and connections hold now, and may hold.
func (srv *Server) Memory() (held, most int64) { return srv.budget.held(), srv.config.MaxBytes }

// Wait returns when all gRPC calls have ended, soon after their server is closed.
func (srv *Server) Wait() { srv.callers.Wait() }

// retryAfter is the default of Retry-After.
const retryAfter = time.Second

func errStopping() *telemetry.Error {
	e := telemetry.Errorf(telemetry.Unavailable, "stopping", "the daemon is stopping; nothing was accepted, send the request again")
	e.RetryAfter = retryAfter
	return e
}

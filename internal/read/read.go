// Package read answers what is stored: one way to ask, over every kind of
// storage, with what was acknowledged and is on its way there.
//
//	GET ─▶ route ─▶ access ─▶ parse ─▶ a place of --max-queries ─┬─▶ gather: the journal, from where the sensor's lane is
//	                                                             └─▶ Source: MongoDB, which says what of that it has
//
// The journal is looked at before MongoDB is. So a reading that leaves the
// journal in between is stored, and one that is in both is known by its session and
// sequence: each is seen once.
package read

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Source is a stream's store, as far as reading goes.
//
// Several goroutines may ask at once. What is yielded ends early when the consumer
// does; a failure is the last thing. Documents that are fetched are taken out
// of the budget of ctx, see telemetry.Spend, whose error ends the answer.
type Source interface {
	// Readings yields the readings of q in time order, those of q.Unstored that are
	// not stored among them.
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	// Summary yields the steps of q that have readings, in time order. Where Every
	// is 0 there is one, which starts at From.
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
	// Sensors yields the sensors that have stored readings, in the order of their
	// ids' bytes.
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	// Latest returns the newest reading of the sensor, unstored ones included.
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
	// Delete removes the sensor's readings and returns how many those were, -1
	// where the server does not say.
	Delete(ctx context.Context, sensor string) (int64, error)
}

// Config says how to answer.
type Config struct {
	DefaultStream string
	Guard         *access.Guard // nil: all may ask
	// Problem writes an error as the API's answer.
	Problem func(w http.ResponseWriter, err error)

	Timeout time.Duration // of one answer; 0: 30 s
	// MaxQueries is how many are answered at once; 0: DefaultQueries. Others wait a
	// second for a place, and get 503.
	MaxQueries int
	// MaxBytes is what one answer may read of documents; 0: 256 MiB. A reading
	// of ten fields has some 150 bytes: that is a month of a sensor that sends
	// every second or two, and some two seconds of MongoDB's work.
	MaxBytes int64
	// MaxBacklog is how much of the journal is searched for what is not stored yet;
	// 0: 64 MiB. Mostly it holds the readings of a second or two; after
	// MongoDB was away it may be gigabytes.
	MaxBacklog int64

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// Stored is where the answers come from, once it is there.
type Stored struct {
	Sources map[string]Source // by stream
	// Available returns nil while a stream's database answers, or where it has none;
	// otherwise requests end with 503.
	Available func(stream string) error
	// Up returns a context that ends when the database of the stream goes away, to
	// end queries of it. Nil: there is no database that could.
	Up      func(stream string) context.Context
	Backlog Backlog
	// Flush returns when all that was taken before the call is stored, and would not
	// be stored again after a crash.
	Flush func(ctx context.Context) error
}

// A Reader answers the requests for what is stored.
type Reader struct {
	cfg     Config
	metrics *metrics
	places  *places // of the answers that are under way
	stored  atomic.Pointer[Stored]
}

// DefaultQueries is how many queries are answered at once unless Config says
// otherwise: two for each processor, at least four. More would only slow each other
// down, and the writes with them, until none is answered in time.
func DefaultQueries() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// New returns a reader that answers 503 until Open.
func New(cfg Config) (*Reader, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	r := &Reader{cfg: cfg, places: newPlaces(cfg.MaxQueries)}
	r.metrics = newMetrics(cfg.Registerer, r.places.used)
	return r, nil
}

// Open says where the answers come from.
func (r *Reader) Open(s Stored) { r.stored.Store(&s) }

func (c *Config) setDefaults() error {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxQueries == 0 {
		c.MaxQueries = DefaultQueries()
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.MaxBacklog == 0 {
		c.MaxBacklog = 64 << 20
	}
	switch {
	case c.Problem == nil:
		return errors.New("a reader needs a way to tell problems")
	case c.Logger == nil:
		return errors.New("a reader needs a logger")
	case c.Timeout < time.Millisecond || c.Timeout > time.Hour:
		return fmt.Errorf("query-timeout %v is out of range; allowed are 1ms to 1h", c.Timeout)
	case c.MaxQueries < 1 || c.MaxQueries > 10_000:
		return fmt.Errorf("max-queries %d is out of range; allowed are 1 to 10000", c.MaxQueries)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("query-max-bytes %d is too small; it needs 1MiB", c.MaxBytes)
	case c.MaxBacklog < 1<<20:
		return fmt.Errorf("query-max-backlog %d is too small; it needs 1MiB", c.MaxBacklog)
	}
	return nil
}

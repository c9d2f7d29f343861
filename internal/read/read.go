// Package read answers queries for readings, from every kind of storage, including readings that
// are acknowledged but not stored yet:
//
//	GET ─▶ route ─▶ access ─▶ parse ─▶ a slot of --max-queries ─┬─▶ Backlog: readings that wait in memory or in the journal
//	                                                            └─▶ Source: MongoDB, which has those that are stored by now
//
// The backlogs of this daemon and of others are searched before MongoDB is queried. So a reading
// that leaves a backlog in between is found in MongoDB, and one that is in both is recognized by
// its session and sequence. So each is returned once.
//
//	session.go   queries by callers in this process
//	request.go   routing and parameters
//	serve.go     answering a request within its limits
//	slots.go     how many queries run concurrently
//	answers.go   the answer to each kind of request
//	many.go      readings of several sensors
//	sensors.go   lists of sensors
//	delete.go    deletion of sensors
//	backlog.go   readings that are not stored yet
//	others.go    other daemons
//	write.go     output as JSON and NDJSON
//	table.go     output as CSV and Parquet
package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Source is the reading side of a stream's store.
//
// Several goroutines may call it at once. A sequence ends early when the consumer
// stops; an error comes last. Fetched documents count against the budget of ctx, see
// telemetry.Spend, whose error ends the answer.
type Source interface {
	// Readings yields the readings of q in time order, including those of q.Unstored
	// that are not stored.
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	// ReadingsOf yields what Readings yields for each query, one query after the other. The
	// queries differ only in their sensors, whose ids ascend, and their unstored readings. They
	// have no Limit.
	ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error]
	// Summary yields the steps of q that have readings, in time order. If Every is
	// 0 there is only one, which starts at From.
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
	// Sensors yields the sensors that have stored readings, in the order of their
	// ids' bytes.
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	// Newest returns the time of the sensor's newest stored reading, in milliseconds
	// since the epoch, and whether there is one.
	Newest(ctx context.Context, sensor string) (ms int64, found bool, err error)
	// Latest returns the newest reading of the sensor, unstored ones included.
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
	// Delete removes the sensor's readings and returns how many there were; -1
	// if the server does not say.
	Delete(ctx context.Context, sensor string) (int64, error)
}

// A Catalog has the sensors of a stream, with their tags and fields.
type Catalog interface {
	// List yields the sensors that a query asks for in the order of their ids' bytes.
	// Sensors whose readings were removed since may be included. Fetched documents count
	// against the budget of ctx.
	List(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.Sensor, error]
	// Unwritten returns the sensors that List has only from this daemon, sorted by id.
	Unwritten(q *telemetry.SensorQuery) []telemetry.Sensor
	// Complete returns nil if List has all sensors with readings that are stored, or were
	// read from the journal. Otherwise it returns a *telemetry.Error.
	Complete() error
	// Overflowed reports whether sensors that were read from the journal may be missing.
	Overflowed() bool
	// Forget makes the next reading of the sensors, or of all sensors if none is given, add
	// them to the catalog again. Delete removes sensors.
	Forget(sensors ...string)
	Delete(ctx context.Context, sensors ...string) error
	// Rebuild marks the catalog as incomplete until it has been compared with all stored
	// readings.
	Rebuild()
}

// Config configures a Reader.
type Config struct {
	DefaultStream string
	Daemon        string        // identifies this process to other daemons, see Others
	Guard         *access.Guard // nil: everyone may read
	// Problem writes an error as the API's answer.
	Problem func(w http.ResponseWriter, err error)

	Timeout time.Duration // per answer; 0: 30 s
	// MaxQueries is the number of queries answered concurrently; 0: DefaultQueries. More
	// wait up to a second for a slot, and then get 503.
	MaxQueries int
	// MaxBytes is how many bytes of documents one answer may read; 0: 256 MiB. A
	// reading of ten fields has some 150 bytes: that is a month of a sensor that
	// reports every second or two, and some two seconds of MongoDB's work.
	MaxBytes int64
	// MaxBacklog is how much of the journal is searched for unstored readings; 0: 64
	// MiB. Usually it has a second or two of them, but gigabytes after MongoDB was
	// unavailable.
	MaxBacklog int64

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// Stored has the sources of answers, see Reader.Open.
type Stored struct {
	Sources map[string]Source // by stream
	// Duplicates returns a stream's rule on duplicates. Nil: store.Keep for all.
	Duplicates func(stream string) store.Duplicates
	// Catalogs are the streams' catalogs. Without one, a stream's sensors are the
	// source's, with the tags and fields of their newest readings.
	Catalogs map[string]Catalog
	// Available returns nil while a stream's database answers, or if it has none. With an
	// error, requests are answered with 503.
	Available func(stream string) error
	// Up returns a context for queries of the stream, which ends when its database becomes
	// unavailable. Nil: there is no database.
	Up      func(stream string) context.Context
	Backlog Backlog
	Others  Others // nil: there are none
	// FlushSensor returns when all readings of a sensor accepted before the call are stored,
	// and would not be stored again after a crash.
	FlushSensor func(ctx context.Context, stream, sensor string) error
	// Flush is the same for all sensors.
	Flush func(ctx context.Context) error
}

// A Reader answers requests for stored readings.
type Reader struct {
	cfg     Config
	metrics *Calls
	slots   *slots // for queries
	waiting *slots // for answers to unstored=only
	stored  atomic.Pointer[Stored]
	spare   atomic.Pointer[[]byte] // a buffer for an answer; nil: none, or in use

	arrivals arrivals
}

// DefaultQueries is the default of Config.MaxQueries: two for each CPU, at least four. More
// queries would only slow down each other and the writes.
func DefaultQueries() int { return max(4, 2*machine.CPUs()) }

// New returns a reader that answers 503 until Open.
func New(cfg Config) (*Reader, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	r := &Reader{cfg: cfg, slots: newSlots(cfg.MaxQueries), waiting: newSlots(waitingSlots * cfg.MaxQueries)}
	r.metrics = newMetrics(cfg.Registerer, r.slots.used)
	return r, nil
}

// Stream returns name, or the name of the default stream if it is empty.
func (r *Reader) Stream(name string) string { return cmp.Or(name, r.cfg.DefaultStream) }

// Arriving reports whether readings were journaled within the last second, as far as calls
// within that second can tell.
func (r *Reader) Arriving() bool {
	stored := r.stored.Load()
	return stored != nil && stored.Backlog.Journal != nil && r.arrivals.seen(stored.Backlog.Journal.End(), time.Now())
}

// arrivals detects whether readings arrive.
type arrivals struct {
	mu             sync.Mutex
	end            uint64 // of the journal
	asked, changed time.Time
}

// lately is how recently readings must have arrived to count.
const lately = time.Second

func (a *arrivals) seen(end uint64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if end != a.end && now.Sub(a.asked) < lately {
		a.changed = now
	}
	a.end, a.asked = end, now
	return now.Sub(a.changed) < lately
}

// Open sets the sources of answers.
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
		return errors.New("a reader needs a function to write errors")
	case c.Logger == nil:
		return errors.New("a reader needs a logger")
	case c.Timeout < time.Millisecond || c.Timeout > time.Hour:
		return fmt.Errorf("query-timeout %v is out of range; allowed: 1ms to 1h", c.Timeout)
	case c.MaxQueries < 1 || c.MaxQueries > 10_000:
		return fmt.Errorf("max-queries %d is out of range; allowed: 1 to 10000", c.MaxQueries)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("query-max-bytes %d is too small; allowed: 1MiB or more", c.MaxBytes)
	case c.MaxBacklog < 1<<20:
		return fmt.Errorf("query-max-backlog %d is too small; allowed: 1MiB or more", c.MaxBacklog)
	}
	return nil
}

// Package doctor measures what limits MongoDB's write speed: its storage engine, the disk under it
// and the CPU of its host.
//
//	two samples ─┬─▶ signals (value, unit, class, threshold, source) ─┬─▶ /metrics, the live page
//	             └─▶ rates ───────────────────────────────────────────┴─▶ diagnosis (cause, evidence, action, cost)
//
// A Monitor takes a sample in each interval and keeps the last two, since a rate needs both.
// Reading metrics or signals reads the last sample and causes no I/O.
//
//	signals.go      the table of signals and their thresholds
//	diagnosis.go    the table of what may slow writes down; remedies.go has the remedies
//	settings.go     the table of settings that cost performance without need
//	report.go       all findings together, as brim doctor prints them
//	mongodb.go      what a sample reads from MongoDB; collections.go and disk.go read the rest
//	rates.go        rates between two samples; writepath.go measures how slow writes are
//	metrics.go      the counters of serverStatus, and their metrics
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Stream names the collection to sample: where several fit, the one that a
// daemon with these settings writes to.
type Stream struct {
	Name       string
	Storage    store.Storage    // memory has no collection and is skipped
	Compressor store.Compressor // empty: any
}

// Config says what to sample.
type Config struct {
	// Database has the streams' collections; its client asks for the server's
	// status, always from the primary, where writes are slow, whatever the read
	// preference.
	Database *mongo.Database
	Streams  []Stream
	// Interval between two samples, at least 1 s. 0: 10 s. MongoDB is asked for its
	// status once in an interval, however often metrics are read.
	Interval time.Duration
	// DBPath is where mongod has its files if it is known to run on this machine.
	// Empty: MongoDB is asked; the answer counts if it runs here.
	DBPath string
	// WritePath returns how long the daemon's updates take. nil: MongoDB's own
	// counters are used.
	WritePath func(context.Context) WritePath
	// Available returns the connection's current state; an ErrAway counts at once,
	// before the next sample. nil: only samples count.
	Available func() error
	// Thresholds for the signals. nil: the built-in ones.
	Thresholds *Thresholds
	// Logger reports what can no longer be measured, or can be again. nil: no log.
	Logger *slog.Logger
	// nil: metrics are not registered.
	Registerer prometheus.Registerer
	// Now returns the time. nil: time.Now.
	Now func() time.Time
}

const (
	defaultInterval = 10 * time.Second
	leastInterval   = time.Second
	// maxPatience bounds how long a sample waits for MongoDB, which may stop in the
	// middle of an answer.
	maxPatience = 5 * time.Second
)

// A Monitor samples the storage engine and the disk periodically.
type Monitor struct {
	config     Config
	database   *mongo.Database
	disks      *disks
	took       prometheus.Histogram
	seen       atomic.Pointer[view]
	thresholds atomic.Pointer[Thresholds]

	mu      sync.Mutex        // held during a sample
	process process           // the last process asked
	sizes   map[string]sizes  // by stream
	said    map[string]string // last log message by subject
}

// A view is the last sample, evaluated.
type view struct {
	Seen

	last   sample
	before *status // of the previous sample; nil: unknown
	rates  rates
	// known has the server, the collections and the disk as last seen, even while
	// MongoDB is away.
	known sample
}

// A sample is what was measured at one time.
type sample struct {
	at            time.Time
	server        *status // nil: unknown
	serverWhy     string  // why server is nil
	answered      bool    // MongoDB answered, even if only with a refusal
	roundTrip     float64 // of a ping, in seconds; NaN: no answer
	away          string  // error of a ping without an answer, or of a refused user
	path          WritePath
	collections   map[string]collection
	disk          diskSample
	cores         float64 // available to the server; 0: unknown
	coresWhy      string  // why cores is 0
	memory        float64 // available to the server, in bytes; 0: unknown
	machine       cpuTime
	historyWindow float64 // how long old versions of documents are kept, in seconds; NaN: unknown
}

// New returns a monitor without a sample: everything is unknown.
func New(config Config) (*Monitor, error) {
	if config.Database == nil {
		return nil, errors.New("set up the doctor: database is missing")
	}
	config.Interval = cmp.Or(config.Interval, defaultInterval)
	if config.Interval < leastInterval {
		return nil, fmt.Errorf("set up the doctor: interval %s is less than %s", config.Interval, leastInterval)
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Streams = slices.DeleteFunc(slices.Clone(config.Streams), func(s Stream) bool { return s.Storage == store.Memory })
	m := &Monitor{
		config: config, disks: newDisks(), sizes: make(map[string]sizes), said: make(map[string]string),
		database: config.Database.Client().Database(config.Database.Name(), options.Database().
			SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())),
		took: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_mongodb_server_status_seconds",
			Help: "Time that a request for MongoDB's status took, also one that was not answered.",
			// 100 us to 6.5 s: an answer takes half a millisecond; a sample gives up after 5
			// s.
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17),
		})),
	}
	m.SetThresholds(config.Thresholds)
	m.seen.Store(m.view(sample{serverWhy: whyNoSample, disk: unseenDisk(whyNoSample), historyWindow: math.NaN(), path: unknownPath(whyNoSample)}, view{}))
	if config.Registerer != nil {
		if err := config.Registerer.Register(m); err != nil {
			return nil, fmt.Errorf("register metrics of the doctor: %w", err)
		}
	}
	return m, nil
}

// Run samples at once and then every interval until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		m.Sample(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sample takes a sample now: at most 2 s if MongoDB does not answer a ping;
// otherwise at most 5 s for MongoDB's status and another 5 s for the collections'
// sizes.
func (m *Monitor) Sample(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := sample{}
	began := m.config.Now()
	m.sampleServer(ctx, &now)
	now.at = m.config.Now()
	m.took.Observe(now.at.Sub(began).Seconds())
	m.sampleCollections(ctx, &now)
	m.sampleMachine(ctx, &now)
	m.sampleWindow(ctx, &now)
	before := m.seen.Load().last
	now.path = pathOfServer(before, now, ratesBetween(before, now))
	if m.config.WritePath != nil {
		if told := m.config.WritePath(ctx); told.Why == "" || now.path.Why != "" {
			now.path = told
		} else {
			now.path.writes = told.writes
		}
	}
	if ctx.Err() == nil { // otherwise unknowns say nothing about MongoDB
		m.seen.Store(m.view(now, *m.seen.Load()))
	}
}

func (m *Monitor) view(now sample, before view) *view {
	return newView(now, before, m.thresholds.Load())
}

// SetThresholds changes Config.Thresholds from the next sample on.
func (m *Monitor) SetThresholds(t *Thresholds) { m.thresholds.Store(t) }

// newView compares a sample with the one before it.
func newView(now sample, before view, t *Thresholds) *view {
	v := &view{last: now, before: before.last.server, rates: ratesBetween(before.last, now), known: now}
	if last := before.known.server; now.server == nil {
		v.known.server = last
	} else if last != nil { // the server may have stopped reporting some figures
		known := *now.server
		known.figures = maps.Clone(last.figures)
		maps.Copy(known.figures, now.server.figures)
		v.known.server = &known
	}
	if now.disk.why != "" && before.known.disk.kind != "" {
		v.known.disk = before.known.disk
	}
	v.known.collections = make(map[string]collection, len(now.collections))
	maps.Copy(v.known.collections, before.known.collections)
	for name, c := range now.collections {
		if c.why == "" {
			v.known.collections[name] = c
		}
	}
	v.Seen = Seen{
		At: now.at, OverSeconds: v.rates.over.Seconds(), Signals: signals(now, v.rates, t), Rates: v.rates.Rates, WritePath: now.path,
		Server: Server{
			Answered: now.answered, Here: now.machine.total > 0, Processors: now.cores, CacheBytes: orZero(now.server.value(cacheMax)),
			MemoryBytes: now.memory, Why: now.serverWhy, HistoryWindowSeconds: finite(now.historyWindow),
			RoundTripSeconds: finite(now.roundTrip), Away: now.away, Refused: now.serverWhy == whyRefused,
		},
		Disk: Disk{
			Device: now.disk.device, Kind: string(now.disk.kind), Path: now.disk.path,
			Size: orZero(now.disk.size), Free: orZero(now.disk.free), Why: now.disk.why,
		},
		collections: now.collections, merging: mergingBetween(before.last.path.writes, now.path.writes, now.at.Sub(before.last.at)),
	}
	if s := v.known.server; s != nil {
		v.Server.Version, v.Server.Topology, v.Server.Engine = s.version, s.topology, s.engine
	}
	if now.server != nil {
		v.Server.Host, v.Server.Secondary = now.server.host, now.server.secondary
	}
	return v
}

// Signals returns all signals of the last sample, always in the same order.
func (m *Monitor) Signals() []Signal { return slices.Clone(m.seen.Load().Signals) }

// patience is how long one request may take.
func (m *Monitor) patience() time.Duration { return min(m.config.Interval, maxPatience) }

// say logs why a subject cannot be measured, if that has changed; an empty why
// means that it can, which is not logged the first time. What a canceled sample
// lacks is ignored.
func (m *Monitor) say(ctx context.Context, subject, why string, err error) {
	if ctx.Err() != nil {
		return
	}
	before, known := m.said[subject]
	m.said[subject] = why
	switch {
	case before == why && known, why == "" && !known:
	case why == "":
		m.config.Logger.Info("doctor: can sample again", "subject", subject)
	case err != nil:
		m.config.Logger.Warn("doctor: cannot sample", "subject", subject, "why", why, "err", err)
	default: // not a failure
		m.config.Logger.Info("doctor: cannot sample", "subject", subject, "why", why)
	}
}

// Seen is what the last two samples show: the input of a diagnosis.
type Seen struct {
	At          time.Time `json:"at"`           // of the last sample; zero before the first
	OverSeconds float64   `json:"over_seconds"` // since the previous sample; 0: there is only one
	Server      Server    `json:"server"`
	Disk        Disk      `json:"disk"`
	Signals     []Signal  `json:"signals"`    // always all of them, in the same order
	Rates       Rates     `json:"rates"`      // all of them, in the same order
	WritePath   WritePath `json:"write_path"` // the daemon's, or else the server's own

	collections map[string]collection // by stream
	merging     merging
}

// Server is what MongoDB said about itself.
type Server struct {
	Answered    bool    `json:"answered"` // even if only with a refusal
	Version     string  `json:"version,omitempty"`
	Topology    string  `json:"topology,omitempty"`  // standalone, replica_set or sharded
	Secondary   bool    `json:"secondary,omitempty"` // a member that accepts no writes: slow writes show on the primary
	Engine      string  `json:"engine,omitempty"`
	Host        string  `json:"host,omitempty"`         // as the server calls itself
	Here        bool    `json:"here"`                   // it runs on this machine
	Processors  float64 `json:"processors,omitempty"`   // available to it; 0: unknown
	CacheBytes  float64 `json:"cache_bytes,omitempty"`  // size of the engine's cache; 0: unknown
	MemoryBytes float64 `json:"memory_bytes,omitempty"` // of its machine or container; 0: unknown
	// HistoryWindowSeconds is how long old versions of documents are kept; nil:
	// unknown.
	HistoryWindowSeconds *float64 `json:"history_window_seconds"`
	Why                  string   `json:"why,omitempty"`      // why the storage engine is unknown
	Refused              bool     `json:"-"`                  // it rejects the user or the password
	RoundTripSeconds     *float64 `json:"round_trip_seconds"` // of a ping; nil: unknown
	Away                 string   `json:"away,omitempty"`     // the error of a server that does not answer or refuses the user
}

// Disk is the disk under MongoDB's files.
type Disk struct {
	Device string  `json:"device,omitempty"`
	Kind   string  `json:"kind"` // nvme, ssd, hdd or unknown
	Path   string  `json:"path,omitempty"`
	Size   float64 `json:"size_bytes,omitempty"` // of the file system; 0: unknown
	Free   float64 `json:"free_bytes,omitempty"`
	Why    string  `json:"why,omitempty"` // why its counters are unknown
}

// Describe returns what is known about the server. The URI must have no
// secrets.
func (s *Server) Describe(uri string) string {
	if !s.Answered {
		return "does not answer, " + uri // its earlier answers may be out of date
	}
	parts := []string{join(" ", s.Version, strings.ReplaceAll(s.Topology, "_", " ")), uri}
	if s.Secondary {
		parts = append(parts, "a member that accepts no writes: run brim doctor against the primary")
	}
	if s.Processors > 0 {
		parts = append(parts, fmt.Sprintf("%.0f CPUs", s.Processors))
	}
	if s.CacheBytes > 0 {
		parts = append(parts, "cache "+size(s.CacheBytes))
	}
	if s.Here {
		parts = append(parts, "on this machine")
	}
	return join(", ", parts...)
}

// Describe returns what is known about the disk and how its latency thresholds were
// chosen.
func (d *Disk) Describe() string {
	if d.Device == "" {
		return "unknown: " + d.Why
	}
	space, kind := "", d.kindInWords()
	if diskKind(d.Kind) == diskUnknown {
		kind += " (virtual disks do not report theirs), compared with an SSD's thresholds"
	}
	if d.Size > 0 {
		space = size(d.Free) + " of " + size(d.Size) + " free"
	}
	return join(", ", d.Device, kind, space, d.Path)
}

func (d *Disk) kindInWords() string {
	return map[diskKind]string{diskNVMe: "NVMe", diskSSD: "SSD", diskHDD: "hard disk", diskUnknown: "of unknown kind"}[diskKind(d.Kind)]
}

// Seen evaluates the last two samples, and reports whether MongoDB has stopped
// answering since.
func (m *Monitor) Seen() Seen {
	s := m.seen.Load().Seen
	s.Signals = slices.Clone(s.Signals)
	if err := m.away(); err != nil && s.Server.Answered {
		s.Server.Answered, s.Server.Why, s.Server.Away = false, whyAway, err.Error()
	}
	return s
}

// Signal returns a signal by name; its class is unknown if there is none.
func (s *Seen) Signal(name string) Signal {
	for i := range s.Signals {
		if s.Signals[i].Name == name {
			return s.Signals[i]
		}
	}
	return Signal{Name: name, Value: math.NaN(), Class: Unknown}
}

// Rate returns a rate by name; NaN: unknown.
func (s *Seen) Rate(name string) float64 { return s.Rates.value(name) }

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

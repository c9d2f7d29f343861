// Package doctor looks at what decides how fast MongoDB can write: its storage
// engine and the disk beneath it. One look is
//
//	two looks ─┬─▶ signals (value, unit, class, threshold, source) ─┬─▶ /metrics, the live page
//	           └─▶ rates ───────────────────────────────────────────┴─▶ diagnosis (cause, evidence, action, cost)
//
// A Monitor takes a look each interval and keeps the last two, since what is a
// rate needs both. Who reads metrics or signals reads the last look and causes
// no I/O.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/store"
)

// A Stream is one whose collection is looked at.
type Stream struct {
	Name       string
	Collection string        // empty: as the stream
	Storage    store.Storage // memory has no collection and is left out
}

// Config says what to look at.
type Config struct {
	// Database has the streams' collections; its client asks for the server's
	// status. Its read concern and preference do not matter: the primary is
	// asked, which is where writes are slow.
	Database *mongo.Database
	Streams  []Stream
	// Interval between two looks, at least 1 s. 0: 10 s. MongoDB is asked for
	// its status once in an interval, however often metrics are read.
	Interval time.Duration
	// DBPath is where mongod has its files when it is known to run on this
	// machine. Empty: MongoDB is asked, and believed if it runs here.
	DBPath string
	// WritePath tells how long the daemon's updates take. nil: MongoDB's own
	// counters must do.
	WritePath func(context.Context) WritePath
	// Available says what the connection knows at any moment; an ErrAway of it
	// counts at once, before the next look. nil: only looks tell.
	Available func() error
	// Thresholds that signals are held against. nil: the built-in ones.
	Thresholds *Thresholds
	// Logger gets what can no longer, or again, be seen. nil: nobody.
	Logger *slog.Logger
	// Registerer gets the metrics. nil: nobody.
	Registerer prometheus.Registerer
	// Now tells the time. nil: time.Now.
	Now func() time.Time
}

const (
	defaultInterval = 10 * time.Second
	leastInterval   = time.Second
	// maxPatience bounds what one look waits for MongoDB, which may be stopped
	// in the middle of an answer.
	maxPatience = 5 * time.Second
	// collectionsInterval: sizes change slowly, and asking walks every table's
	// statistics.
	collectionsInterval = time.Minute
)

// A Monitor looks at the storage engine and the disk again and again.
type Monitor struct {
	config   Config
	log      *slog.Logger
	database *mongo.Database
	disks    *disks
	took     prometheus.Histogram
	seen     atomic.Pointer[view]
	against  atomic.Pointer[Thresholds] // Config.Thresholds, which may change

	mu         sync.Mutex // held for one look
	place      place
	processors processors
	sizes      map[string]sizes  // by stream
	said       map[string]string // by subject: what the log was told last
}

// A view is the last look with what it says.
type view struct {
	last    look
	rates   rates
	info    serverInfo // the last that was seen, also while MongoDB is away
	counted counted    // likewise
	signals []Signal
}

// A look is what was seen at one moment.
type look struct {
	at          time.Time
	server      *status // nil: not seen
	serverWhy   string  // why server is nil
	answered    bool    // MongoDB answered, if only that it must not tell
	roundTrip   float64 // of a ping, in seconds; NaN: it was not answered
	away        string  // what the ping came to where it was not answered
	path        WritePath
	collections map[string]collection
	disk        diskLook
	cores       float64 // that the server may use; 0: not known
	coresWhy    string  // why cores is 0
	memory      float64 // bytes that the server may use; 0: not known
	machine     machineLook
	// historyWindow is for how many seconds old versions of documents are kept;
	// NaN: not known.
	historyWindow float64
}

// New makes a monitor that has not looked yet: until it has, nothing is known.
func New(config Config) (*Monitor, error) {
	if config.Database == nil {
		return nil, errors.New("set up the doctor: database is missing")
	}
	if config.Interval == 0 {
		config.Interval = defaultInterval
	}
	if config.Interval < leastInterval {
		return nil, fmt.Errorf("set up the doctor: interval %s is less than %s", config.Interval, leastInterval)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Streams = slices.DeleteFunc(slices.Clone(config.Streams), func(s Stream) bool { return s.Storage == store.Memory })
	for i, s := range config.Streams {
		if s.Collection == "" {
			config.Streams[i].Collection = s.Name
		}
	}
	m := &Monitor{
		config: config, log: config.Logger, disks: newDisks(), took: newTook(),
		database: config.Database.Client().Database(config.Database.Name(), options.Database().
			SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())),
		sizes: make(map[string]sizes), said: make(map[string]string),
	}
	m.SetThresholds(config.Thresholds)
	m.seen.Store(m.view(look{serverWhy: whyNoLook, disk: unseenDisk(whyNoLook), historyWindow: math.NaN(), path: unknownPath(whyNoLook)}, view{}))
	if config.Registerer != nil {
		if err := config.Registerer.Register(&collector{monitor: m}); err != nil {
			return nil, fmt.Errorf("register metrics of the doctor: %w", err)
		}
	}
	return m, nil
}

// Run looks now and then once in each interval until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		m.Look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look looks now. It takes at most 2 s where MongoDB does not answer a ping;
// otherwise at most 5 s for MongoDB's status and as long for the collections'
// sizes.
func (m *Monitor) Look(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := look{}
	began := m.config.Now()
	m.lookAtServer(ctx, &now)
	now.at = m.config.Now()
	m.took.Observe(now.at.Sub(began).Seconds())
	m.lookAtCollections(ctx, &now)
	m.lookAtDisk(ctx, &now)
	m.lookAtProcessors(ctx, &now)
	m.lookAtWindow(ctx, &now)
	m.lookAtWrites(ctx, &now)
	if ctx.Err() != nil {
		return // what could not be seen says nothing about MongoDB
	}
	m.seen.Store(m.view(now, *m.seen.Load()))
}

// lookAtWrites asks the daemon, or else compares the server's counters.
func (m *Monitor) lookAtWrites(ctx context.Context, now *look) {
	before := m.seen.Load().last
	now.path = pathOfServer(before, *now, ratesBetween(before, *now))
	if m.config.WritePath == nil {
		return
	}
	if told := m.config.WritePath(ctx); told.Why == "" || now.path.Why != "" {
		now.path = told
	}
}

func (m *Monitor) view(now look, before view) *view { return newView(now, before, m.against.Load()) }

// SetThresholds changes Config.Thresholds; the next look is held against them.
func (m *Monitor) SetThresholds(t *Thresholds) { m.against.Store(t) }

// newView puts a look beside the one before it.
func newView(now look, before view, t *Thresholds) *view {
	v := &view{last: now, rates: ratesBetween(before.last, now), info: before.info, counted: before.counted.with(now)}
	if now.server != nil {
		v.info = now.server.info
	}
	v.signals = signals(now, v.rates, t)
	return v
}

// Signals returns what the last look says, always all signals in the same
// order.
func (m *Monitor) Signals() []Signal { return slices.Clone(m.seen.Load().signals) }

// patience is how long one question may take.
func (m *Monitor) patience() time.Duration { return min(m.config.Interval, maxPatience) }

// say logs what is to be said of a subject when it is not what was said last;
// an empty why is that all is well, which is not news at first.
func (m *Monitor) say(subject, why string, err error) {
	before, known := m.said[subject]
	if before == why && known || why == "" && !known {
		m.said[subject] = why
		return
	}
	m.said[subject] = why
	switch {
	case why == "":
		m.log.Info("the doctor can see again", "subject", subject)
	case err != nil:
		m.log.Warn("the doctor cannot see", "subject", subject, "why", why, "err", err)
	default: // it is how things are, and no failure
		m.log.Info("the doctor cannot see", "subject", subject, "why", why)
	}
}

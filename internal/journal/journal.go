// Package journal is a durable log of readings between the servers that accept them and the queue
// that writes them to MongoDB. What Append acknowledges is durable, and can be followed in a
// single order until it is stored.
//
//	Append ─▶ encode ─▶ sequence + position (one critical section) ─▶ pending commit
//	                                                                    │ write, one fsync for all
//	   receipt ◀── answer all requests ◀── publish in order ◀───────────┘
//	                                        │
//	            Follow, Grown ◀── tail in memory, or segments
//	            Trim ──▶ what is stored; segments that are not needed are deleted
//
// The journal has its files on a disk, or in memory. In memory it is not durable, so it
// acknowledges only stored readings.
//
//	journal.go      configuration, opening, status, closing
//	append.go       Append: commits, segments, a full disk
//	follow.go       reading it back; waiting until readings are stored
//	trimmed.go      sensors that are stored ahead of others
//	maintenance.go  marks, deleting stored segments, watching the folder
//	keys.go         idempotency keys
//	session.go      the sessions that records are written under
//	recover.go      reading what earlier processes left; damage
//	inspect.go      a report on a journal
//	format.go       the bytes on disk
//	files.go        the disk, or memory
package journal

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config configures a journal. Sizes are in bytes.
type Config struct {
	Dir     string            // used by one process at a time
	Memory  bool              // keep it in memory; Dir and Files are not used
	Session string            // of new records, see batch.NewSession
	Streams map[string]Stream // that may be written to, by name

	MaxBytes     int64 // of all segments, at least 1 MiB; 0: 4 GiB, in memory 64 MiB
	SegmentBytes int64 // a segment ends before the record that would not fit; larger ones have their own; 0: MaxBytes/8, at most 64 MiB or MaxBytes/1024, in memory MaxBytes/16384, at least 4 KiB
	TailBytes    int64 // of the newest batches, kept in memory for cursors; 0: 8 MiB

	StoredTimeout time.Duration // how long Append waits until readings are stored; 0: 10 s
	KeyWindow     time.Duration // how long idempotency keys are known; 0: 15 min
	MaxKeys       int           // maximum number of known keys; 0: 1,000,000, about 100 MiB and at most 32 MiB of answers

	// Admit may be nil. It is called for each stream of a request; an error refuses the
	// request. A journal in memory uses it to refuse readings while the database is
	// unavailable.
	Admit func(stream string) error

	// Interner has the series and shapes of decoded records; nil: a new one.
	Interner *batch.Interner

	// AcceptLoss opens a damaged journal and gives up its unreadable parts.
	AcceptLoss bool

	Files      Files                 // nil: the file system
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Now        func() time.Time      // nil: time.Now
	Elapsed    func() time.Duration  // monotonic time since an arbitrary moment; nil: by Now
}

// Stream is how and where the readings of a stream were stored when they were
// journaled, and must be if they are stored later.
type Stream struct {
	Storage     string        `json:"storage"`
	Compressor  string        `json:"compressor,omitempty"` // of the collection; earlier releases did not record it
	Target      string        `json:"target"`               // place where they are stored, without secrets
	Granularity time.Duration `json:"granularity"`
}

// limitFlag is the flag that sets MaxBytes.
func (c *Config) limitFlag() string {
	if c.Memory {
		return "--queue-max-bytes"
	}
	return "--journal-max-bytes"
}

func (c *Config) setDefaults() error {
	if c.Memory {
		c.Dir, c.Files = "memory", newMemoryFiles()
		c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
		c.SegmentBytes = cmp.Or(c.SegmentBytes, max(4<<10, c.MaxBytes>>14))
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, min(c.MaxBytes/8, max(64<<20, c.MaxBytes>>10))) // each is an open file
	c.TailBytes = cmp.Or(c.TailBytes, 8<<20)
	c.StoredTimeout = cmp.Or(c.StoredTimeout, 10*time.Second)
	c.KeyWindow = cmp.Or(c.KeyWindow, 15*time.Minute)
	c.MaxKeys = cmp.Or(c.MaxKeys, 1_000_000)
	c.Interner = cmp.Or(c.Interner, batch.NewInterner(0))
	c.Files = cmp.Or(c.Files, Disk())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Elapsed == nil {
		begin, now := c.Now(), c.Now
		c.Elapsed = func() time.Duration { return now().Sub(begin) }
	}
	switch {
	case c.Dir == "":
		return errors.New("a journal needs a directory")
	case c.Session == "" || len(c.Session) > 64:
		return fmt.Errorf("session %q is not a name of 1 to 64 bytes", c.Session)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("%s %d is too small; it needs 1MiB", c.limitFlag()[2:], c.MaxBytes)
	case c.SegmentBytes < 4<<10 || c.SegmentBytes > c.MaxBytes/2:
		return fmt.Errorf("segment size %d is out of range; allowed: 4KiB to half of %d", c.SegmentBytes, c.MaxBytes)
	}
	return nil
}

// A Journal is a log of batches in a directory. Its methods may be called by any
// number of goroutines.
type Journal struct {
	cfg         Config
	granularity func(stream string) time.Duration // of new records
	refusals    map[string]telemetry.Error
	metrics     *metrics
	lock        Lock // nil: there is none
	keys        *keys
	waiters     sync.Map // *waiter by position, of requests that wait until their readings are stored
	published   published
	applied     atomic.Uint64 // everything before is stored
	flushTo     atomic.Uint64 // see FlushTo
	space       space
	buffers     sync.Pool

	oldest    uint64 // at Open
	unapplied []Unapplied
	lost      []span
	trimmed   trimmed

	bytes    atomic.Int64 // of all segments and pending records
	keyBytes atomic.Int64 // of the files of keys, which MaxBytes does not limit
	wanted   atomic.Int64 // the size of the last record if there was no space for it, else 0

	refusing     atomic.Bool  // requests are being refused for lack of space
	refusedAt    atomic.Int64 // when the last request was refused, by Elapsed
	gone         atomic.Bool  // the folder was removed or replaced, see ErrGone
	markFailures atomic.Int64

	// mu guards where the next record goes, so that sequences, positions and the
	// order in the pending commit agree.
	mu           sync.Mutex
	nextSeq      uint64
	nextPos      uint64
	writing      *writing      // the session and settings of the next record
	own          []ownSession  // the last one belongs to writing
	lostSessions []string      // that another process also uses
	offset       time.Duration // between the clocks, see watchClock
	filled       []*commit     // complete commits before the pending one
	pending      *commit
	spare        commit           // its buffers are reused by the next one
	ending       bool             // Close was called
	ended        *telemetry.Error // the answer to every request from now on; nil: requests are accepted

	losing sync.Mutex // held while lostSessions changes

	segMu    sync.RWMutex
	segments []*segment // in order
	active   *segment   // the last one while it is written to; only commitLoop changes it

	// Only used by maintain.
	keyFiles []keyFile
	deleted  uint64 // end of the last deleted segment
	saved    uint64 // position before which keys are in files, or have expired

	marker *marker
	wake   chan struct{} // there is something to commit
	tidy   chan struct{} // there may be something to delete, or a mark to write
	closed chan struct{} // ends maintain and everything that waits for the store

	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// Unapplied describes readings that were not known to be stored at Open.
type Unapplied struct {
	Session  string `json:"session"`
	Stream   string `json:"stream"`
	Settings Stream `json:"settings"` // when the readings were journaled
	Readings uint64 `json:"readings"`
}

// LockFile returns the path of the lock file of the journal in dir. The process that has the
// journal open holds the lock.
func LockFile(dir string) string { return filepath.Join(dir, "lock") }

// Open opens the journal in cfg.Dir, or creates it. It truncates a torn write at the end. It
// returns a *CorruptionError if the journal is damaged, unless cfg.AcceptLoss is set, and
// ErrLocked if another process has it open.
func Open(cfg Config) (*Journal, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	j := &Journal{
		cfg:         cfg,
		granularity: granularityOf(cfg.Streams),
		refusals:    cfg.refusals(),
		keys:        newKeys(&cfg),
		published:   published{maxTail: cfg.TailBytes, now: cfg.Now},
		space:       space{files: cfg.Files, dir: cfg.Dir, maxReserve: diskReserve},
		nextSeq:     1,
		writing:     newWriting(settings{Session: cfg.Session, Started: cfg.Now().UTC(), Streams: cfg.Streams}),
		own:         []ownSession{{session: cfg.Session, end: never}},
		offset:      cfg.clockOffset(),
		pending:     &commit{done: make(chan struct{})},
		wake:        make(chan struct{}, 1),
		tidy:        make(chan struct{}, 1),
		closed:      make(chan struct{}),
	}
	j.buffers.New = func() any { return new([]byte) }
	if err := cfg.Files.MakeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make the journal's directory: %w", err)
	}
	if !cfg.Memory {
		var err error
		if j.lock, err = cfg.Files.Lock(LockFile(cfg.Dir)); err != nil {
			return nil, fmt.Errorf("lock the journal in %s: %w", cfg.Dir, err)
		}
	}
	err := j.recover()
	if err == nil {
		if j.metrics, err = newMetrics(j); err != nil {
			err = errors.Join(fmt.Errorf("register metrics of the journal: %w", err), j.marker.close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, j.unlock())
	}
	j.running.Go(j.commitLoop)
	j.running.Go(j.maintain)
	if j.lock != nil {
		j.running.Go(j.watchFolder)
	}
	signal(j.tidy) // on a full disk, nothing is accepted before a segment is deleted
	return j, nil
}

func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Oldest is the position of the first record that was not known to be stored at Open.
func (j *Journal) Oldest() uint64 { return j.oldest }

// End is the position after the last record that can be followed.
func (j *Journal) End() uint64 {
	end, _ := j.published.reach()
	return end
}

// Short reports whether the journal is three quarters full.
func (j *Journal) Short() bool { return j.bytes.Load() > j.cfg.MaxBytes/4*3 }

// FlushTo returns a position. A client waits until everything before it is stored: it repeated a
// request with readings that are not tracked.
func (j *Journal) FlushTo() uint64 { return j.flushTo.Load() }

// Taken counts the readings that were not known to be stored at Open, and those accepted since.
func (j *Journal) Taken() uint64 {
	_, taken := j.published.reach()
	return taken
}

// Unapplied describes the readings that were not known to be stored at Open, by session and
// stream in the order of the journal.
func (j *Journal) Unapplied() []Unapplied { return j.unapplied }

// Err returns why requests are refused; nil if they are accepted.
func (j *Journal) Err() error {
	j.mu.Lock()
	ended := j.ended
	j.mu.Unlock()
	switch {
	case ended != nil:
		return ended
	case j.full(j.wanted.Load()) && !j.cfg.Memory: // memory is full only for moments
		return j.errFull()
	}
	if err := j.space.take(j.cfg.Now(), 0); err != nil {
		return j.refusal(codeDiskFull, err)
	}
	if j.cfg.Admit != nil {
		for _, name := range slices.Sorted(maps.Keys(j.cfg.Streams)) {
			if err := j.cfg.Admit(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Status is the state of a journal.
type Status struct {
	Volatile         bool    `json:"volatile"` // in memory
	Session          string  `json:"session"`
	Bytes            int64   `json:"bytes"` // of segments, and of saved idempotency keys, which MaxBytes does not limit
	MaxBytes         int64   `json:"max_bytes"`
	Segments         int     `json:"segments"`
	Applied          uint64  `json:"applied"` // position before which everything is stored
	End              uint64  `json:"end"`     // position after the last record
	OldestUnappliedS float64 `json:"oldest_unapplied_seconds"`
	Keys             int     `json:"keys"`
	GivenUpBytes     uint64  `json:"given_up_bytes"`  // could not be read, at this start and earlier ones
	Error            string  `json:"error,omitempty"` // why requests are refused
}

// Status returns the current state.
func (j *Journal) Status() Status {
	j.segMu.RLock()
	segments := len(j.segments)
	j.segMu.RUnlock()
	s := Status{
		Volatile: j.cfg.Memory, Session: j.session(), Bytes: j.size(), MaxBytes: j.cfg.MaxBytes, Segments: segments,
		Applied: j.applied.Load(), End: j.End(), OldestUnappliedS: j.oldestUnapplied(), Keys: j.keys.count(), GivenUpBytes: givenUp(j.lost),
	}
	if err := j.Err(); err != nil {
		s.Error = err.Error()
	}
	return s
}

func (j *Journal) size() int64 { return j.bytes.Load() + j.keyBytes.Load() }

// oldestUnapplied is the age of the oldest reading that is not known to be stored,
// in seconds.
func (j *Journal) oldestUnapplied() float64 { return j.published.age(j.applied.Load()).Seconds() }

// Stop refuses all further requests.
func (j *Journal) Stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = cmp.Or(j.ended, j.refusal(codeStopping, nil))
}

// Close makes accepted readings durable, answers requests that wait for the store, and unlocks
// the directory. Cursors must not be used afterwards.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		j.Stop()
		j.mu.Lock()
		j.ending = true
		j.mu.Unlock()
		close(j.closed)
		signal(j.wake)
		j.running.Wait()
		errs := []error{j.lastTidy(), j.marker.close()}
		for _, s := range j.segments {
			errs = append(errs, s.close())
		}
		errs = append(errs, j.unlock())
		if err := errors.Join(errs...); err != nil {
			j.closeErr = fmt.Errorf("close the journal in %s: %w", j.cfg.Dir, err)
		}
	})
	return j.closeErr
}

func (j *Journal) path(name string) string { return filepath.Join(j.cfg.Dir, name) }

// signal wakes the goroutine that reads the channel, now or when it reads next.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

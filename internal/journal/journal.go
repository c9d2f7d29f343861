// Package journal is where a reading is made safe. It stands between the door
// and the queue: what the door appends is durable when the receipt is given, and
// can then be followed, in one order, by those who bring it to the store.
//
//	Append ─▶ encode ─▶ sequence + position (one critical section) ─▶ pending
//	                                                                    │ write, fsync
//	   receipt ◀── wake all who wait ◀── publish in order ◀─────────────┘ one for all
//	                                        │
//	            Follow, Grown ◀── tail in memory, or segments on disk
//	            Trim ──▶ what is at rest; segments that nobody needs are deleted
//
// A Journal keeps all this in files, a Volatile in memory alone.
package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Journal is a log of batches in a directory. Its methods may be called by
// any number of goroutines.
type Journal struct {
	cfg       Config
	metrics   *metrics
	lock      Lock       // nil in tests without one
	marker    *marker    // of the keeper
	keyFiles  []keyFile  // likewise
	lateKeys  []*segment // likewise: deleted, and their keys are not saved yet
	untidy    bool       // likewise: tidying up failed the last time
	keys      *keys
	waiters   waiters
	windows   func(stream string) time.Duration // granularity of what is taken now
	progress  progress
	published published
	space     space
	limiter   *semaphore.Weighted
	buffers   sync.Pool
	closed    chan struct{} // when nobody stores any more
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	oldest    uint64 // at Open
	unapplied []Unapplied
	lost      []span

	bytes    atomic.Int64 // of all segments, and of what is about to be written
	keyBytes atomic.Int64 // of the files of keys, which MaxBytes does not limit
	wanted   atomic.Int64 // what the last record needed, if there was no room for it

	markFailures atomic.Int64

	gone atomic.Bool // the folder was removed or replaced, see ErrGone

	losing sync.Mutex // held while lostSessions changes

	limitHit state // requests are refused because of MaxBytes
	diskHit  state // or because the disk is full

	// mu guards where the next record goes, so that sequences, positions and the
	// order in the pending commit are one.
	mu      sync.Mutex
	nextSeq uint64
	nextPos uint64
	writing *writing // what the next record is written under
	own     []string // sessions that this process drew
	former  []former // of them
	clock   clock
	// lostSessions are those that another process uses, too.
	lostSessions []string
	filled       []*commit // full ones before the pending one
	pending      *commit
	spare        *commit
	stopping     bool
	ending       bool             // Close was called
	failed       *telemetry.Error // what every request is told from now on

	wake  chan struct{} // there is something to commit
	tidy  chan struct{} // there may be something to delete, or a mark to write
	quiet chan struct{} // closed to end the keeper
	// secure has the keeper make the mark durable, and takes its error.
	secure chan chan error

	segMu    sync.RWMutex
	segments []*segment // in order; the last may be the one being written

	// Owned by the committer, which changes them under segMu.
	active     *segment
	activeFile File
}

// Unapplied says what a journal held at Open that is not known to be stored.
type Unapplied struct {
	Session  string `json:"session"`
	Stream   string `json:"stream"`
	Settings Stream `json:"settings"` // that the readings were taken under
	Readings uint64 `json:"readings"`
}

// LockFile returns the path of the lock file of the journal in dir, which is held
// by the process that has the journal open.
func LockFile(dir string) string { return filepath.Join(dir, "lock") }

// Open opens the journal in cfg.Dir and makes it if there is none. A torn
// write at its end is cut off. A journal that is damaged is refused with a
// *CorruptionError, unless cfg.AcceptLoss; one that another process has open
// with an error that names the directory.
func Open(cfg Config) (*Journal, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	j := &Journal{
		cfg:     cfg,
		keys:    newKeys(cfg.KeyWindow, cfg.MaxKeys, cfg.Now),
		limiter: semaphore.NewWeighted(cfg.MaxWaiting),
		closed:  make(chan struct{}),
		nextSeq: 1,
		wake:    make(chan struct{}, 1), tidy: make(chan struct{}, 1), quiet: make(chan struct{}),
		secure:  make(chan chan error),
		writing: newWriting(settings{Session: cfg.Session, Started: cfg.Now().UTC(), Streams: cfg.Streams}),
		own:     []string{cfg.Session},
		clock:   newClock(cfg.Now(), cfg.Elapsed()),
	}
	j.windows = granularityOf(cfg.Streams)
	j.buffers.New = func() any { return new([]byte) }
	j.published.most, j.published.now = cfg.TailBytes, cfg.Now
	j.pending, j.spare = newCommit(), newCommit()
	if err := cfg.Files.MakeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make the journal's directory: %w", err)
	}
	if !cfg.Faults.Off(fault.Lock) {
		var err error
		if j.lock, err = cfg.Files.Lock(LockFile(cfg.Dir)); err != nil {
			return nil, fmt.Errorf("lock the journal in %s: %w", cfg.Dir, err)
		}
	}
	if err := j.start(); err != nil {
		return nil, errors.Join(err, j.unlock())
	}
	return j, nil
}

// start reads what is there and begins to work.
func (j *Journal) start() error {
	if err := j.recover(); err != nil {
		return err
	}
	var err error
	if j.metrics, err = newMetrics(j.cfg.Registerer, gauges{
		max: j.cfg.MaxBytes, bytes: func() float64 { return float64(j.size()) }, oldest: j.oldestUnapplied, keys: j.keys.count,
		givenUp: givenUp(j.lost), markFailures: func() float64 { return float64(j.markFailures.Load()) },
	}); err != nil {
		return errors.Join(fmt.Errorf("register metrics of the journal: %w", err), j.marker.close())
	}
	j.space = space{files: j.cfg.Files, dir: j.cfg.Dir, reserve: diskReserve + 2*uint64(j.cfg.MaxWaiting)}
	j.running.Go(j.commitLoop)
	j.running.Go(j.keep)
	j.running.Go(j.watchFolder)
	signal(j.tidy) // on a full disk nothing is taken before what is at rest is gone
	return nil
}

func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Oldest is the position of the first record that was not known to be at rest
// when the journal was opened.
func (j *Journal) Oldest() uint64 { return j.oldest }

// End is the position behind the last record that can be followed.
func (j *Journal) End() uint64 {
	end, _ := j.published.reach()
	return end
}

// Taken counts the readings that were not at rest at Open, and those taken
// since.
func (j *Journal) Taken() uint64 {
	_, taken := j.published.reach()
	return taken
}

// Grown returns a channel that is closed once a record at or behind the
// position can be followed.
func (j *Journal) Grown(position uint64) <-chan struct{} { return j.published.wait(position) }

// Unapplied tells what was not known to be stored at Open, by session and
// stream in the order of the journal.
func (j *Journal) Unapplied() []Unapplied { return j.unapplied }

func (j *Journal) oldestUnapplied() time.Duration {
	return j.published.age(j.progress.applied.Load(), j.cfg.Now())
}

// Err tells why nothing can be taken, nil if it can.
func (j *Journal) Err() error {
	j.mu.Lock()
	stopping, failed := j.stopping, j.failed
	j.mu.Unlock()
	switch {
	case failed != nil:
		return failed
	case stopping:
		return errStopping()
	case j.full(j.wanted.Load()):
		return errFull(j.cfg.MaxBytes)
	}
	if err := j.space.check(j.cfg.Now()); err != nil {
		return errDiskFull(err)
	}
	return nil
}

// size is what the journal takes on the disk.
func (j *Journal) size() int64 { return j.bytes.Load() + j.keyBytes.Load() }

// Status is what a journal holds.
type Status struct {
	Volatile         bool    `json:"volatile"` // in memory alone
	Session          string  `json:"session"`
	Bytes            int64   `json:"bytes"` // of segments, and of saved idempotency keys, which MaxBytes does not limit
	MaxBytes         int64   `json:"max_bytes"`
	Segments         int     `json:"segments"`
	Applied          uint64  `json:"applied"` // position before which everything is at rest
	End              uint64  `json:"end"`     // position behind the last record
	OldestUnappliedS float64 `json:"oldest_unapplied_seconds"`
	Keys             int     `json:"keys"`
	GivenUpBytes     uint64  `json:"given_up_bytes"`  // could not be read, at this start and earlier ones
	Error            string  `json:"error,omitempty"` // why nothing can be taken
}

// Status returns what the journal holds now.
func (j *Journal) Status() Status {
	j.segMu.RLock()
	segments := len(j.segments)
	j.segMu.RUnlock()
	s := Status{
		Session: j.session(), Bytes: j.size(), MaxBytes: j.cfg.MaxBytes, Segments: segments,
		Applied: j.progress.applied.Load(), End: j.End(), OldestUnappliedS: j.oldestUnapplied().Seconds(), Keys: j.keys.count(),
		GivenUpBytes: givenUp(j.lost),
	}
	if err := j.Err(); err != nil {
		s.Error = err.Error()
	}
	return s
}

// Follow returns a cursor at a position: that of a record which was not trimmed,
// or End. What it reads from the disk is the part's rows alone.
func (j *Journal) Follow(position uint64, part batch.Part) batch.Cursor {
	return &cursor{journal: j, part: part, position: position}
}

// Stop refuses what comes from now on.
func (j *Journal) Stop() {
	j.mu.Lock()
	j.stopping = true
	j.mu.Unlock()
}

// Close makes durable what was taken, answers those who wait for the store,
// and gives the directory free. Cursors must not be used any more.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		j.mu.Lock()
		j.stopping, j.ending = true, true
		j.mu.Unlock()
		close(j.closed)
		signal(j.wake)
		close(j.quiet)
		j.running.Wait()
		var errs []error
		if j.activeFile != nil {
			errs = append(errs, j.activeFile.Close())
		}
		j.lastKeys()
		errs = append(errs, j.lastMark(), j.marker.close(), j.unlock())
		if err := errors.Join(errs...); err != nil {
			j.closeErr = fmt.Errorf("close the journal in %s: %w", j.cfg.Dir, err)
		}
	})
	return j.closeErr
}

// signal wakes whoever reads the channel, now or when it looks next.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// Config says how to keep a journal. Sizes are in bytes.
type Config struct {
	Dir     string            // one process at a time
	Session string            // that new records are written under, see batch.NewSession
	Streams map[string]Stream // that may be written to, by name

	MaxBytes     int64 // of all segments, at least 1 MiB; 0: 4 GiB
	SegmentBytes int64 // a segment ends before the record that would not fit, larger ones have their own; 0: MaxBytes/8, at most 64 MiB
	MaxWaiting   int64 // of batches that wait for their fsync; 0: 32 MiB
	TailBytes    int64 // of the newest batches, kept for those who follow; 0: 8 MiB

	StoredTimeout time.Duration // how long Append waits for stored; 0: 10 s
	KeyWindow     time.Duration // how long idempotency keys are known; 0: 15 min
	MaxKeys       int           // known at most, the newest; 0: 1,000,000, about 100 MiB and at most 32 MiB of answers

	// Interner knows series and shapes that are read again; nil: one of its own.
	Interner *batch.Interner

	// AcceptLoss opens a damaged journal and gives up what cannot be read.
	AcceptLoss bool

	Files      Files // nil: the file system
	Faults     *fault.Injector
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Now        func() time.Time      // nil: time.Now
	Elapsed    func() time.Duration  // monotonic time since some moment; nil: by Now
}

// Stream is how and where the readings of a stream were stored when they were
// journaled, and must be if they are stored later.
type Stream struct {
	Storage     string        `json:"storage"`
	Target      string        `json:"target"` // where they are stored, without anything secret
	Granularity time.Duration `json:"granularity"`
}

func (c *Config) setDefaults() error {
	setDefault(&c.MaxBytes, 4<<30)
	setDefault(&c.SegmentBytes, min(c.MaxBytes/8, 64<<20))
	setDefault(&c.MaxWaiting, 32<<20)
	setDefault(&c.TailBytes, 8<<20)
	if c.Interner == nil {
		c.Interner = batch.NewInterner(0)
	}
	if c.Files == nil {
		c.Files = osFiles{}
	}
	if err := setCommon(&c.StoredTimeout, &c.KeyWindow, &c.MaxKeys); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Now, c.Elapsed = clocks(c.Now, c.Elapsed)
	switch {
	case c.Dir == "":
		return errors.New("a journal needs a directory")
	case c.Session == "" || len(c.Session) > 64:
		return fmt.Errorf("session %q is not a name of 1 to 64 bytes", c.Session)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("journal-max-bytes %d is too small; it needs 1MiB", c.MaxBytes)
	case c.SegmentBytes < 4<<10 || c.SegmentBytes > c.MaxBytes/2:
		return fmt.Errorf("segment size %d is out of range; allowed are 4KiB to half of %d", c.SegmentBytes, c.MaxBytes)
	case c.MaxWaiting < 1:
		return fmt.Errorf("bytes that may wait for their fsync: %d is not positive", c.MaxWaiting)
	case c.TailBytes < 0:
		return fmt.Errorf("bytes kept for those who follow: %d is negative", c.TailBytes)
	}
	return nil
}

// clocks returns the wall clock and a monotonic one.
func clocks(now func() time.Time, elapsed func() time.Duration) (func() time.Time, func() time.Duration) {
	if now == nil {
		now = time.Now
	}
	if elapsed == nil {
		begin := now()
		elapsed = func() time.Duration { return now().Sub(begin) }
	}
	return now, elapsed
}

func setDefault(v *int64, value int64) {
	if *v == 0 {
		*v = value
	}
}

// setCommon sets and checks what the journals on disk and in memory share.
func setCommon(storedTimeout, keyWindow *time.Duration, maxKeys *int) error {
	if *storedTimeout == 0 {
		*storedTimeout = 10 * time.Second
	}
	if *keyWindow == 0 {
		*keyWindow = 15 * time.Minute
	}
	if *maxKeys == 0 {
		*maxKeys = 1_000_000
	}
	switch {
	case *storedTimeout < 0:
		return fmt.Errorf("stored-timeout %v is negative", *storedTimeout)
	case *keyWindow < 0:
		return fmt.Errorf("window of idempotency keys %v is negative", *keyWindow)
	case *maxKeys < 0:
		return fmt.Errorf("number of idempotency keys %d is negative", *maxKeys)
	}
	return nil
}

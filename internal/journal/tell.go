package journal

import (
	"errors"
	"sync/atomic"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A state is logged when it changes, not for every request that meets it.
type state struct{ on atomic.Bool }

// turn reports whether that is news.
func (s *state) turn(on bool) bool { return s.on.CompareAndSwap(!on, on) }

// tellRefused logs that requests begin to be refused because something is full.
func (j *Journal) tellRefused(err error) {
	var e *telemetry.Error
	if !errors.As(err, &e) {
		return
	}
	switch {
	case e.Code == codeFull && j.full(j.wanted.Load()):
		if j.limitHit.turn(true) {
			j.cfg.Logger.Warn("the journal is full, requests are refused until MongoDB has stored some of it", "dir", j.cfg.Dir,
				"bytes", j.bytes.Load(), "journal_max_bytes", j.cfg.MaxBytes)
		}
	case e.Code == codeDiskFull && j.space.isFull():
		j.tellDiskFull(e.Err)
	}
}

func (j *Journal) tellDiskFull(cause error) {
	if j.diskHit.turn(true) {
		j.cfg.Logger.Warn("the journal's disk is full or cannot be written, requests are refused", "dir", j.cfg.Dir, "err", cause)
	}
}

// tellRoom logs that what was refused last would be taken again, and some more,
// so that small requests between refused ones are no news.
func (j *Journal) tellRoom() {
	if j.limitHit.on.Load() && !j.full(max(j.wanted.Load(), j.cfg.MaxBytes/16)) && j.limitHit.turn(false) {
		j.cfg.Logger.Info("the journal has room again, requests are taken", "dir", j.cfg.Dir,
			"bytes", j.bytes.Load(), "journal_max_bytes", j.cfg.MaxBytes)
	}
}

// tellWritten logs that the disk took a commit after it was full.
func (j *Journal) tellWritten() {
	if j.diskHit.on.Load() && !j.space.isFull() && j.diskHit.turn(false) {
		j.cfg.Logger.Info("the journal's disk has room again, requests are taken", "dir", j.cfg.Dir)
	}
}

package journal

import (
	"fmt"
	"sync"
	"time"
)

// diskReserve stays free, so that what was taken can be written and the journal
// can still be tidied up.
const diskReserve = 16 << 20

// space knows what the disk has room for: it looks now and then, and counts what
// is taken in between.
type space struct {
	files   Files
	dir     string
	reserve uint64

	mu      sync.Mutex
	looked  time.Time
	limited bool   // the last look told something
	room    int64  // beside the reserve, less what was taken since the last look
	step    int64  // that may be taken before the next look
	spent   int64  // taken since the last look
	waiting int64  // taken and not written yet, so that no look can see it
	full    bool   // nothing is taken before there is room for a step
	free    uint64 // as the last look told
	kept    uint64 // of that, in reserve
}

// take sets n bytes aside that are about to be written, or returns why they
// should not be. Those set aside must be given to landed.
func (s *space) take(now time.Time, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.looked); age < 0 || age >= time.Second || s.spent > s.step {
		s.look(now)
	}
	if s.limited && s.room < s.need(n) && s.spent > 0 {
		s.look(now) // there may be more by now
	}
	if !s.limited {
		s.waiting += n
		return nil
	}
	if s.room < s.need(n) {
		s.full = s.full || s.room < s.step
		return fmt.Errorf("%s has %d bytes free, %d of which are kept in reserve", s.dir, s.free, s.kept)
	}
	s.full = false
	s.room -= n
	s.spent += n
	s.waiting += n
	return nil
}

// need returns the room without which n bytes are not taken. A disk that was
// full must have room for some more, so that it does not swing to and fro.
func (s *space) need(n int64) int64 {
	if s.full {
		return max(n, s.step)
	}
	return n
}

// check returns why nothing should be written.
func (s *space) check(now time.Time) error { return s.take(now, 0) }

// isFull reports whether the last look found too little room for anything.
func (s *space) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// landed says that bytes which were set aside are written, or never will be.
func (s *space) landed(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= n
}

func (s *space) look(now time.Time) {
	s.looked, s.spent = now, 0
	free, total, err := s.files.Space(s.dir)
	s.limited = err == nil && total > 0 // otherwise writing will tell
	if !s.limited {
		s.full = false
		return
	}
	// A sixteenth of a small disk is reserve enough.
	s.free, s.kept = free, min(s.reserve, total/16)
	s.room = int64(min(free, 1<<62)) - int64(s.kept) - s.waiting
	s.step = int64(s.kept / 4)
}

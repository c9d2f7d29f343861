package journal

import (
	"fmt"
	"sync"
	"time"
)

// diskReserve stays free, so that what was taken can be written and the journal
// can still be tidied up.
const diskReserve = 16 << 20

// space looks now and then whether the disk has room.
type space struct {
	files   Files
	dir     string
	reserve uint64

	mu     sync.Mutex
	looked time.Time
	err    error
}

// check returns why nothing should be written. It looks at most once a second.
func (s *space) check(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.looked); age >= 0 && age < time.Second {
		return s.err
	}
	s.looked, s.err = now, nil
	free, total, err := s.files.Space(s.dir)
	if err != nil || total == 0 {
		return nil // writing will tell
	}
	// A sixteenth of a small disk is reserve enough.
	if reserve := min(s.reserve, total/16); free < reserve {
		s.err = fmt.Errorf("%s has %d bytes free, %d of which are kept in reserve", s.dir, free, reserve)
	}
	return s.err
}

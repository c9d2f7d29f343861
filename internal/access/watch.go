package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// pollInterval is how often the files are read. A change takes effect when two consecutive
// reads have found it, so within a second.
const pollInterval = 500 * time.Millisecond

// Watch applies changes to the access file and the TLS files until ctx ends. The guard
// and the TLS may be nil.
func Watch(ctx context.Context, g *Guard, t *TLS) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.poll()
			t.poll()
		case <-ctx.Done():
			return
		}
	}
}

// watched is a set of files that are applied again when their content changes. A change
// counts once two consecutive reads return the same content, because a file may still be
// being written. Invalid content changes nothing.
type watched struct {
	// read returns the contents. Unless all is set, it may return errUnchanged.
	read   func(all bool) ([][]byte, error)
	apply  func(contents [][]byte) error // returns an error if they are invalid
	refuse func(err error)               // reports a problem, once

	mu      sync.Mutex
	applied [sha256.Size]byte // hash of the contents that were applied or refused
	last    [sha256.Size]byte // hash of the contents at the last read
	problem error             // why they were refused; nil: they were applied
}

// errUnchanged means that the files have not changed since they were applied.
var errUnchanged = errors.New("the files have not changed")

// open applies the files for the first time.
func (w *watched) open() error {
	contents, err := w.read(true)
	if err == nil {
		err = w.apply(contents)
	}
	w.applied = hashAll(contents)
	w.last = w.applied
	return err
}

// check applies the files if they have changed; with atOnce, even if this is the first read
// that finds the change. It returns why they are not in force.
func (w *watched) check(atOnce bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	contents, err := w.read(atOnce || w.last != w.applied)
	if errors.Is(err, errUnchanged) {
		return w.problem
	}
	hash := hashAll(contents)
	stable := atOnce || hash == w.last
	w.last = hash
	if err == nil {
		if !stable || hash == w.applied && w.problem == nil {
			return w.problem
		}
		err = w.apply(contents)
	}
	if err != nil && (w.problem == nil || err.Error() != w.problem.Error()) {
		w.refuse(err)
	}
	w.applied, w.problem = hash, err
	return err
}

func hashAll(contents [][]byte) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, c := range contents {
		one := sha256.Sum256(c)
		all.Write(one[:])
	}
	all.Sum(sum[:0])
	return sum
}

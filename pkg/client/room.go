package client

import (
	"context"
	"sync"
)

// A room bounds bytes. Something that is larger than all of it gets in when
// nothing else is there.
type room struct {
	most int64

	mu    sync.Mutex
	taken int64
	freed chan struct{} // closed, and made anew, when bytes are given back; nil: nobody waits
}

func newRoom(most int64) *room { return &room{most: most} }

func (r *room) used() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// tryTake takes so many bytes if they are there.
func (r *room) tryTake(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked(n)
}

func (r *room) takeLocked(n int64) bool {
	if r.taken > 0 && r.taken+n > r.most {
		return false
	}
	r.taken += n
	return true
}

// take waits for so many bytes.
func (r *room) take(ctx context.Context, n int64) error {
	for {
		r.mu.Lock()
		if r.takeLocked(n) {
			r.mu.Unlock()
			return nil
		}
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// give gives back what was taken.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= n
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

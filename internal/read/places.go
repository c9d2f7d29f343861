package read

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// places are those of --max-queries. One identity has at most half of them, so
// that no single one keeps all others from reading. Where nobody is asked who he
// is, there is nobody to tell apart: a dashboard and a proxy have one address.
type places struct {
	all, share int

	mu      sync.Mutex
	taken   int
	of      map[string]int // by name of the identity
	waiting int
	left    chan struct{} // closed when one is free again
}

// forPlace is how long a request waits for a place: a page of a dashboard asks
// for all that it shows at once, and most answers take less. So many wait for each
// place at the most.
const (
	forPlace = time.Second
	inLine   = 16
)

func newPlaces(all int) *places {
	return &places{all: all, share: (all + 1) / 2, of: make(map[string]int), left: make(chan struct{})}
}

// used is how many are taken.
func (p *places) used() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.taken)
}

// enter takes one of the places for an identity, and waits for one a while.
func (r *Reader) enter(ctx context.Context, who *access.Identity) (leave func(), err error) {
	p, name := r.places, who.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	leave, err = p.take(name)
	if err == nil || p.waiting == p.all*inLine {
		return leave, err
	}
	ctx, cancel := context.WithTimeout(ctx, forPlace)
	defer cancel()
	p.waiting++
	defer func() { p.waiting-- }()
	for err != nil && ctx.Err() == nil {
		left := p.left
		p.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() == nil {
			leave, err = p.take(name)
		}
	}
	return leave, err
}

// take takes a place now, or says why there is none; p is locked.
func (p *places) take(name string) (leave func(), err error) {
	switch {
	case p.taken == p.all:
		return nil, tooMany(fmt.Sprintf("%d queries are being answered, which is the most at once (--max-queries)", p.all))
	case name != "" && p.of[name] == p.share:
		return nil, tooMany(fmt.Sprintf("%d queries of %s are being answered, which is the most at once for one who asks (half of --max-queries)", p.share, name))
	}
	p.taken++
	if name != "" {
		p.of[name]++
	}
	return func() { p.leave(name) }, nil
}

func (p *places) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	close(p.left)
	p.left = make(chan struct{})
	if name == "" {
		return
	}
	if p.of[name]--; p.of[name] == 0 {
		delete(p.of, name)
	}
}

func tooMany(message string) error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: "queries_too_many", RetryAfter: time.Second, Message: message + "; ask again soon"}
}

package store

import (
	"context"
	"sync"
	"time"
)

// goneAfter is how long no server must accept writes before operations that wait
// for one are canceled: a broken connection makes the driver doubt a server for an
// instant.
const goneAfter = 500 * time.Millisecond

// presence makes contexts that end when MongoDB has been away for goneAfter.
type presence struct {
	mu      sync.Mutex
	present bool
	ctx     context.Context //nolint:containedctx // it is what callers are given
	cancel  context.CancelFunc
	gone    *time.Timer
}

func newPresence() *presence {
	p := &presence{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// set says whether MongoDB is there.
func (p *presence) set(present bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if present == p.present {
		return
	}
	p.present = present
	if p.gone != nil {
		p.gone.Stop()
	}
	if !present {
		p.gone = time.AfterFunc(goneAfter, p.end)
		return
	}
	if p.ctx.Err() != nil {
		p.ctx, p.cancel = context.WithCancel(context.Background())
	}
}

// end ends the current context, unless MongoDB is there again.
func (p *presence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.present {
		p.cancel()
	}
}

// current returns the context that ends when MongoDB goes away; if MongoDB has
// been away for goneAfter already, it has ended.
func (p *presence) current() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctx
}

// close ends the current context for good.
func (p *presence) close() {
	p.set(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		p.gone.Stop()
	}
	p.cancel()
}

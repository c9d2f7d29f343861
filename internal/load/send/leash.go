package send

import "context"

// A leash ends what a Sender waits for when its context does. A run gives all
// requests the same context, so it is put on once and costs a request nothing.
type leash struct {
	ctx  context.Context
	stop func() bool
}

// hold makes end be called when ctx ends, and no longer when an earlier one does.
func (l *leash) hold(ctx context.Context, end func()) {
	if l.stop != nil && l.ctx == ctx {
		return
	}
	l.release()
	l.ctx, l.stop = ctx, context.AfterFunc(ctx, end)
}

// release takes the leash off.
func (l *leash) release() {
	if l.stop != nil {
		l.stop()
	}
	l.ctx, l.stop = nil, nil
}

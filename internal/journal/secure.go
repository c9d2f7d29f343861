package journal

import (
	"context"
	"fmt"
)

// Reach returns when all that has a place in the journal at the time of the call
// can be followed, that of requests whose clients went away included; with an
// error when ctx ends first.
func (j *Journal) Reach(ctx context.Context) error {
	j.mu.Lock()
	reserved := j.nextPos
	j.mu.Unlock()
	for end := j.End(); end < reserved; end = j.End() {
		select {
		case <-j.Grown(end):
		case <-ctx.Done():
			return fmt.Errorf("wait for what is being written to the journal: %w", ctx.Err())
		}
	}
	return nil
}

// Secure makes durable how far everything is at rest, so that no later process
// takes it for unapplied, not even after a loss of power.
func (j *Journal) Secure(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case j.secure <- done:
	case <-j.quiet:
		return errStopping()
	case <-ctx.Done():
		return fmt.Errorf("wait for the mark of the journal: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the mark of the journal: %w", ctx.Err())
	}
}

// secureMark is Secure, of the keeper.
func (j *Journal) secureMark() error {
	if !j.hasFolder() {
		return ErrGone
	}
	if err := j.writeMark(j.progress.applied.Load()); err != nil {
		return err
	}
	return j.syncMark()
}

// Reach returns at once: what has a place can be followed.
func (v *Volatile) Reach(context.Context) error { return nil }

// Secure does nothing: no later process knows of what is in memory.
func (v *Volatile) Secure(context.Context) error { return nil }

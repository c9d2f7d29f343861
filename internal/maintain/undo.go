package maintain

import (
	"context"
	"errors"
	"fmt"
)

// Abort gives a move up: daemons go on with the collection that they have, the
// copy is dropped. Of cfg it needs Database, Stream and Kind.
func Abort(ctx context.Context, cfg Config) error {
	cfg.To = ""
	m, err := newMove(ctx, cfg, true)
	if err != nil {
		return err
	}
	err = m.abort()
	m.job.end()
	return err
}

func (m *move) abort() error {
	s, stream := m.job.state, m.cfg.Stream
	there, err := lookUpAll(m.ctx, m.cfg.Database, stream, newName(stream), oldName(stream))
	if err != nil {
		return err
	}
	source, copied := there[stream], there[newName(stream)]
	switch {
	case s.Phase == phaseDone || source.is(s.Target):
		return refuse("the move of stream %q to %s is past the point up to which it can be given up: the collections are exchanged. Finish it, and move back with another `brim %s`", stream, s.To, s.Kind)
	case s.Phase == phaseSwap && source.is(s.Source) && fenced(source):
		return refuse("the exchange of the collections of stream %q has been ordered, and may still be carried out. Finish it with `%s`; if MongoDB refuses that, --abort gives the move up then", stream, s.command(""))
	case source == nil && there[oldName(stream)].is(s.Source):
		err := m.job.send(m.ctx, func(ctx context.Context) error {
			return rename(ctx, m.cfg.Database, oldName(stream), stream, false)
		})
		if err != nil {
			return err
		}
	case there[oldName(stream)].is(s.Source):
		return m.stray()
	}
	nothingKnown := s.Phase == phaseStart // of the copy that may be there
	if err := m.lift(); err != nil {
		return err
	}
	if copied.is(s.Target) || copied != nil && nothingKnown {
		if err := m.job.send(m.ctx, func(ctx context.Context) error { return m.cfg.Database.Collection(newName(stream)).Drop(ctx) }); err != nil {
			return fmt.Errorf("drop the copy of stream %q: %w", stream, err)
		}
	}
	return m.job.forget()
}

// Dropped says what was dropped.
type Dropped struct {
	Stream     string `json:"stream"`
	Collection string `json:"dropped"` // empty: it was gone already
	Bytes      int64  `json:"bytes"`   // on disk, with indexes
}

// DropOld drops the collection that a move has kept, if the move is done. Of cfg
// it needs Database, Stream and Kind.
func DropOld(ctx context.Context, cfg Config) (*Dropped, error) {
	cfg.To = ""
	m, err := newMove(ctx, cfg, true)
	if errors.Is(err, errNoWork) {
		return nil, refuse("stream %q: no `brim %s` has kept a collection", cfg.Stream, cfg.Kind)
	}
	if err != nil {
		return nil, err
	}
	d, err := m.dropOld()
	if err == nil {
		err = m.job.forget()
	}
	m.job.end()
	return d, err
}

func (m *move) dropOld() (*Dropped, error) {
	s, name := m.job.state, oldName(m.cfg.Stream)
	if s.Phase != phaseDone {
		return nil, refuse("the move of stream %q to %s is not done, it is in phase %s: the old collection is the only whole one", s.Stream, s.To, s.Phase)
	}
	d := &Dropped{Stream: s.Stream}
	old, err := lookUp(m.ctx, m.cfg.Database, name)
	if err != nil || old == nil {
		return d, err
	}
	if !old.is(s.Source) {
		return nil, refuse("collection %q is not the one that the move of stream %q has kept; look at it, and drop it yourself", name, s.Stream)
	}
	size, err := statsOf(m.ctx, m.cfg.Database, name)
	if err != nil {
		return nil, err
	}
	if err := m.job.send(m.ctx, func(ctx context.Context) error { return m.cfg.Database.Collection(name).Drop(ctx) }); err != nil {
		return nil, fmt.Errorf("drop collection %q: %w", name, err)
	}
	d.Collection, d.Bytes = name, size.StorageSize+size.IndexSize
	return d, nil
}

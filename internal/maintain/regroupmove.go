package maintain

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Migration is a Move to another granularity, and all around it.
type Migration struct {
	Config  // Reshaper and DropEarlier are chosen here; ExpireAtLeast is raised where documents live longer
	Regroup RegroupConfig
}

// ErrNothingToMove says that all readings have the granularity, and that no move
// is under way.
var ErrNothingToMove = errors.New("all documents have that granularity already")

// Run moves the documents of other granularities, or goes on with a migration
// that an earlier process left behind. After one that is done it moves what daemons wrote
// with another granularity since. The collection that an earlier migration has kept
// is dropped when another one begins: the present one has all its readings, and
// is kept in its place.
func (m Migration) Run(ctx context.Context) (*Result, error) {
	coll := m.Database.Collection(m.Stream)
	state, err := readState(ctx, m.Database, m.Stream)
	if err != nil {
		return nil, err
	}
	left, err := others(ctx, coll, m.Regroup.Granularity)
	if err != nil {
		return nil, err
	}
	earlier := state != nil && state.Kind == m.Kind && state.To != m.To && state.Phase == phaseDone && isGranularity(state.To)
	if !left && (state == nil || earlier) {
		return nil, ErrNothingToMove
	}
	if earlier {
		if _, err := DropOld(ctx, m.Config); err != nil {
			return nil, err
		}
		state = nil
	}
	found, err := Granularities(ctx, coll)
	if err != nil {
		return nil, err
	}
	if err := m.keepLonger(ctx, found); err != nil {
		return nil, err
	}
	m.Regroup.Found = append(slices.Clone(m.Regroup.Found), found...)
	if state != nil && state.Span > 0 {
		// Another span would begin the copy anew.
		m.Regroup.Found = append(m.Regroup.Found, time.Duration(state.Span)*time.Millisecond)
	}
	result, err := m.move(ctx)
	if err == nil && result.AlreadyDone && left {
		m.DropEarlier = true
		result, err = m.move(ctx)
	}
	return result, err
}

func isGranularity(to string) bool {
	_, err := time.ParseDuration(to)
	return err == nil
}

// move moves with groups as long as it takes.
func (m *Migration) move(ctx context.Context) (*Result, error) {
	for {
		regroup, err := NewRegroup(m.Regroup)
		if err != nil {
			return nil, err
		}
		m.Reshaper = regroup
		result, err := Move(ctx, m.Config)
		var span *SpanError
		if !errors.As(err, &span) {
			return result, err
		}
		if m.Logger != nil {
			m.Logger.Warn("the copy is begun anew, with longer groups", "err", err)
		}
		m.Regroup.Found = append(m.Regroup.Found, span.Granularity)
	}
}

// keepLonger sees to it, where the caller does not, that a document of the new
// granularity is kept until the last of its readings is as old as those are that
// are removed now. A daemon removes documents when the retention and its own
// granularity have passed since their window began.
func (m *Migration) keepLonger(ctx context.Context, found []time.Duration) error {
	if m.ExpireAtLeast > 0 || len(found) == 0 {
		return nil
	}
	all, err := indexes(ctx, m.Database, m.Stream)
	if err != nil {
		return err
	}
	for _, index := range all {
		key, _ := valueOf(index, "key").(bson.D)
		after, ok := seconds(valueOf(index, expiry))
		if longer := m.Regroup.Granularity - slices.Min(found); ok && len(key) == 1 && key[0].Key == "bucketStart" && longer > 0 {
			m.ExpireAtLeast = time.Duration(after)*time.Second + longer
		}
	}
	return nil
}

// Abort gives the migration up, if it is under way and the collections are not
// exchanged.
func (m Migration) Abort(ctx context.Context) error {
	state, err := readState(ctx, m.Database, m.Stream)
	if err != nil {
		return err
	}
	if state != nil && state.Kind == m.Kind && state.To != m.To {
		return refuse("stream %q is being migrated to %s: name that", m.Stream, state.To)
	}
	return Abort(ctx, m.Config)
}

// Finish drops the collection that a migration has kept, and the tombstones of
// other granularities. What DropTombstones asks for must hold. No migration can
// begin meanwhile.
func (m Migration) Finish(ctx context.Context) (*Dropped, *DropResult, error) {
	state, err := readState(ctx, m.Database, m.Stream)
	if err != nil {
		return nil, nil, err
	}
	if state != nil && state.Kind == m.Kind && state.To != m.To {
		return nil, nil, refuse("stream %q was migrated to %s: name that", m.Stream, state.To)
	}
	// Without a state there may still be tombstones, and work to own.
	work, err := newMove(ctx, m.Config, false)
	if err != nil {
		return nil, nil, err
	}
	defer work.job.end()
	dropped, tombstones, err := m.finish(work)
	if err == nil {
		err = work.job.forget()
	}
	return dropped, tombstones, err
}

func (m *Migration) finish(work *move) (*Dropped, *DropResult, error) {
	s := work.job.state
	if s.Phase == phaseStart && len(s.Source.Data) == 0 {
		// Nothing is begun. Should this process be killed, the next one is not to
		// take its claim for a move.
		s.Phase = phaseDone
		if err := work.save(); err != nil {
			return nil, nil, err
		}
	}
	var tombstones *DropResult
	if s.Phase == phaseDone {
		// The tombstones first: with the state goes the knowledge that they may go.
		var err error
		tombstones, err = DropTombstones(work.ctx, DropConfig{
			Collection: m.Database.Collection(m.Stream), Granularity: m.Regroup.Granularity, Progress: m.Progress, send: work.job.send,
		})
		if err != nil {
			return nil, tombstones, err
		}
	}
	if len(s.Source.Data) == 0 {
		return &Dropped{Stream: m.Stream}, tombstones, nil
	}
	dropped, err := work.dropOld() // it knows why not
	return dropped, tombstones, err
}

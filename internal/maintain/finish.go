package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// finish does what is left once the names are exchanged.
func (m *move) finish() error {
	s := m.job.state
	behindFence := s.Phase == phaseSwap
	touched, err := m.lastTouched()
	if err != nil {
		return err
	}
	// A primary that is cut off shows an exchange that is undone later. Since then
	// the majority has heard this process's sign of life, so this one is no such.
	there, err := lookUpAll(m.ctx, m.cfg.Database, s.Stream, newName(s.Stream), oldName(s.Stream))
	if err != nil {
		return err
	}
	if !there[s.Stream].is(s.Target) {
		return fmt.Errorf("the exchange of the collections of stream %q was undone by an election; repeat the command", s.Stream)
	}
	if fenced(there[s.Stream]) { // by a process that took it for the source
		if err := m.again(m.ctx, func() error {
			return m.job.send(m.ctx, func(ctx context.Context) error { return m.liftAny(ctx, false) })
		}); err != nil {
			return err
		}
	}
	if err := m.again(m.ctx, func() error { return m.expire(s.Indexes) }); err != nil {
		return err
	}
	switch {
	case len(touched) == 0:
	case behindFence:
		m.returned = int64(len(touched))
		m.cfg.Logger.Warn("documents were deleted in the moment in which the collections were exchanged, and are there again; delete them once more unless the retention does",
			"stream", s.Stream, "groups", len(touched), "first", firstOf(touched))
	default:
		m.missed = int64(len(touched))
		m.cfg.Logger.Warn("an earlier process has exchanged the collections late, when daemons wrote again; what they wrote until then is in the old collection only: bring it back before that is dropped",
			"stream", s.Stream, "collection", oldName(s.Stream), "groups", len(touched), "first", firstOf(touched))
	}
	s.open()
	s.Phase, s.Token, s.Copied, s.Verified = phaseDone, nil, nil, nil
	return m.save()
}

// lastTouched returns the groups of the source that were touched behind the last
// round, as far as the server still knows.
func (m *move) lastTouched() ([]groupKey, error) {
	if m.follower == nil && m.job.state.Token != nil {
		if err := m.again(m.ctx, m.startFollowing); err != nil && !errors.Is(err, errHistoryLost) {
			return nil, err
		}
	}
	if m.follower == nil {
		return nil, m.again(m.ctx, func() error {
			_, err := m.job.renew(m.ctx)
			return err
		})
	}
	err := m.sync(m.ctx)
	if errors.Is(err, errHistoryLost) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := m.follower.take()
	return h.keys, err
}

// firstOf names some groups.
func firstOf(keys []groupKey) []string {
	const most = 5
	names := make([]string, 0, most)
	for _, key := range keys[:min(len(keys), most)] {
		names = append(names, fmt.Sprintf("%s at %s", key.Sensor, key.Start.Time().UTC().Format(time.RFC3339)))
	}
	return names
}

package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/machine"
)

const (
	// mostFences is how often daemons are made to wait in vain.
	mostFences = 5
	// mostVerifications is how often all is compared.
	mostVerifications = 5
)

// Why the names are not exchanged yet.
var (
	errFenceLimit = errors.New("daemons were made to wait for as long as is allowed")
	errCounts     = errors.New("the numbers of documents differ")
	errUnsure     = errors.New("something may have been written to the copy late")
	errExchanged  = errors.New("an earlier process has exchanged the collections")
	errNoFence    = errors.New("the collection was opened to writes again")
)

// verify compares both collections, group by group. Where they differ the group
// is made anew: mostly because a daemon has written into it, which the follower
// then knows.
func (m *move) verify() error {
	s := m.job.state
	for more := true; more; {
		if err := m.roundIfDue(true); err != nil {
			return err
		}
		var suspects []groupKey
		var last *groupKey
		var size int64
		err := m.again(m.ctx, func() (err error) {
			suspects, last, size, err = m.compareNext()
			return err
		})
		if err != nil {
			return err
		}
		if err := m.suspect(suspects); err != nil {
			return err
		}
		if more = last != nil; more {
			s.Verified = last
			if err := m.save(); err != nil {
				return err
			}
		}
		if err := m.spend(size); err != nil {
			return err
		}
	}
	return nil
}

// compareNext compares the groups behind the last that was. A nil key means that
// there are no more.
func (m *move) compareNext() (suspects []groupKey, last *groupKey, size int64, err error) {
	after := m.job.state.Verified
	groups, more, err := m.from.after(m.reading, after)
	if err != nil {
		return nil, nil, 0, err
	}
	if more {
		last = &groups[len(groups)-1].key
	}
	copies, err := m.to.between(m.ctx, after, last)
	if err != nil {
		return nil, nil, 0, err
	}
	for i := range groups {
		size += groups[i].bytes
	}
	err = m.compare(groups, copies, func(key groupKey, _ error) error {
		suspects = append(suspects, key)
		return nil
	})
	return suspects, last, size, err
}

// suspect has groups made anew that differ.
func (m *move) suspect(keys []groupKey) error {
	if len(keys) == 0 {
		return nil
	}
	if err := m.sync(m.ctx); err != nil {
		return err
	}
	known := m.follower.has(keys)
	for _, key := range keys {
		if known[key] {
			continue
		}
		m.job.state.Repaired++
		m.cfg.Logger.Warn("a group of the copy differs without having been written to; it is copied again",
			"sensor", key.Sensor, "start", key.Start.Time().UTC(), "collection", newName(m.cfg.Stream))
		m.follower.add(key)
	}
	return nil
}

// exchange compares the collections, makes daemons wait, makes the last changes
// anew, and exchanges the names.
func (m *move) exchange() error {
	s, verified, verifications := m.job.state, false, 0
	for try := 1; ; try++ {
		for !verified || s.Unsure {
			if verifications++; verifications > mostVerifications {
				return fmt.Errorf("the copy was compared %d times, and MongoDB was away or something differed each time: look at its log, and repeat the command", mostVerifications)
			}
			if s.Unsure {
				s.Verified = nil // all is compared again
			}
			s.Unsure, m.done = false, 0
			if err := m.verify(); err != nil {
				return err
			}
			verified = true
		}
		if err := m.again(m.ctx, m.alignIndexes); err != nil {
			return err
		}
		if err := m.catchUp(true); err != nil {
			return err
		}
		err := m.behindFence()
		if err == nil {
			return nil
		}
		again := errors.Is(err, errFenceLimit) || errors.Is(err, errIndexes) || errors.Is(err, errCounts) || errors.Is(err, errNoFence) || errors.Is(err, errUnsure)
		if !again || try == mostFences {
			return err
		}
		s.Unsure = s.Unsure || errors.Is(err, errCounts)
		m.cfg.Logger.Warn("daemons were made to wait in vain", "err", err)
		m.tell("daemons were made to wait in vain, trying again")
		if err := machine.Pause(m.ctx, m.cfg.FenceLimit/3); err != nil {
			return err
		}
	}
}

// behindFence exchanges the names while daemons wait. Whatever goes wrong, they
// do not go on waiting.
func (m *move) behindFence() error {
	s := m.job.state
	if err := m.again(m.ctx, func() error { return m.namesStand(false) }); err != nil {
		return err
	}
	s.Phase, s.FencedAt = phaseFence, time.Now()
	began := s.FencedAt
	if err := m.save(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(m.ctx, m.cfg.FenceLimit, errFenceLimit)
	err := m.raise(ctx)
	if err == nil {
		err = m.drain(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel()
	if err == nil {
		err = m.swap()
	}
	if err == nil {
		s.open()
		m.cfg.Logger.Info("the collections are exchanged", "stream", s.Stream, "daemons_waited", time.Since(began).Round(time.Millisecond))
		return m.save()
	}
	if s.Phase != phaseFence || m.ctx.Err() != nil {
		return err // the outcome of the exchange is unknown, or another process does it
	}
	return errors.Join(err, m.lift())
}

// raise makes daemons wait. The limit is for that, too: a command that waits for
// its lock, behind a transaction, stops every writer.
func (m *move) raise(ctx context.Context) error {
	m.tell("daemons wait")
	return m.again(ctx, func() error {
		return m.job.send(ctx, func(ctx context.Context) error { return raiseFence(ctx, m.cfg.Database, m.cfg.Stream, m.cfg.Kind) })
	})
}

// lift lets daemons go on with the stream, also when m.ctx is over. That is
// noted first, which only the owner of the work can do: the fence may be that of
// another who has taken it over, and is about to exchange the names.
func (m *move) lift() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), goodbye)
	defer cancel()
	if _, err := m.job.renew(ctx); err != nil {
		return err
	}
	s := m.job.state
	was := s.Phase
	if was == phaseFence || was == phaseSwap {
		s.Phase = phaseVerify
	}
	err := m.job.saveWithin(ctx)
	if err == nil {
		err = m.job.inTime(ctx, func(ctx context.Context) error { return m.liftAny(ctx, was == phaseFence) })
	}
	if err != nil {
		s.Phase = was
		return err
	}
	s.open()
	return nil
}

// liftAny lifts a fence from whatever collection has the stream's name. One that
// is being raised may not be seen yet, behind a transaction: the command that
// lifts it waits behind the one that raises it.
func (m *move) liftAny(ctx context.Context, unseen bool) error {
	there, err := lookUp(ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil || there == nil || !fenced(there) && !unseen {
		return err
	}
	return liftFence(ctx, m.cfg.Database, m.cfg.Stream, m.job.state.Original)
}

// drain makes the last changes anew. Nothing but deletions can come any more.
func (m *move) drain(ctx context.Context) error {
	for {
		if err := m.sync(ctx); err != nil {
			return err
		}
		n, err := m.round(ctx, true)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	all, err := m.lastIndexes()
	if err != nil {
		return err
	}
	m.job.state.Indexes = all
	if m.job.state.Unsure {
		return errUnsure
	}
	return m.sameCounts(ctx)
}

// sameCounts compares the numbers of documents where they have to be the same.
func (m *move) sameCounts(ctx context.Context) error {
	if !m.cfg.SameDocuments {
		return nil
	}
	var quick, exact [2]int64
	for i, side := range []*groupReader{m.from, m.to} {
		n, err := side.coll.EstimatedDocumentCount(ctx)
		if err != nil {
			return fmt.Errorf("count the documents of collection %q: %w", side.coll.Name(), err)
		}
		quick[i] = n
	}
	if quick[0] == quick[1] {
		return nil
	}
	for i, side := range []*groupReader{m.from, m.to} {
		n, err := side.coll.CountDocuments(ctx, bson.D{})
		if err != nil {
			return fmt.Errorf("count the documents of collection %q: %w", side.coll.Name(), err)
		}
		exact[i] = n
	}
	if exact[0] != exact[1] {
		return fmt.Errorf("%w: %d in collection %q, %d in its copy", errCounts, exact[0], m.cfg.Stream, exact[1])
	}
	return nil
}

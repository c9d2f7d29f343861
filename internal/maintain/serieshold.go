package maintain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// holdLease is how long daemons stay held unless it is renewed: a command that
// was killed keeps sensors out no longer.
const holdLease = time.Minute

// A hold of all daemons that is renewed until it ends.
type hold struct {
	s     *series
	name  string
	began time.Time
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// holdDaemons has the daemons store all that they took and take nothing more.
func (s *series) holdDaemons() (*hold, error) {
	h := &hold{s: s, began: time.Now(), stop: func() {}}
	s.holds++
	s.note("daemons store what they have, and take nothing more")
	name, err := s.cfg.Holder.Hold(s.ctx, holdLease)
	if err != nil {
		return nil, fmt.Errorf("hold the daemons: %w", err)
	}
	h.name, s.holding = name, h
	ctx, stop := context.WithCancel(s.ctx)
	h.stop = stop
	h.done.Go(func() {
		tick := time.NewTicker(holdLease / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				// One that fails is noticed by what untilRestart finds.
				if _, err := s.cfg.Holder.Hold(ctx, holdLease); err != nil {
					s.cfg.Logger.Debug("renew the hold", "err", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return h, nil
}

var errHoldEnded = errors.New("readings arrived while all daemons were to refuse them: a daemon was restarted, or the hold ran out; " +
	"or there is one that is not named, then name it by a further --admin")

// holdAttempts is how often it is tried to hold the daemons.
const holdAttempts = 3

// onceMore ends a hold under which something went wrong, and lets one that ended
// by itself be tried again, a few times; everything is as it was before it.
func (s *series) onceMore(err error) error {
	if err == nil {
		return nil
	}
	if back := s.stepBack(); back != nil {
		return errors.Join(err, back)
	}
	if !errors.Is(err, errHoldEnded) || s.holds >= holdAttempts {
		return err
	}
	s.cfg.Logger.Warn("holding the daemons again", "err", err)
	return nil
}

// untilRestart makes the hold last, and fails if it had ended between: then
// readings may have come in since.
func (h *hold) untilRestart() error {
	h.end()
	return h.unchanged()
}

// unchanged fails if the hold has ended since it began, or cannot be seen to
// last.
func (h *hold) unchanged() error {
	name, err := h.s.cfg.Holder.Hold(h.s.ctx, 0)
	if err != nil {
		return fmt.Errorf("hold the daemons: %w", err)
	}
	if name != h.name {
		return errHoldEnded
	}
	return nil
}

// end stops the renewals.
func (h *hold) end() {
	h.stop()
	h.done.Wait()
}

// stepBack undoes what keeps daemons waiting, also while the command is being
// stopped: the fence goes, the state says so, and only then they take readings
// again. Who lost the work leaves all of that to its successor.
func (s *series) stepBack() error {
	h := s.holding
	if h == nil {
		return nil
	}
	s.holding, s.settled = nil, nil
	h.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), goodbye)
	defer cancel()
	if _, err := s.job.renew(ctx); err != nil {
		return s.heldStill(err)
	}
	all, err := lookUpAll(ctx, s.db, s.cfg.Stream, bucketsName(s.cfg.Stream))
	if err != nil {
		return s.heldStill(err)
	}
	before, stands := phaseReady, s.isSource(all)
	if s.cfg.To == store.TimeSeries {
		before, stands = phaseFence, all[s.cfg.Stream].is(s.job.state.Source)
	}
	if !stands {
		return s.heldStill(fmt.Errorf("collection %q is not what it was", s.cfg.Stream))
	}
	if s.cfg.To == store.TimeSeries {
		if err := liftFence(ctx, s.db, s.cfg.Stream, s.job.state.Original); err != nil {
			return s.heldStill(err)
		}
	}
	if _, err := s.job.coll.UpdateOne(ctx, s.job.mine(), bson.D{{Key: "$set", Value: bson.D{{Key: "phase", Value: before}}}}); err != nil {
		return s.heldStill(err)
	}
	s.job.state.Phase = before
	if err := s.cfg.Holder.Release(ctx); err != nil {
		return s.heldStill(err)
	}
	return nil
}

// heldStill adds to an error what it means for the daemons.
func (s *series) heldStill(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; daemons may take nothing for stream %s until this command is run again, or they are restarted", err, s.cfg.Stream)
}

// held notes how long the daemons took nothing because of this command, as far
// as it knows: until they may be restarted.
func (h *hold) held() error {
	took := time.Since(h.began)
	h.s.result.HeldFor += took.Seconds()
	h.s.own.Series.HeldFor += took.Milliseconds()
	return h.s.job.set(bson.D{{Key: "series.heldFor", Value: h.s.own.Series.HeldFor}})
}

// note tells what is going on beside the figures.
func (s *series) note(text string) {
	s.progress.Note = text
	s.cfg.Progress(s.progress)
}

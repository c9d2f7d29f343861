package maintain

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// intoSeries makes a bucket stream a time-series one. The new collection needs
// the name, so the switch comes first and the old readings follow from the
// collection that was put aside, in which nothing changes any more.
func (s *series) intoSeries() error {
	for {
		var err error
		switch s.job.state.Phase {
		case phaseStart:
			err = s.beginInto()
		case phaseFence:
			err = s.fenceSource()
		case phaseSwap:
			err = s.switchToSeries()
		case phaseCopy:
			err = s.fill()
		case phaseVerify:
			err = s.verifyFilled()
		case phaseDone:
			return s.endInto()
		default:
			err = s.unknownPhase()
		}
		if err := s.onceMore(err); err != nil {
			return err
		}
	}
}

// beginInto looks whether it can be done.
func (s *series) beginInto() error {
	all, err := lookUpAll(s.ctx, s.db, s.cfg.Stream, oldName(s.cfg.Stream))
	if err != nil {
		return s.giveUp(err)
	}
	source, kept := all[s.cfg.Stream], all[oldName(s.cfg.Stream)]
	switch {
	case source == nil:
		return s.giveUp(fmt.Errorf("there is no collection %q in database %s: is it the right --stream and --database?", s.cfg.Stream, s.db.Name()))
	case source.Type == "timeseries":
		return s.giveUp(fmt.Errorf("collection %q is a time-series collection already", s.cfg.Stream))
	case source.Type != "collection":
		return s.giveUp(fmt.Errorf("collection %q is a %s, not one of bucket documents", s.cfg.Stream, source.Type))
	case fenced(source):
		return s.giveUp(fmt.Errorf("collection %q refuses writes because of a command that does not run any more; run that again first", s.cfg.Stream))
	case kept != nil:
		return s.giveUp(fmt.Errorf("collection %q is there, and its name is needed: it is what an earlier command kept, drop or rename it", kept.Name))
	}
	if err := s.checkDocuments(); err != nil {
		return s.giveUp(err)
	}
	original := originalOf(source)
	s.job.state.Source, s.job.state.Original = source.Info.UUID, original
	return s.phase(phaseFence, bson.E{Key: "source", Value: source.Info.UUID}, bson.E{Key: "original", Value: original})
}

// checkDocuments reads the whole source as fill will read it. Otherwise a document
// that cannot be filled in would be found after the switch, when the collection of
// the stream's name does not hold the old readings yet.
func (s *series) checkDocuments() error {
	walk, err := s.walk(s.cfg.Stream, nil)
	if err != nil {
		return err
	}
	defer walk.close()
	s.progress = Progress{Phase: "check", Total: s.size(s.cfg.Stream)}
	for {
		p, err := walk.piece(s.cfg.chunk)
		switch {
		case away(err):
			return err
		case err != nil:
			return fmt.Errorf("collection %q cannot become a time-series collection as it is, and nothing was changed: %w", s.cfg.Stream, err)
		case len(p.parts) == 0:
			return nil
		}
		s.progress.Documents += int64(len(p.parts))
		s.advance(p.bytes)
	}
}

// giveUp removes the state of work of which nothing was done.
func (s *series) giveUp(cause error) error {
	if away(cause) {
		return cause
	}
	return errors.Join(cause, s.job.forget())
}

// fenceSource makes sure that nothing is written to the source any more, and
// that no daemon has anything left to be stored there.
func (s *series) fenceSource() error {
	// A fence that an earlier run has left would keep daemons from storing what
	// they took since.
	if err := s.lift(); err != nil {
		return err
	}
	h, err := s.holdDaemons()
	if err != nil {
		return err
	}
	err = s.write(func(ctx context.Context) error { return raiseFence(ctx, s.db, s.cfg.Stream, KindMigrate) })
	if err == nil {
		err = h.untilRestart()
	}
	if err == nil {
		err = h.held()
	}
	if err == nil {
		err = s.phase(phaseSwap)
	}
	return err
}

// lift takes the fence away, unless another process has the work, whose it is.
func (s *series) lift() error {
	if _, err := s.job.renew(s.ctx); err != nil {
		return err
	}
	return s.write(func(ctx context.Context) error { return liftFence(ctx, s.db, s.cfg.Stream, s.job.state.Original) })
}

// switchToSeries puts the source aside and makes the new collection. What was
// done of it already is seen from the collections themselves.
func (s *series) switchToSeries() error {
	all, err := lookUpAll(s.ctx, s.db, s.cfg.Stream, oldName(s.cfg.Stream))
	if err != nil {
		return err
	}
	present, old := all[s.cfg.Stream], all[oldName(s.cfg.Stream)]
	if present.is(s.job.state.Source) {
		if err := s.stillHeld(); err != nil {
			return err
		}
		s.holding = nil // there is no way back from here
		if err := s.rename(s.cfg.Stream, oldName(s.cfg.Stream)); err != nil {
			return s.heldStill(err)
		}
		present = nil
	} else if !old.is(s.job.state.Source) {
		return fmt.Errorf("the collection that %q was is gone, or has a name that is not known here: it was to become %q", s.cfg.Stream, oldName(s.cfg.Stream))
	}
	if present != nil && present.Type != "timeseries" {
		return s.foreign()
	}
	if err := s.makeSeries(); err != nil {
		return err
	}
	return s.phase(phaseCopy)
}

// stillHeld makes sure, after a kill, that no daemon has taken readings since
// the fence was raised.
func (s *series) stillHeld() error {
	h, err := s.holdDaemons()
	if err != nil {
		// What they took since waits behind the fence, and only without it can be
		// stored where it belongs.
		return errors.Join(err, s.lift(), s.phase(phaseFence))
	}
	if err := h.untilRestart(); err != nil {
		return err
	}
	if err := h.held(); err != nil {
		return err
	}
	return s.stillFenced()
}

// stillFenced finds out whether the fence was lifted.
func (s *series) stillFenced() error {
	present, err := lookUp(s.ctx, s.db, s.cfg.Stream)
	if err != nil {
		return err
	}
	if !present.is(s.job.state.Source) || !fenced(present) {
		return fmt.Errorf("collection %q takes writes again: %w", s.cfg.Stream, errHoldEnded)
	}
	return nil
}

// foreign is what to do about a collection that was made in the gap.
func (s *series) foreign() error {
	return fmt.Errorf("a daemon that is not held has made an ordinary collection %[1]q while the new one was to be made: stop that daemon (it has to be named by --admin), "+
		"rename the collection, in mongosh: db.getCollection(%[1]q).renameCollection(%[2]q); run this command again; and bring back what the renamed one holds, afterwards: "+
		"give a daemon without senders a stream of that name, and send what `brim query` reads from it to stream %[1]q",
		s.cfg.Stream, s.cfg.Stream+".brim_gap")
}

// makeSeries makes the collection as a daemon would.
func (s *series) makeSeries() error {
	st, err := timeseries.New(timeseries.Config{
		Database: s.db, Stream: s.cfg.Stream, Granularity: s.cfg.Parts.Granularity, Compressor: s.cfg.Compressor, Retention: s.cfg.Retention,
		Exchanging: true, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	if err := st.Prepare(s.ctx); err != nil {
		var mismatch *store.MismatchError
		if errors.As(err, &mismatch) && mismatch.What == "type" {
			return s.foreign()
		}
		return fmt.Errorf("make the time-series collection: %w", err)
	}
	return nil
}

// endInto ends a migration that is done: with --drop-old the old collection goes.
func (s *series) endInto() error {
	s.result.Switched = true
	if !s.cfg.DropOld {
		s.result.Kept = oldName(s.cfg.Stream)
		return nil
	}
	kept, err := lookUp(s.ctx, s.db, oldName(s.cfg.Stream))
	if err != nil {
		return err
	}
	if kept != nil && !kept.is(s.job.state.Source) {
		return fmt.Errorf("collection %q is not the one that was put aside; it is left alone", kept.Name)
	}
	if err := s.drop(oldName(s.cfg.Stream)); err != nil {
		return err
	}
	s.result.Dropped = true
	return s.job.forget()
}

// AbortStorage gives a change of storage up, as far as that can still be done.
func AbortStorage(ctx context.Context, cfg SeriesConfig) error {
	if err := cfg.check(); err != nil {
		return err
	}
	s, err := cfg.open(ctx, true)
	if err != nil {
		return err
	}
	defer s.job.end()
	if cfg.To == store.Bucket {
		return s.abortCopy()
	}
	return s.abortInto()
}

// abortInto undoes what was done before the switch.
func (s *series) abortInto() error {
	present, err := lookUp(s.ctx, s.db, s.cfg.Stream)
	if err != nil {
		return err
	}
	switch s.job.state.Phase {
	case phaseStart:
	case phaseFence, phaseSwap:
		if !present.is(s.job.state.Source) {
			return s.tooLate()
		}
		if err := s.lift(); err != nil {
			return err
		}
		if err := s.cfg.Holder.Release(s.ctx); err != nil {
			return fmt.Errorf("release the daemons, which take no readings until they are restarted: %w", err)
		}
	default:
		return s.tooLate()
	}
	return s.job.forget()
}

func (s *series) tooLate() error {
	return fmt.Errorf("the switch is made: what came since is in the time-series collection alone, and what came before in %q, so nothing can be undone; "+
		"let the migration finish (run it again without --abort), drop the old collection with --drop-old, and go back with `brim migrate --stream %s --storage bucket`, which loses nothing",
		oldName(s.cfg.Stream), s.cfg.Stream)
}

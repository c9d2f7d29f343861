package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// bucketsName is where MongoDB keeps a time-series collection, which itself is a
// view and has no UUID.
func bucketsName(stream string) string { return "system.buckets." + stream }

// lookUpBack looks up all that the way back is about.
func (s *series) lookUpBack() (map[string]*found, error) {
	return lookUpAll(s.ctx, s.db, s.cfg.Stream, bucketsName(s.cfg.Stream), newName(s.cfg.Stream))
}

// identity tells one time series of the stream's name from another; empty: MongoDB
// does not say, or has no readings of it.
func (s *series) identity(all map[string]*found) bson.Binary {
	for _, name := range []string{bucketsName(s.cfg.Stream), s.cfg.Stream} {
		if f := all[name]; f != nil && f.Info.UUID.Data != nil {
			return f.Info.UUID
		}
	}
	return bson.Binary{}
}

// isSource reports whether the stream's collection is the one that was copied.
// A daemon that comes up while the name is free makes another one.
func (s *series) isSource(all map[string]*found) bool {
	present := all[s.cfg.Stream]
	return present != nil && present.Type == "timeseries" && s.identity(all).Equal(s.job.state.Source)
}

// sourceStands refuses to take anything else for the source, in the phases in
// which that must be there.
func (s *series) sourceStands() error {
	switch s.job.state.Phase {
	case phaseCopy, phaseVerify, phaseReady:
	default:
		return nil
	}
	all, err := s.lookUpBack()
	if err != nil {
		return err
	}
	if all[s.cfg.Stream] == nil {
		return fmt.Errorf("time-series collection %[1]q is gone, which this command has not dropped; its copy %[2]q has what it had at the last look. To give the copy the name, stop the daemons, and in mongosh: "+
			"db.getCollection(%[2]q).renameCollection(%[1]q); then start them with --storage bucket", s.cfg.Stream, newName(s.cfg.Stream))
	}
	if !s.isSource(all) {
		return s.replaced()
	}
	after, _ := all[s.cfg.Stream].Options.Lookup(expiry).AsInt64OK()
	s.expires = time.Duration(after) * time.Second
	return nil
}

// replaced says what to do about a collection that is not the one that was
// copied.
func (s *series) replaced() error {
	stream := s.cfg.Stream
	return fmt.Errorf("collection %[1]q is not the one that was copied: that one is gone, and a daemon may have made the new one since, which holds only what came since. "+
		"The copy %[2]q has the readings, and is left alone. 1. Save what the new one holds of each sensor: `brim query SENSOR --limit 0 --output ndjson`. 2. Stop the daemons, and drop the new one, in mongosh: db.getCollection(%[1]q).drop(). "+
		"3. Give its name to the copy: run this command again with --drop-old --no-daemon or, where it says that the collection is gone, db.getCollection(%[2]q).renameCollection(%[1]q). "+
		"4. Start the daemons with --storage bucket, and send them what was saved", stream, newName(stream))
}

// switchToBuckets drops the time-series collection, whose name is needed, and
// gives it to the copy. What was done of it already is seen from the collections
// themselves. Where the source is there, and this run has not compared it, it
// goes back to where that is done: daemons may have written since.
func (s *series) switchToBuckets() (done bool, err error) {
	all, err := s.lookUpBack()
	if err != nil {
		return true, err
	}
	present, target := all[s.cfg.Stream], all[newName(s.cfg.Stream)]
	switch {
	case present.is(s.job.state.Target):
		return true, s.finishBack()
	case !target.is(s.job.state.Target):
		return true, fmt.Errorf("the copy %q is gone; collection %q is left alone", newName(s.cfg.Stream), s.cfg.Stream)
	case present == nil && all[bucketsName(s.cfg.Stream)] == nil:
	case present != nil && present.Type != "timeseries":
		return true, fmt.Errorf("a daemon that is not held has made an ordinary collection %q where the copy was to be: stop that daemon (it has to be named by --admin), "+
			"rename the collection, in mongosh: db.getCollection(%q).renameCollection(%q), and run this command again; the copy %q is complete and safe",
			s.cfg.Stream, s.cfg.Stream, s.cfg.Stream+".brim_gap", newName(s.cfg.Stream))
	case s.half(all):
		if err := s.drop(s.cfg.Stream); err != nil {
			return true, err
		}
	case !s.isSource(all):
		return true, s.replaced()
	case s.settled == nil:
		return false, s.phase(phaseReady)
	default:
		if err := s.exchange(); err != nil {
			return false, err
		}
		return true, s.finishBack()
	}
	if err := s.rename(newName(s.cfg.Stream), s.cfg.Stream); err != nil {
		return true, err
	}
	return true, s.finishBack()
}

// half reports whether the source was dropped in part: its view has no buckets,
// or its buckets have no view.
func (s *series) half(all map[string]*found) bool {
	is := s.identity(all)
	return all[s.cfg.Stream] != nil && is.Data == nil || all[s.cfg.Stream] == nil && is.Data != nil && is.Equal(s.job.state.Source)
}

// exchange drops the source and gives its name to the copy if the daemons are
// still held since the two were compared. Between their answers and the drop lies
// one sign of life.
func (s *series) exchange() error {
	h := s.settled
	s.settled = nil
	if err := h.unchanged(); err != nil {
		return err
	}
	if _, err := s.job.renew(s.ctx); err != nil {
		return err
	}
	s.holding = nil // there is no way back from here
	if !s.cfg.apart {
		err := s.exchangeAtOnce()
		if err == nil || transient(err) {
			return s.heldStill(err)
		}
		s.cfg.Logger.Warn("MongoDB does not exchange the collections in one step, it is done in two", "err", err)
	}
	return s.heldStill(s.exchangeInSteps())
}

// exchangeAtOnce leaves no moment in which the name is free, and names both
// collections by their UUID: it drops no other one, however late it comes. The
// time series' view is an entry of its own.
func (s *series) exchangeAtOnce() error {
	source, target := s.job.state.Source, s.job.state.Target
	op := func(uuid bson.Binary, o bson.D) bson.D {
		return bson.D{{Key: "op", Value: "c"}, {Key: "ns", Value: s.db.Name() + ".$cmd"}, {Key: "ui", Value: uuid}, {Key: "o", Value: o}}
	}
	ops := bson.A{
		bson.D{{Key: "op", Value: "d"}, {Key: "ns", Value: s.db.Name() + ".system.views"}, {Key: "o", Value: bson.D{{Key: "_id", Value: s.db.Name() + "." + s.cfg.Stream}}}},
		op(source, bson.D{{Key: "drop", Value: bucketsName(s.cfg.Stream)}}),
		op(target, bson.D{{Key: "renameCollection", Value: s.db.Name() + "." + newName(s.cfg.Stream)}, {Key: "to", Value: s.db.Name() + "." + s.cfg.Stream}}),
	}
	err := s.write(func(ctx context.Context) error {
		return s.db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "applyOps", Value: ops}, majority()}).Err()
	})
	if err != nil {
		return fmt.Errorf("exchange collections: %w", err)
	}
	present, err := lookUp(s.ctx, s.db, s.cfg.Stream)
	if err == nil && !present.is(target) {
		err = fmt.Errorf("MongoDB says that it has exchanged the collections of stream %q, and has not", s.cfg.Stream)
	}
	return err
}

// exchangeInSteps needs no rights but those on the database. The first step knows
// the source by its name alone.
func (s *series) exchangeInSteps() error {
	all, err := s.lookUpBack()
	if err != nil {
		return err
	}
	if all[s.cfg.Stream] != nil || all[bucketsName(s.cfg.Stream)] != nil {
		if !s.half(all) && !s.isSource(all) {
			return s.replaced()
		}
		if err := s.drop(s.cfg.Stream); err != nil {
			return err
		}
	}
	return s.rename(newName(s.cfg.Stream), s.cfg.Stream)
}

// finishBack does what is left once the copy has the name.
func (s *series) finishBack() error {
	if s.cfg.Retention > 0 {
		c := store.Collection{Database: s.db, Name: s.cfg.Stream}
		if err := c.EnsureExpiry(s.ctx, "bucketStart", s.cfg.Retention+s.cfg.Parts.Granularity); err != nil {
			return err
		}
	}
	s.result.Switched, s.result.Dropped = true, true
	s.cfg.Tell(fmt.Sprintf("The switch is made: %q holds bucket documents. Restart every daemon now with --storage bucket; it takes readings again from then on.", s.cfg.Stream))
	return s.job.forget()
}

// abortCopy drops the copy, unless it may be the only one of the readings.
func (s *series) abortCopy() error {
	all, err := s.lookUpBack()
	if err != nil {
		return err
	}
	if s.job.state.Phase != phaseStart && !s.isSource(all) {
		if s.job.state.Phase == phaseSwap && (all[s.cfg.Stream] == nil || all[s.cfg.Stream].is(s.job.state.Target)) {
			return errors.New("the time-series collection is dropped already; run the same command again without --abort, which ends the switch")
		}
		return s.replaced()
	}
	if all[newName(s.cfg.Stream)].is(s.job.state.Target) {
		if err := s.drop(newName(s.cfg.Stream)); err != nil {
			return err
		}
	}
	if s.job.state.Phase == phaseSwap || s.job.state.Phase == phaseReady {
		if err := s.cfg.Holder.Release(s.ctx); err != nil {
			s.cfg.Logger.Warn("release the daemons, which may take no readings until they are restarted", "err", err)
		}
	}
	return s.job.forget()
}

package maintain

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// intoBuckets makes a time-series stream one of bucket documents. These are
// copied beside it, in rounds, since nothing tells what was written meanwhile:
// a round compares how many readings the hours of the sensors have, and makes
// anew those that differ. That finds everything, for nothing in a time-series
// collection is ever changed.
func (s *series) intoBuckets() error {
	if err := s.sameWindow(); err != nil {
		return err
	}
	for {
		err := s.sourceStands()
		if err != nil {
			return err
		}
		switch s.job.state.Phase {
		case phaseStart:
			err = s.beginBack()
		case phaseCopy:
			err = s.copyRounds(phaseVerify)
		case phaseVerify:
			err = s.verifyCopy()
		case phaseReady:
			switch {
			case !s.own.Series.Checked: // killed between a copy and its comparison
				err = s.phase(phaseVerify)
			case s.cfg.DropOld:
				err = s.lastRound()
			default:
				return s.catchUp()
			}
		case phaseSwap:
			var done bool
			if done, err = s.switchToBuckets(); done && err == nil {
				return nil
			}
		default:
			err = s.unknownPhase()
		}
		if err := s.onceMore(err); err != nil {
			return err
		}
	}
}

// sameWindow refuses to go on with a copy whose buckets have another length.
func (s *series) sameWindow() error {
	window := time.Duration(s.own.Series.Window) * time.Millisecond
	if window == 0 || window == s.cfg.Parts.Granularity {
		return nil
	}
	return refuse("the copy that was begun has buckets of %s, not of %s: repeat the command with --granularity %s, or take it back with --abort",
		config.FormatDuration(window), config.FormatDuration(s.cfg.Parts.Granularity), config.FormatDuration(window))
}

// beginBack looks whether it can be done, and makes the copy's collection.
func (s *series) beginBack() error {
	all, err := s.lookUpBack()
	if err != nil {
		return s.giveUp(err)
	}
	source, target := all[s.cfg.Stream], all[newName(s.cfg.Stream)]
	switch {
	case source == nil:
		return s.giveUp(fmt.Errorf("there is no collection %q in database %s: is it the right --stream and --database?", s.cfg.Stream, s.db.Name()))
	case source.Type == "collection":
		return s.giveUp(fmt.Errorf("collection %q holds bucket documents already", s.cfg.Stream))
	case source.Type != "timeseries":
		return s.giveUp(fmt.Errorf("collection %q is a %s, not a time-series collection", s.cfg.Stream, source.Type))
	case target != nil && s.job.state.Target.Data == nil:
		if empty, err := s.isEmpty(newName(s.cfg.Stream)); err != nil || !empty {
			return s.giveUp(errors.Join(err, fmt.Errorf("collection %q is there, and its name is needed; drop or rename it", target.Name)))
		}
	}
	is := s.identity(all)
	if is.Data == nil {
		return s.giveUp(fmt.Errorf("MongoDB does not tell the UUID of the buckets of time-series collection %q (listCollections), so another one of its name could not be told from it", s.cfg.Stream))
	}
	if target, err = s.makeCopy(); err != nil {
		return err
	}
	s.job.state.Source, s.job.state.Target = is, target.Info.UUID
	s.own.Series.Window = s.cfg.Parts.Granularity.Milliseconds()
	return s.phase(phaseCopy, bson.E{Key: "series.window", Value: s.own.Series.Window}, bson.E{Key: "source", Value: is}, bson.E{Key: "target", Value: target.Info.UUID})
}

func (s *series) isEmpty(name string) (bool, error) {
	n, err := s.collection(name).EstimatedDocumentCount(s.ctx)
	if err != nil {
		return false, fmt.Errorf("count documents of collection %q: %w", name, err)
	}
	return n == 0, nil
}

// makeCopy makes the collection as a daemon would. Its index for the retention
// is there from the start and removes nothing yet, or the copy would lose what
// its source still has.
func (s *series) makeCopy() (*found, error) {
	name := newName(s.cfg.Stream)
	st, err := bucket.New(bucket.Config{
		Database: s.db, Stream: name, Granularity: s.cfg.Parts.Granularity, MaxReadings: s.cfg.Parts.MaxReadings, MaxBytes: s.cfg.Parts.MaxBytes,
		Compressor: s.cfg.Compressor, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, err
	}
	if err := st.Prepare(s.ctx); err != nil {
		return nil, fmt.Errorf("make the collection of bucket documents: %w", err)
	}
	if s.cfg.Retention > 0 {
		err := s.db.RunCommand(s.ctx, bson.D{{Key: "createIndexes", Value: name}, {Key: "indexes", Value: bson.A{
			bson.D{{Key: "key", Value: bson.D{{Key: "bucketStart", Value: 1}}}, {Key: "name", Value: "brim_retention"}},
		}}, majority()}).Err()
		if err != nil {
			return nil, fmt.Errorf("make the index for the retention: %w", err)
		}
	}
	made, err := lookUp(s.ctx, s.db, name)
	if err == nil && made == nil {
		err = fmt.Errorf("make collection %q: it vanished again", name)
	}
	return made, err
}

const (
	// briefRound is one after which another finds little more.
	briefRound   = 10 * time.Second
	seriesRounds = 20
)

// copyRounds copies until a round has little to do, and goes on to the phase.
func (s *series) copyRounds(next string) error {
	before := int64(-1)
	for range seriesRounds {
		began := time.Now()
		remade, err := s.round()
		if err != nil {
			return err
		}
		took := time.Since(began)
		s.result.LastRound = took.Seconds()
		// Where as much comes as is copied, no round gets shorter.
		if remade == 0 || took < briefRound || before >= 0 && remade > before*3/4 {
			break
		}
		before = remade
	}
	return s.phase(next)
}

// catchUp ends a run that is not to switch.
func (s *series) catchUp() error {
	if err := s.copyRounds(phaseReady); err != nil {
		return err
	}
	s.result.Kept = s.cfg.Stream
	return s.count()
}

// count notes how many readings the copy has.
func (s *series) count() error {
	n, err := s.countCopy()
	if err != nil {
		return err
	}
	s.result.Readings, s.own.Series.Readings = n, n
	return s.job.set(bson.D{{Key: "series.readings", Value: n}, {Key: "series.repaired", Value: s.own.Series.Repaired}})
}

// lastRound holds the daemons, copies what is left, and compares once more.
// Behind it nothing is written to the source by anybody who was named.
func (s *series) lastRound() error {
	if err := s.copyRounds(phaseReady); err != nil { // so that the hold is short
		return err
	}
	h, err := s.holdDaemons()
	if err != nil {
		return err
	}
	return s.settleCopy(h)
}

// settleCopy makes the copy equal to the source, which is not written any more.
func (s *series) settleCopy(h *hold) error {
	s.cfg.Tell(fmt.Sprintf("The last look begins. It counts all readings twice, of which once took %.1f s the last time; daemons take nothing for the stream meanwhile.", s.result.LastRound))
	for range seriesRounds {
		remade, err := s.round()
		if err != nil {
			return err
		}
		if remade > 0 {
			continue // what it has copied is looked at by the next one
		}
		if err := h.untilRestart(); err != nil {
			return err
		}
		if err := s.sameCounts(); err != nil {
			return err
		}
		if err := h.held(); err != nil {
			return err
		}
		s.settled = h
		return s.phase(phaseSwap)
	}
	return fmt.Errorf("readings keep coming into collection %q although all daemons that are named are held: another one writes it, name it by a further --admin", s.cfg.Stream)
}

// sameCounts compares copy and source as a whole, right before the source is
// dropped, which is therefore looked at last.
func (s *series) sameCounts() error {
	if err := s.count(); err != nil {
		return err
	}
	source, err := s.countSource()
	if err != nil {
		return err
	}
	if copied := s.own.Series.Readings; source != copied {
		return fmt.Errorf("%w: collection %q has %d readings and its copy %d; nothing was dropped", errHoldEnded, s.cfg.Stream, source, copied)
	}
	return nil
}

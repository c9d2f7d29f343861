package maintain

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A SeriesError says that readings of the new collection are not those of the
// old one, and cannot be put right by this command.
type SeriesError struct {
	Stream string
	Twice  int64 // readings that are stored more than once
	Differ int64 // readings that are stored with another content
	First  string
}

// Error implements error.
func (e *SeriesError) Error() string {
	return fmt.Sprintf("stream %q: %d readings are stored twice and %d are not what they were, the first of them %s; "+
		"the old collection is kept as it is, and single readings cannot be removed from a time-series collection: inspect them, and if they may stay, remove the stream's document from collection brim_maintenance", e.Stream, e.Twice, e.Differ, e.First)
}

// verifyFilled compares every old document with what the new collection has of
// it, reading by reading. What is missing is sent again.
func (s *series) verifyFilled() error {
	walk, err := s.walk(oldName(s.cfg.Stream), s.own.Series.Verified)
	if err != nil {
		return err
	}
	defer walk.close()
	s.progress.Total = s.size(oldName(s.cfg.Stream))
	wrong := &SeriesError{Stream: s.cfg.Stream}
	for {
		p, err := walk.piece(s.cfg.chunk)
		if err != nil {
			return err
		}
		if len(p.parts) == 0 {
			break
		}
		for _, f := range p.parts {
			if err := s.verifyPart(f, wrong); err != nil {
				return err
			}
		}
		s.progress.Documents += int64(len(p.parts))
		s.advance(p.bytes)
		if wrong.First != "" {
			continue // the rest is compared all the same; another run begins here
		}
		err = s.job.set(bson.D{
			{Key: "series.verified", Value: p.last}, {Key: "series.readings", Value: s.own.Series.Readings}, {Key: "series.repaired", Value: s.own.Series.Repaired},
		})
		if err != nil {
			return err
		}
	}
	if wrong.First != "" {
		return wrong
	}
	s.result.Readings, s.result.Repaired = s.own.Series.Readings, s.own.Series.Repaired
	return s.phase(phaseDone)
}

// verifyPart compares the readings of one old document, after it has sent those
// that are missing.
func (s *series) verifyPart(f filled, wrong *SeriesError) error {
	found, err := s.found(f)
	if err != nil {
		return err
	}
	if missing := s.missing(f, found); len(missing) > 0 {
		s.cfg.Logger.Warn("readings were missing, they are filled in", "document", f.part.String(), "readings", len(missing))
		if err := s.insert(missing); err != nil {
			return err
		}
		s.own.Series.Repaired += int64(len(missing))
		if found, err = s.found(f); err != nil {
			return err
		}
		if missing = s.missing(f, found); len(missing) > 0 {
			return fmt.Errorf("%d readings of document %v were sent twice and are not there, the first of them %s", len(missing), f.part, missing[0].document)
		}
	}
	sums := newSummer()
	for _, r := range f.readings {
		if err := wrong.compare(f, r, found[r.id], sums); err != nil {
			return err
		}
	}
	s.own.Series.Readings += int64(len(f.readings))
	return nil
}

// missing returns what was not found of a document, but for what MongoDB may
// have removed because of its age since it was sent.
func (s *series) missing(f filled, found map[bson.ObjectID][]bson.Raw) []seriesReading {
	horizon, expires := s.horizon()
	var missing []seriesReading
	for _, r := range f.readings {
		if len(found[r.id]) == 0 && (!expires || r.time >= horizon) {
			missing = append(missing, r)
		}
	}
	return missing
}

// compare notes where what was found of a reading is not the reading, once.
func (e *SeriesError) compare(f filled, r seriesReading, have []bson.Raw, sums *summer) error {
	if len(have) > 1 {
		e.Twice++
		e.note(f, r)
	}
	want, err := sums.sum(r.document)
	if err != nil {
		return err
	}
	for _, one := range have {
		is, err := sums.sum(one)
		if err != nil {
			return err
		}
		if is != want {
			e.Differ++
			e.note(f, r)
		}
	}
	return nil
}

func (e *SeriesError) note(f filled, r seriesReading) {
	if e.First == "" {
		e.First = fmt.Sprintf("%s of document %v", r.document, f.part)
	}
}

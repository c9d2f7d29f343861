package maintain

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

// makingHours is how many hours one write carries where they are small.
const makingHours = 500

// A making gathers hours that are made anew, and writes them together.
type making struct {
	s      *series
	hours  []hour
	gone   []mongo.WriteModel // what the copy has of them
	fresh  []mongo.WriteModel
	bytes  int64
	marked bool // the state says that not every hour was compared
}

// add reads an hour of the source and makes its documents. present says that the
// copy has some of it.
func (m *making) add(at hour, present bool) error {
	readings, n, err := m.s.readHour(at)
	if err != nil {
		return err
	}
	documents, err := m.s.cfg.Parts.hour(at, readings)
	if err != nil {
		return err
	}
	if present {
		m.gone = append(m.gone, mongo.NewDeleteManyModel().SetFilter(at.filter()))
	}
	for _, d := range documents {
		m.fresh = append(m.fresh, mongo.NewInsertOneModel().SetDocument(d))
		m.bytes += int64(len(d))
	}
	m.hours = append(m.hours, at)
	m.s.progress.Documents += int64(len(documents))
	m.s.advance(n)
	if m.bytes < m.s.cfg.chunk && len(m.hours) < makingHours {
		return nil
	}
	return m.write()
}

// write replaces what the copy has of the hours. A write that is cut off leaves
// hours with too few readings, which the next round finds.
func (m *making) write() error {
	if len(m.hours) == 0 {
		return nil
	}
	if err := m.mark(false); err != nil {
		return err
	}
	err := m.send(append(m.gone, m.fresh...))
	if mongo.IsDuplicateKeyError(err) { // an earlier run, which was killed, has sent some of them
		err = m.replaceAll()
	}
	if err != nil {
		return fmt.Errorf("write bucket documents: %w", err)
	}
	if err := m.verify(); err != nil {
		return err
	}
	m.hours, m.gone, m.fresh, m.bytes = nil, nil, nil, 0
	return nil
}

func (m *making) send(all []mongo.WriteModel) error {
	return m.s.write(func(ctx context.Context) error {
		_, err := m.s.collection(newName(m.s.cfg.Stream)).BulkWrite(ctx, all, options.BulkWrite().SetOrdered(true))
		return err
	})
}

func (m *making) replaceAll() error {
	all := make([]mongo.WriteModel, 0, len(m.hours)+len(m.fresh))
	for _, at := range m.hours {
		all = append(all, mongo.NewDeleteManyModel().SetFilter(at.filter()))
	}
	return m.send(append(all, m.fresh...))
}

// mark notes, once the copy was compared as a whole, whether it still is.
func (m *making) mark(checked bool) error {
	if m.s.job.state.Phase != phaseReady || m.marked == !checked {
		return nil
	}
	m.marked = !checked
	return m.s.job.set(bson.D{{Key: "series.checked", Value: checked}})
}

// verify compares the hours right away where the comparison of all is over.
func (m *making) verify() error {
	if m.s.job.state.Phase != phaseReady {
		return nil
	}
	for _, at := range m.hours {
		if _, err := m.s.sameHour(at); err != nil {
			return err
		}
	}
	return nil
}

// finish writes what was gathered.
func (m *making) finish() error {
	if err := m.write(); err != nil {
		return err
	}
	return m.mark(true)
}

// filter finds the documents of an hour. Keys compare field by field, so {s, b}
// precedes every {s, b, g, p}.
func (h hour) filter() bson.D {
	bound := func(at int64) bson.D {
		return bson.D{{Key: "s", Value: h.sensor}, {Key: "b", Value: bson.DateTime(at)}}
	}
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bound(h.start)}, {Key: "$lt", Value: bound(h.end())}}}}
}

// readHour reads an hour's readings from the source, by their time and, within a
// millisecond, by their _id; and how many bytes these were.
func (s *series) readHour(at hour) (readings []Measurement, n int64, err error) {
	cursor, err := s.collection(s.cfg.Stream).Find(s.ctx, bson.D{
		{Key: sensorKey + ".id", Value: at.sensor},
		{Key: store.TimeKey, Value: bson.D{{Key: "$gte", Value: bson.DateTime(at.start)}, {Key: "$lt", Value: bson.DateTime(at.end())}}},
	}, options.Find().SetSort(bson.D{{Key: store.TimeKey, Value: 1}, {Key: "_id", Value: 1}}).SetAllowDiskUse(true))
	if err != nil {
		return nil, 0, fmt.Errorf("read readings of sensor %q: %w", at.sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(s.ctx))
	for cursor.Next(s.ctx) {
		m, err := measurementOf(cursor.Current)
		if err != nil {
			return nil, 0, fmt.Errorf("sensor %q: %w", at.sensor, err)
		}
		readings = append(readings, m)
		n += int64(len(cursor.Current))
	}
	if err := cursor.Err(); err != nil {
		return nil, 0, fmt.Errorf("read readings of sensor %q: %w", at.sensor, err)
	}
	return readings, n, s.throttle.wait(s.ctx, n)
}

// hour makes the documents of an hour from its readings, which are in the order
// of their time.
func (p Parts) hour(at hour, readings []Measurement) ([]bson.Raw, error) {
	var out []bson.Raw
	for from := 0; from < len(readings); {
		start := store.WindowStart(readings[from].Time, p.Granularity)
		to := from + 1
		for to < len(readings) && store.WindowStart(readings[to].Time, p.Granularity) == start {
			to++
		}
		documents, err := p.Make(at.sensor, start, 0, readings[from:to])
		if err != nil {
			return nil, err
		}
		out = append(out, documents...)
		from = to
	}
	return out, nil
}

// verifyCopy compares source and copy hour by hour. One that differs, because
// readings came since, is made anew.
func (s *series) verifyCopy() error {
	source, err := s.sourceCounts()
	if err != nil {
		return err
	}
	defer source.close()
	s.progress.Total = s.size(s.cfg.Stream)
	var behind hour
	if v := s.own.Series.Verified; v != nil {
		id := rawID(v)
		behind = hour{id.sensor, id.start}
	}
	noted := 0
	for ; source.n > 0 && err == nil; err = source.next(s.ctx) {
		if source.at.compare(behind) <= 0 {
			continue
		}
		if err := s.verifyHour(source.at); err != nil {
			return err
		}
		if noted++; noted%makingHours == 0 {
			id := bson.Raw(partID{sensor: source.at.sensor, start: source.at.start}.document())
			if err := s.job.set(bson.D{{Key: "series.verified", Value: id}, {Key: "series.repaired", Value: s.own.Series.Repaired}}); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	s.own.Series.Verified, s.own.Series.Checked = nil, true
	s.result.Repaired = s.own.Series.Repaired
	return s.phase(phaseReady, bson.E{Key: "series.checked", Value: true}, bson.E{Key: "series.verified", Value: nil})
}

// verifyHour compares one hour, and makes it anew if it differs.
func (s *series) verifyHour(at hour) error {
	const attempts = 3
	for range attempts {
		same, err := s.sameHour(at)
		if err != nil || same {
			return err
		}
		one := &making{s: s}
		if err := one.add(at, true); err != nil {
			return err
		}
		if err := one.finish(); err != nil {
			return err
		}
	}
	return nil // readings come faster than they are read: a round will find it
}

// sameHour reports whether the copy has exactly the readings of the source. That
// more came meanwhile is no fault; that as many are others is.
func (s *series) sameHour(at hour) (bool, error) {
	readings, n, err := s.readHour(at)
	if err != nil {
		return false, err
	}
	s.advance(n)
	want, err := checksums(readings)
	if err != nil {
		return false, err
	}
	documents, err := s.copied(at)
	if err != nil {
		return false, err
	}
	have, err := checksums(documents)
	if err != nil {
		return false, err
	}
	if len(readings) < len(documents) {
		return false, s.mayShrink(at)
	}
	if len(readings) != len(documents) {
		return false, nil
	}
	for sum, times := range want {
		if have[sum] != times {
			s.own.Series.Repaired++
			s.cfg.Logger.Warn("readings of the copy are not those of the source, they are copied again", "sensor", at.sensor, "hour", bson.DateTime(at.start).Time().UTC())
			return false, s.spoil(at)
		}
	}
	return true, nil
}

var errSpoiled = errors.New("readings of the copy were not those of the source; they are removed from the copy, run the same command again")

// spoil removes an hour from the copy, so that every later look finds it to be
// different, too.
func (s *series) spoil(at hour) error {
	err := s.write(func(ctx context.Context) error {
		_, err := s.collection(newName(s.cfg.Stream)).DeleteMany(ctx, at.filter())
		return err
	})
	if err != nil {
		return fmt.Errorf("remove an hour from the copy: %w", err)
	}
	if s.job.state.Phase == phaseReady {
		return errSpoiled
	}
	return nil
}

// copied returns the readings that the copy has of an hour.
func (s *series) copied(at hour) ([]Measurement, error) {
	cursor, err := s.collection(newName(s.cfg.Stream)).Find(s.ctx, at.filter())
	if err != nil {
		return nil, fmt.Errorf("read the copy: %w", err)
	}
	defer cursor.Close(context.WithoutCancel(s.ctx))
	var out []Measurement
	for cursor.Next(s.ctx) {
		part, err := readPart(append(bson.Raw(nil), cursor.Current...))
		if err != nil {
			return nil, err
		}
		readings, err := part.readings()
		if err != nil {
			return nil, err
		}
		out = append(out, readings...)
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read the copy: %w", err)
	}
	return out, nil
}

// checksums counts readings by their checksums.
func checksums(readings []Measurement) (map[uint64]int, error) {
	out, sums := make(map[uint64]int, len(readings)), newSummer()
	for _, m := range readings {
		sum, err := sums.sum(m.Tags, m.Document)
		if err != nil {
			return nil, err
		}
		out[sum]++
	}
	return out, nil
}

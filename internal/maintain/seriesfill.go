package maintain

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

// A piece is some of the old documents, in the order of their _id.
type piece struct {
	last  bson.Raw // _id of the last
	parts []filled
	bytes int64
}

// filled is what becomes of one old document.
type filled struct {
	part     partID
	readings []seriesReading // that have not expired
	expired  int
}

// fill sends the readings of the old collection to the new one:
//
//	note the piece as begun ─▶ look, if it may have been sent ─▶ insert what is missing ─▶ note it as done
func (s *series) fill() error {
	s.cfg.Tell(fmt.Sprintf("The switch is made: %q is a time-series collection. Restart every daemon now with --storage timeseries, unless that is done; "+
		"it takes readings again from then on. The old readings follow by themselves from %q, queries show them as they come.",
		s.cfg.Stream, oldName(s.cfg.Stream)))
	walk, err := s.walk(oldName(s.cfg.Stream), s.own.Series.Done)
	if err != nil {
		return err
	}
	defer walk.close()
	s.progress.Total = s.size(oldName(s.cfg.Stream))
	doubtful := s.own.Series.Until
	if doubtful != nil {
		if err := s.awaitStragglers(); err != nil {
			return err
		}
	}
	for {
		p, err := walk.piece(s.cfg.chunk)
		if err != nil {
			return err
		}
		if len(p.parts) == 0 {
			break
		}
		// The note is behind everything that an earlier run has written, and waits
		// for the majority: no look after it misses any of that.
		if err := s.job.set(bson.D{{Key: "series.until", Value: p.last}}); err != nil {
			return err
		}
		unsure := doubtful != nil && compareRaw(p.first(), doubtful) <= 0
		if err := s.fillPiece(p, unsure); err != nil {
			return err
		}
		s.own.Series.Expired += int64(p.expired())
		if err := s.job.set(bson.D{{Key: "series.done", Value: p.last}, {Key: "series.expired", Value: s.own.Series.Expired}}); err != nil {
			return err
		}
		s.progress.Documents += int64(len(p.parts))
		s.advance(p.bytes)
	}
	s.result.Expired = s.own.Series.Expired
	return s.phase(phaseVerify)
}

// advance shows more of the bytes as done.
func (s *series) advance(n int64) {
	s.progress.Done = min(s.progress.Done+n, max(s.progress.Total, s.progress.Done))
	s.cfg.Progress(s.progress)
}

func (p *piece) first() bson.Raw { return bson.Raw(p.parts[0].part.document()) }

func (p *piece) expired() (n int) {
	for _, f := range p.parts {
		n += f.expired
	}
	return n
}

// compareRaw orders two _id of parts as MongoDB does.
func compareRaw(a, b bson.Raw) int {
	x, y := rawID(a), rawID(b)
	if x.sensor != y.sensor {
		if x.sensor < y.sensor {
			return -1
		}
		return 1
	}
	return x.compare(y)
}

func rawID(raw bson.Raw) partID {
	var id partID
	id.sensor, _ = raw.Lookup("s").StringValueOK()
	id.start, _ = raw.Lookup("b").DateTimeOK()
	id.grain, _ = raw.Lookup("g").Int32OK()
	id.number, _ = raw.Lookup("p").Int32OK()
	return id
}

// fillPiece inserts what is not there.
func (s *series) fillPiece(p *piece, unsure bool) error {
	var missing []seriesReading
	for _, f := range p.parts {
		readings := f.readings
		if unsure {
			found, err := s.found(f)
			if err != nil {
				return err
			}
			readings = readings[:0:0]
			for _, r := range f.readings {
				if len(found[r.id]) == 0 {
					readings = append(readings, r)
				}
			}
		}
		missing = append(missing, readings...)
	}
	return s.insert(missing)
}

// insert sends readings. After an error some of them may have been stored, or
// may still be.
func (s *series) insert(readings []seriesReading) error {
	if len(readings) == 0 {
		return nil
	}
	documents := make([]bson.Raw, len(readings))
	for i, r := range readings {
		documents[i] = r.document
	}
	err := s.write(func(ctx context.Context) error {
		_, err := s.collection(s.cfg.Stream).InsertMany(ctx, documents, options.InsertMany().SetOrdered(false).SetComment(s.comment()))
		return err
	})
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && len(bulk.WriteErrors) > 0 && !away(err) {
		e := bulk.WriteErrors[0]
		return fmt.Errorf("MongoDB refuses %d readings for the time-series collection, the first of them %s: %w", len(bulk.WriteErrors), documents[e.Index], e)
	}
	if err != nil {
		return fmt.Errorf("fill in %d readings: %w", len(readings), err)
	}
	return nil
}

// comment marks what this command writes, so that a later run sees whether the
// server still works on something of an earlier one.
func (s *series) comment() string { return "brim migrate of stream " + s.cfg.Stream }

// awaitStragglers returns when the server carries out nothing more of what an
// earlier run, which was killed, has sent. A request that has not been read from
// its socket yet cannot be seen; the comparison in the end would find what it does.
func (s *series) awaitStragglers() error {
	for {
		cursor, err := s.db.Client().Database("admin").Aggregate(s.ctx, bson.A{
			bson.D{{Key: "$currentOp", Value: bson.D{}}},
			bson.D{{Key: "$match", Value: bson.D{{Key: "command.comment", Value: s.comment()}}}},
			bson.D{{Key: "$limit", Value: 1}},
		})
		if err != nil {
			return fmt.Errorf("look what MongoDB is at: %w", err)
		}
		some := cursor.Next(s.ctx)
		err = errors.Join(cursor.Err(), cursor.Close(s.ctx))
		if err != nil {
			return fmt.Errorf("look what MongoDB is at: %w", err)
		}
		if !some {
			return nil
		}
		s.note("MongoDB is still at work on what an earlier run has sent")
		if err := machine.Pause(s.ctx, retryEvery); err != nil {
			return err
		}
	}
}

// found returns what the new collection has of a document's readings, by _id.
func (s *series) found(f filled) (map[bson.ObjectID][]bson.Raw, error) {
	out := make(map[bson.ObjectID][]bson.Raw, len(f.readings))
	if len(f.readings) == 0 {
		return out, nil
	}
	oldest, newest := f.readings[0].time, f.readings[0].time
	for _, r := range f.readings {
		out[r.id] = nil
		oldest, newest = min(oldest, r.time), max(newest, r.time)
	}
	cursor, err := s.collection(s.cfg.Stream).Find(s.ctx, bson.D{
		{Key: sensorKey + ".id", Value: f.part.sensor},
		{Key: store.TimeKey, Value: bson.D{{Key: "$gte", Value: bson.DateTime(oldest)}, {Key: "$lte", Value: bson.DateTime(newest)}}},
	})
	if err != nil {
		return nil, fmt.Errorf("look for readings of sensor %q: %w", f.part.sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(s.ctx))
	for cursor.Next(s.ctx) {
		id, ok := cursor.Current.Lookup("_id").ObjectIDOK()
		if !ok {
			continue
		}
		// Others are what daemons have stored meanwhile.
		if have, ours := out[id]; ours {
			out[id] = append(have, append(bson.Raw(nil), cursor.Current...))
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("look for readings of sensor %q: %w", f.part.sensor, err)
	}
	return out, nil
}

// An oldWalk iterates over a collection of bucket documents.
type oldWalk struct {
	s      *series
	name   string
	cursor *mongo.Cursor
}

// walk begins after an _id; nil: at the first.
func (s *series) walk(name string, behind bson.Raw) (*oldWalk, error) {
	filter := bson.D{}
	if behind != nil {
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: behind}}}}
	}
	cursor, err := s.collection(name).Find(s.ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetNoCursorTimeout(true))
	if err != nil {
		return nil, fmt.Errorf("read collection %q: %w", name, err)
	}
	return &oldWalk{s: s, name: name, cursor: cursor}, nil
}

func (w *oldWalk) close() { _ = w.cursor.Close(context.WithoutCancel(w.s.ctx)) }

// piece returns the next documents, none at the end.
func (w *oldWalk) piece(most int64) (*piece, error) {
	p := &piece{}
	for p.bytes < most && w.cursor.Next(w.s.ctx) {
		raw := append(bson.Raw(nil), w.cursor.Current...)
		if err := w.s.throttle.wait(w.s.ctx, int64(len(raw))); err != nil {
			return nil, err
		}
		f, err := w.s.filledFrom(raw)
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, f)
		p.bytes += int64(len(raw))
		p.last = bson.Raw(f.part.document())
	}
	if err := w.cursor.Err(); err != nil {
		return nil, fmt.Errorf("read collection %q: %w", w.name, err)
	}
	return p, nil
}

// filledFrom reads an old document. A tombstone has no readings. What has
// expired would be removed from the new collection sooner or later.
func (s *series) filledFrom(raw bson.Raw) (filled, error) {
	part, err := readPart(raw)
	if err != nil {
		return filled{}, err
	}
	f := filled{part: part.id}
	all, err := seriesReadings(&part)
	if err != nil {
		return filled{}, err
	}
	horizon, expires := s.horizon()
	for _, r := range all {
		if expires && r.time < horizon {
			f.expired++
			continue
		}
		f.readings = append(f.readings, r)
	}
	return f, nil
}

package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

// An hour of a sensor is what a copy is made of: every granularity divides it.
type hour struct {
	sensor string
	start  int64 // milliseconds since the epoch
}

func (h hour) compare(b hour) int {
	switch {
	case h.sensor != b.sensor && h.sensor < b.sensor, h.sensor == b.sensor && h.start < b.start:
		return -1
	case h == b:
		return 0
	default:
		return 1
	}
}

func (h hour) end() int64 { return h.start + time.Hour.Milliseconds() }

// counts goes over how many readings each hour has, in the order of sensor and
// time.
type counts struct {
	cursor *mongo.Cursor
	at     hour
	n      int64 // 0: there are no more
}

func (c *counts) next(ctx context.Context) error {
	c.n = 0
	if !c.cursor.Next(ctx) {
		if err := c.cursor.Err(); err != nil {
			return fmt.Errorf("count readings: %w", err)
		}
		return nil
	}
	var one struct {
		ID struct {
			S string        `bson:"s"`
			H bson.DateTime `bson:"h"`
		} `bson:"_id"`
		N int64 `bson:"n"`
	}
	if err := bson.Unmarshal(c.cursor.Current, &one); err != nil {
		return fmt.Errorf("count readings: %w", err)
	}
	c.at, c.n = hour{one.ID.S, int64(one.ID.H)}, one.N
	return nil
}

func (c *counts) close() { _ = c.cursor.Close(context.Background()) }

// oldestHour is when the first hour begins that may have readings which have
// not expired.
func (s *series) oldestHour() bson.DateTime {
	at, _ := s.horizon()
	return bson.DateTime(store.WindowStart(at, time.Hour))
}

func (s *series) sourceCounts() (*counts, error) {
	return s.counts(s.cfg.Stream, "$sensor.id", store.TimeKey, 1)
}

func (s *series) copyCounts() (*counts, error) {
	return s.counts(newName(s.cfg.Stream), "$_id.s", "bucketStart", "$count")
}

// counts counts by sensor and hour; n is what each document counts for.
func (s *series) counts(name, sensor, at string, n any) (*counts, error) {
	cursor, err := s.collection(name).Aggregate(s.ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: at, Value: bson.D{{Key: "$gte", Value: s.oldestHour()}}}}}},
		{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: bson.D{{Key: "s", Value: sensor}, {Key: "h", Value: bson.D{{Key: "$dateTrunc", Value: bson.D{{Key: "date", Value: "$" + at}, {Key: "unit", Value: "hour"}}}}}}},
			{Key: "n", Value: bson.D{{Key: "$sum", Value: n}}},
		}}},
		{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
	}, options.Aggregate().SetAllowDiskUse(true).SetBatchSize(1000))
	if err != nil {
		return nil, fmt.Errorf("count readings of collection %q: %w", name, err)
	}
	c := &counts{cursor: cursor}
	if err := c.next(s.ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// total adds up how many readings a collection has.
func (s *series) total(open func() (*counts, error)) (n int64, err error) {
	c, err := open()
	if err != nil {
		return 0, err
	}
	defer c.close()
	for c.n > 0 {
		n += c.n
		if err := c.next(s.ctx); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *series) countSource() (int64, error) { return s.total(s.sourceCounts) }
func (s *series) countCopy() (int64, error)   { return s.total(s.copyCounts) }

// round makes every hour anew that has another number of readings in the copy
// than in the source, and returns how many these were.
func (s *series) round() (remade int64, err error) {
	s.result.Rounds++
	source, err := s.sourceCounts()
	if err != nil {
		return 0, err
	}
	defer source.close()
	copied, err := s.copyCounts()
	if err != nil {
		return 0, err
	}
	defer copied.close()
	s.progress = Progress{Phase: s.job.state.Phase, Note: fmt.Sprintf("round %d", s.result.Rounds), Total: s.size(s.cfg.Stream)}
	making := &making{s: s}
	for source.n > 0 || copied.n > 0 {
		order := order(source, copied)
		if order != 0 || source.n != copied.n {
			at := source.at
			if order > 0 {
				at = copied.at
			}
			if order > 0 || order == 0 && source.n < copied.n {
				if err := s.mayShrink(at); err != nil {
					return remade, err
				}
			}
			remade++
			if err := making.add(at, order >= 0); err != nil {
				return remade, err
			}
		}
		if order <= 0 {
			if err := source.next(s.ctx); err != nil {
				return remade, err
			}
		}
		if order >= 0 {
			if err := copied.next(s.ctx); err != nil {
				return remade, err
			}
		}
	}
	err = making.finish()
	s.result.Remade += remade
	return remade, err
}

var errShrunk = errors.New("the time-series collection has fewer readings than its copy, and they have not expired; nothing was removed from the copy. " +
	"If they were deleted on purpose, give the copy up with --abort and begin anew")

// mayShrink refuses to remove a reading from the copy but for its age: nothing else
// removes one from a time series. The copy may have a reading twice, though: MongoDB moves
// buckets within an index as they grow, and a query that meets one again shows its
// readings again.
func (s *series) mayShrink(at hour) error {
	if s.expires > 0 && at.start <= time.Now().Add(-s.expires).UnixMilli() {
		return nil
	}
	readings, _, err := s.readHour(at)
	if err != nil {
		return err
	}
	there, err := checksums(readings)
	if err != nil {
		return err
	}
	documents, err := s.copied(at)
	if err != nil {
		return err
	}
	have, err := checksums(documents)
	if err != nil {
		return err
	}
	for sum := range have {
		if there[sum] == 0 {
			return fmt.Errorf("sensor %q, hour of %s: %w", at.sensor, time.UnixMilli(at.start).UTC().Format(time.RFC3339), errShrunk)
		}
	}
	return nil
}

// order says which of the two comes first.
func order(a, b *counts) int {
	switch {
	case b.n == 0:
		return -1
	case a.n == 0:
		return 1
	default:
		return a.at.compare(b.at)
	}
}

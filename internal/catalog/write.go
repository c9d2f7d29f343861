package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	batchDelay   = 500 * time.Millisecond // entries are written together
	bulkSize     = 1000
	writeTimeout = 10 * time.Second
	// writeThroughTimeout is how long readings wait for the catalog at most. After a failure, they
	// do not wait for writeThroughRetry.
	writeThroughTimeout = 2 * time.Second
	writeThroughRetry   = 10 * time.Second
	// After a bulk write, the writer pauses for this many times its duration, so that MongoDB has
	// time for readings.
	pauseFactor = 3
	maxPause    = 2 * time.Second
	maxBackoff  = 10 * time.Second // longest pause after failures
)

// Store is what lanes write to.
type Store interface {
	Write(ctx context.Context, writes []*batch.Pending)
}

// A Writer is a Store that writes new entries to the catalog before it stores readings.
type Writer struct {
	stream *Stream
	store  Store
}

// Wrap returns a store that writes to the catalog, and then to the given store. If s is nil, it
// returns the given store.
func (s *Stream) Wrap(to Store) Store {
	if s == nil {
		return to
	}
	return &Writer{s, to}
}

// Write implements Store. If the catalog cannot be written, the readings are stored anyway.
func (w *Writer) Write(ctx context.Context, writes []*batch.Pending) {
	if missing := w.stream.missing(writes); len(missing) > 0 {
		w.stream.enter(ctx, missing)
	}
	w.store.Write(ctx, writes)
}

// missing returns the entries of the writes that are not known to be in the catalog.
func (s *Stream) missing(writes []*batch.Pending) (out map[uint64]*entry) {
	for _, p := range writes {
		for i := 0; i < len(p.Rows); {
			row := p.Rows[i].Row()
			e := entry{p.Rows[i].Batch.Series(row), p.Rows[i].Batch.Shape(row), row.Time, row.Time}
			for i++; i < len(p.Rows); i++ { // usually all rows have the same
				b, next := p.Rows[i].Batch, p.Rows[i].Row()
				if b.Series(next) != e.series || b.Shape(next) != e.shape {
					break
				}
				e.first, e.last = min(e.first, next.Time), max(e.last, next.Time)
			}
			key := s.known.key(e.series, e.shape)
			if s.known.covers(key, e.first, e.last) {
				continue
			}
			if out == nil {
				out = make(map[uint64]*entry)
			}
			if before := out[key]; before != nil {
				before.first, before.last = min(before.first, e.first), max(before.last, e.last)
			} else {
				out[key] = &e
			}
		}
	}
	return out
}

// enter writes entries before their readings are stored; if that fails, it queues them for the
// background writer.
func (s *Stream) enter(ctx context.Context, missing map[uint64]*entry) {
	if time.Now().UnixNano() >= s.writeThroughAfter.Load() {
		ctx, cancel := context.WithTimeout(ctx, writeThroughTimeout)
		defer cancel()
		err := s.bulk(ctx, missing)
		if err == nil {
			return
		}
		s.writeThroughAfter.Store(time.Now().Add(writeThroughRetry).UnixNano())
		s.failed(err)
	}
	for key, e := range missing {
		if !s.note(key, *e) {
			s.lost.Store(true)
		}
	}
}

// logEvery is the minimum time between two logs of failures.
const logEvery = int64(time.Minute)

// failed counts a failure, and logs it unless one was logged recently.
func (s *Stream) failed(err error) {
	s.catalog.metrics.failed.WithLabelValues(s.name).Inc()
	now, before := time.Now().UnixNano(), s.logged.Load()
	if now-before < logEvery || !s.logged.CompareAndSwap(before, now) {
		return
	}
	s.log.Warn("the catalog of sensors cannot be written or read; readings are stored all the same, and it is tried again", "err", err)
}

// bulk writes entries.
func (s *Stream) bulk(ctx context.Context, entries map[uint64]*entry) error {
	fresh, err := s.loadKnown(ctx, entries)
	if err != nil {
		return err
	}
	now := time.Now()
	// Sorted, so that a sensor's sets are written in the order of their readings.
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b uint64) int { return cmp.Compare(entries[a].last, entries[b].last) })
	keys = slices.DeleteFunc(keys, func(key uint64) bool { return s.known.covers(key, entries[key].first, entries[key].last) })
	facts := make([]sensorUpdate, len(keys))
	for i, key := range keys {
		facts[i] = entries[key].sensorUpdate(now)
		facts[i].fresh = fresh[facts[i].sensor]
	}
	for begin := 0; begin < len(facts); begin += bulkSize {
		end := min(begin+bulkSize, len(facts))
		if err := s.record(ctx, facts[begin:end]); err != nil {
			return err
		}
		for i := begin; i < end; i++ {
			s.known.put(keys[i], facts[i].span)
		}
	}
	return nil
}

// loadKnown reads which entries are in the catalog already, for example after a restart. That
// costs a tenth of writing them. It returns the sensors that the catalog does not have, and that
// have one entry.
func (s *Stream) loadKnown(ctx context.Context, entries map[uint64]*entry) (fresh map[string]bool, err error) {
	of := make(map[string][]uint64, len(entries)) // keys by sensor
	ids := make([]string, 0, len(entries))
	for key, e := range entries {
		if of[e.series.Sensor] == nil {
			ids = append(ids, e.series.Sensor)
		}
		of[e.series.Sensor] = append(of[e.series.Sensor], key)
	}
	for doc, err := range s.find(ctx, byID(ids), options.Find().SetProjection(bson.D{{Key: "pairs", Value: 0}})) {
		if err != nil {
			return nil, err
		}
		one, err := decode(doc)
		if err != nil {
			return nil, err
		}
		for _, key := range of[one.ID] {
			if w, has := entries[key].in(&one); has {
				s.known.put(key, w)
			}
		}
		delete(of, one.ID)
	}
	fresh = make(map[string]bool, len(of))
	for id, keys := range of {
		fresh[id] = len(keys) == 1
	}
	return fresh, nil
}

// in returns the time range of the entry's tags in a sensor, if the sensor has the entry's tags
// and fields.
func (e *entry) in(s *telemetry.Sensor) (w written, has bool) {
	for _, field := range e.shape.Fields {
		names := s.Fields
		if field.Kind == telemetry.Text {
			names = s.Texts
		}
		if _, has := slices.BinarySearch(names, field.Name); !has {
			return w, false
		}
	}
	for _, set := range s.Sets {
		if slices.Equal(set.Tags, e.series.Tags) {
			return written{minutes(set.From), minutes(set.To)}, true
		}
	}
	return w, false
}

// record writes updates. Fresh sensors are inserted, which costs far less. It skips those that
// MongoDB refuses because of their content.
func (s *Stream) record(ctx context.Context, facts []sensorUpdate) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	now := time.Now()
	write := func(insert bool) error {
		models := make([]mongo.WriteModel, len(facts))
		for i := range facts {
			if insert && facts[i].fresh {
				models[i] = mongo.NewInsertOneModel().SetDocument(facts[i].document(now))
			} else {
				models[i] = facts[i].update(now)
			}
		}
		_, err := s.collection.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		return err //nolint:wrapcheck // wrapped below
	}
	err := write(true)
	var refused mongo.BulkWriteException
	const duplicateKey = 11000 // another daemon added the sensor at the same time
	if store.HasCode(err, duplicateKey) {
		err = write(false)
	}
	if errors.As(err, &refused) && refused.WriteConcernError == nil && !store.Transient(err) && len(refused.WriteErrors) > 0 && !slices.ContainsFunc(refused.WriteErrors, fits) {
		s.log.Error("MongoDB refuses entries of the catalog of sensors; queries by tag do not find them", "entries", len(refused.WriteErrors), "err", refused.WriteErrors[0].Message)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("write the catalog of sensors: %w", err)
	}
	s.catalog.metrics.written.WithLabelValues(s.name).Add(float64(len(facts)))
	return nil
}

// fits reports whether an error is not that the document is too large.
func fits(e mongo.BulkWriteError) bool {
	const objectTooLarge, tooLarge, resultTooLarge = 10334, 17419, 17420
	return !e.HasErrorCode(objectTooLarge) && !e.HasErrorCode(tooLarge) && !e.HasErrorCode(resultTooLarge)
}

// prepare creates the collection and its indexes.
func (s *Stream) prepare(ctx context.Context) error {
	if s.prepared.Load() {
		return nil
	}
	c := store.Collection{Database: s.collection.Database(), Name: s.collection.Name()}
	if err := c.CreateIndex(ctx, pairsIndex, bson.D{{Key: "pairs", Value: 1}, {Key: "_id", Value: 1}}); err != nil {
		return fmt.Errorf("create the index of the catalog of sensors: %w", err)
	}
	if err := c.EnsureExpiry(ctx, "to", time.Duration(s.retention.Load())); err != nil {
		return fmt.Errorf("set the retention of the catalog of sensors: %w", err)
	}
	s.prepared.Store(true)
	return nil
}

// write writes unwritten entries until ctx ends.
func (s *Stream) write(ctx context.Context) {
	var pause time.Duration
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for s.waiting() > 0 || !s.prepared.Load() {
			if machine.Pause(ctx, max(pause, batchDelay)) != nil {
				return
			}
			began := time.Now()
			if err := s.writeSome(ctx); err != nil {
				if ctx.Err() != nil {
					return
				}
				pause = min(max(2*pause, batchDelay), maxBackoff)
				s.failed(err)
				continue
			}
			s.writeThroughAfter.Store(0)
			pause = min(pauseFactor*time.Since(began), maxPause)
		}
		if s.lost.Swap(false) {
			s.Rebuild()
		}
	}
}

// writeSome writes some of the entries.
func (s *Stream) writeSome(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	some := make(map[uint64]*entry)
	s.mu.Lock()
	for key, e := range s.unwritten {
		one := *e // a copy, because it may change meanwhile
		if some[key] = &one; len(some) == bulkSize {
			break
		}
	}
	s.mu.Unlock()
	if len(some) == 0 {
		return s.prepare(ctx)
	}
	if err := s.bulk(ctx, some); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, wrote := range some {
		if now := s.unwritten[key]; now != nil && now.first >= wrote.first && now.last <= wrote.last {
			delete(s.unwritten, key)
		}
	}
	return nil
}

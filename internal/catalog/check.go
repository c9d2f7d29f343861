package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// state is the content of a stream's document with the empty _id.
type state struct {
	// Complete says that all sensors with readings are in the catalog: all were checked once, and
	// new sensors are added before their readings are stored.
	Complete bool      `bson:"complete"`
	Checked  time.Time `bson:"checked"` // when the last check ended
	// The check in progress: the daemon that runs it, until when it may not be taken over, and the
	// last sensor that was checked.
	By    string    `bson:"by"`
	Until time.Time `bson:"until"`
	After string    `bson:"after"`
}

const (
	checkEvery    = 24 * time.Hour // daemons of earlier releases do not add sensors
	checkInterval = 10 * time.Second
	lease         = time.Minute
	// releaseTimeout bounds by how much releasing the lease delays the end of the daemon.
	releaseTimeout = 2 * time.Second
	checkPageSize  = 200 // sensors
	checkTimeout   = 30 * time.Second
	// After each page, a check pauses for this many times the page's duration, so that it uses one
	// connection for at most an eighth of the time. While the catalog is incomplete, it uses half.
	checkPauseFactor = 7
	// removeAfter is how long a sensor without readings is kept: its first reading may not be
	// stored yet.
	removeAfter      = 24 * time.Hour
	describeReadings = 16                  // number of readings that determine a sensor's fields
	endOfTime        = 253_402_300_800_000 // of the year 9999, in milliseconds since 1970
)

// Complete returns nil if the catalog has all sensors with readings in MongoDB, and otherwise an
// error with the progress.
func (s *Stream) Complete() error {
	now := s.state.Load()
	if now.Complete && !s.rebuildPending.Load() && !s.lost.Load() {
		return nil
	}
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "catalog_incomplete", RetryAfter: 5 * time.Second,
		Message: fmt.Sprintf("the catalog of sensors of stream %s is being built from stored readings, up to sensor %s now; "+
			"ask again later, or list sensors without tags", s.name, telemetry.Quote([]byte(now.After))),
	}
}

// Rebuild marks the catalog as incomplete until it has been checked against all stored readings.
func (s *Stream) Rebuild() {
	s.rebuildPending.Store(true)
	notify(s.rebuild)
}

// check compares the catalog with the stored readings: when the daemon starts, once a day, after
// Rebuild, and if the catalog was dropped. Only one of several daemons does it.
func (s *Stream) check(ctx context.Context) {
	defer s.release(ctx)
	began := time.Now()
	for {
		if err := s.checkOnce(ctx, began); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		wait := checkInterval
		if s.Complete() != nil {
			wait = time.Second // another daemon may be building it
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-s.rebuild:
		}
	}
}

// checkOnce reads the state, and runs a check if it is due; began is when this daemon started.
func (s *Stream) checkOnce(ctx context.Context, began time.Time) error {
	now, err := s.readState(ctx)
	if err != nil {
		return err
	}
	lacking := s.rebuildPending.Load()
	if lacking {
		now.Complete, now.After = false, ""
	}
	due := !now.Complete || now.Checked.Before(began) || time.Since(now.Checked) > checkEvery
	if !due || now.By != s.catalog.cfg.Daemon && time.Now().Before(now.Until) {
		return nil
	}
	if now.Complete {
		now.After = ""
	}
	if taken, err := s.save(ctx, now, lease); err != nil || !taken {
		return err
	}
	if lacking {
		s.rebuildPending.Store(false) // the stored state shows it now
	}
	return s.walk(ctx, now)
}

// readState reads the stored state. If there is none, the catalog is new or was dropped.
func (s *Stream) readState(ctx context.Context) (now state, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = s.collection.FindOne(ctx, bson.D{{Key: "_id", Value: ""}}).Decode(&now)
	if errors.Is(err, mongo.ErrNoDocuments) {
		if s.state.Load().Complete {
			s.log.Warn("the catalog of sensors was dropped; it is built again")
		}
		s.known.forgetAll()
		s.prepared.Store(false)
		err = s.prepare(ctx)
	}
	if err != nil {
		return now, fmt.Errorf("read the state of the catalog of sensors: %w", err)
	}
	s.state.Store(&now)
	return now, nil
}

// release lets other daemons continue a check of this one at once, instead of when its lease ends.
func (s *Stream) release(ctx context.Context) {
	now := s.state.Load()
	if now.By != s.catalog.cfg.Daemon || time.Now().After(now.Until) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// The lease may be newer than the one in now, if its renewal was canceled.
	_, err := s.collection.UpdateOne(ctx, bson.D{{Key: "_id", Value: ""}, {Key: "by", Value: now.By}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "until", Value: time.Now().Truncate(time.Millisecond)}}}})
	if err != nil {
		s.failed(fmt.Errorf("end the lease of a check of the catalog of sensors: %w", err))
	}
}

// save replaces the state that this daemon last read or stored, and makes it the one that runs the
// check, for the time of the lease. It returns false if another daemon has changed the state, or
// the catalog was dropped.
func (s *Stream) save(ctx context.Context, next state, lease time.Duration) (bool, error) {
	last := s.state.Load()
	next.By, next.Until = s.catalog.cfg.Daemon, time.Now().Add(lease).Truncate(time.Millisecond)
	r, err := s.collection.UpdateOne(ctx, bson.D{{Key: "_id", Value: ""}, {Key: "by", Value: last.By}, {Key: "until", Value: last.Until}},
		bson.D{{Key: "$set", Value: next}}, options.UpdateOne().SetUpsert(last.By == ""))
	if mongo.IsDuplicateKeyError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write the state of the catalog of sensors: %w", err)
	}
	if r.MatchedCount+r.UpsertedCount == 0 {
		return false, nil
	}
	s.state.Store(&next)
	return true, nil
}

// walk checks all sensors after now.After.
func (s *Stream) walk(ctx context.Context, now state) error {
	began, total := time.Now(), 0
	if !now.Complete {
		s.log.Info("building the catalog of sensors from stored readings", "after", now.After)
	}
	logged := began
	for {
		begin := time.Now()
		last, n, added, err := s.step(ctx, now.After)
		if err != nil {
			return err
		}
		total += added
		if n < checkPageSize {
			break
		}
		now.After = last
		if mine, err := s.save(ctx, now, lease); err != nil || !mine {
			return err
		}
		pause := time.Since(begin)
		if now.Complete {
			pause *= checkPauseFactor
		}
		if time.Since(logged) > checkInterval {
			logged = time.Now()
			s.log.Info("checking the catalog of sensors", "after", now.After, "added", total)
		}
		if machine.Pause(ctx, min(pause, lease/4)) != nil {
			return nil //nolint:nilerr // the daemon is stopping
		}
	}
	now.Complete, now.Checked, now.After = true, time.Now(), ""
	if mine, err := s.save(ctx, now, lease); err != nil || !mine {
		return err
	}
	if total > 0 {
		s.log.Info("the catalog of sensors is complete", "added", total, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// step checks a page of sensors after a given one, and adds those that are missing in the catalog.
// It returns the last sensor, and the numbers of sensors checked and added.
func (s *Stream) step(ctx context.Context, after string) (last string, n, added int, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var ids []string
	last = after
	for seen, err := range s.Source.Sensors(ctx, telemetry.SensorQuery{After: after, Limit: checkPageSize}) {
		if err != nil {
			return "", 0, 0, err
		}
		ids = append(ids, seen.Sensor)
		last = seen.Sensor
	}
	if len(ids) > 0 {
		absent, err := s.absent(ctx, ids)
		if err != nil {
			return "", 0, 0, err
		}
		for id := range absent {
			facts, found, err := s.describe(ctx, id)
			if err == nil && found {
				err = s.record(ctx, facts)
			}
			if err != nil {
				return "", 0, 0, fmt.Errorf("enter sensor %q: %w", id, err)
			}
		}
		added = len(absent)
	}
	end := last
	if len(ids) < checkPageSize {
		end = ""
	}
	return last, len(ids), added, s.removeEmpty(ctx, after, end, ids)
}

// removeEmpty removes the sensors between two ids that have no readings; an empty to means no
// limit. present are the sensors with readings.
func (s *Stream) removeEmpty(ctx context.Context, after, to string, present []string) error {
	between := bson.D{{Key: "$gt", Value: after}}
	if to != "" {
		between = append(between, bson.E{Key: "$lte", Value: to})
	}
	if len(present) > 0 {
		between = append(between, bson.E{Key: "$nin", Value: present})
	}
	empty := bson.D{
		{Key: "_id", Value: between},
		{Key: "written", Value: bson.D{{Key: "$lt", Value: bson.NewDateTimeFromTime(time.Now().Add(-removeAfter))}}},
	}
	var removed []uint64
	for doc, err := range s.find(ctx, empty, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})) {
		if err != nil {
			return err
		}
		removed = append(removed, batch.SeriesHash(s.name, doc.Lookup("_id").StringValue()))
	}
	if len(removed) == 0 {
		return nil
	}
	_, err := s.collection.DeleteMany(ctx, empty)
	s.known.forget(removed) // readings of a bucket that is set aside may be stored later
	if err != nil {
		return fmt.Errorf("remove sensors without readings from the catalog: %w", err)
	}
	return nil
}

// describe derives updates from a sensor's first and newest readings. Tags that it had only in
// between are not found.
func (s *Stream) describe(ctx context.Context, sensor string) (facts []sensorUpdate, found bool, err error) {
	hash, now := batch.SeriesHash(s.name, sensor), time.Now()
	add := func(r *telemetry.Reading, from int64) {
		ms := r.Time.UnixMilli()
		f := sensorUpdate{sensor: sensor, tags: r.Tags, span: spanOf(hash, min(from, ms), ms, now)}
		for _, field := range r.Fields {
			f.add(field.Name, field.Value.Kind())
		}
		facts = append(facts, f)
	}
	n := 0
	for r, err := range s.Source.Readings(ctx, telemetry.Query{Sensor: sensor, To: endOfTime, Limit: describeReadings}) {
		if err != nil {
			return nil, false, err
		}
		add(&r, r.Time.UnixMilli())
		if n++; n == describeReadings {
			break
		}
	}
	newest, found, err := s.Source.Latest(ctx, sensor, nil)
	if err != nil || !found {
		return nil, false, err
	}
	first := newest.Time.UnixMilli()
	if n > 0 {
		first = int64(facts[0].span.from) * minute // it is not known since when it has these tags
	}
	add(&newest, first)
	return facts, true, nil
}

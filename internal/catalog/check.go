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

// state is a stream's document with the empty _id.
type state struct {
	// Complete says that all sensors with readings are in the catalog: all were compared
	// once, and new ones enter before their readings are stored.
	Complete bool      `bson:"complete"`
	Checked  time.Time `bson:"checked"` // when the last check ended
	// A check that is in progress: by which daemon, until when others leave it alone, and
	// the last sensor that was compared.
	By    string    `bson:"by"`
	Until time.Time `bson:"until"`
	After string    `bson:"after"`
}

const (
	checkEvery    = 24 * time.Hour // daemons of earlier releases enter no sensors
	checkInterval = 10 * time.Second
	lease         = time.Minute
	checkPageSize = 200 // sensors
	checkTimeout  = 30 * time.Second
	// A check pauses for as many times its own duration, so that it takes at most an eighth
	// of the time of one connection. While the catalog is incomplete it takes half.
	checkPauseFactor = 7
	// removeAfter is how long a sensor without readings stays: its first reading may still
	// be on its way.
	removeAfter      = 24 * time.Hour
	describeReadings = 16                  // readings that tell a sensor's fields
	endOfTime        = 253_402_300_800_000 // of the year 9999, in milliseconds since 1970
)

// Complete returns nil if the catalog has all sensors with readings in MongoDB, and
// otherwise an error that says how far it is.
func (s *Stream) Complete() error {
	now := s.state.Load()
	if now.Complete && !s.rebuildPending.Load() {
		return nil
	}
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "catalog_incomplete", RetryAfter: 5 * time.Second,
		Message: fmt.Sprintf("the catalog of sensors of stream %s is being built from stored readings, up to sensor %s now; "+
			"ask again later, or list sensors without tags", s.name, telemetry.Quote([]byte(now.After))),
	}
}

// Rebuild makes the catalog incomplete until it was compared with all stored readings.
func (s *Stream) Rebuild() {
	s.rebuildPending.Store(true)
	notify(s.rebuild)
}

// check compares the catalog with the stored readings: when the daemon starts, once a
// day, after Rebuild, and if the catalog was dropped. Of several daemons one does it.
func (s *Stream) check(ctx context.Context) {
	if !s.ready(ctx) {
		return
	}
	began := time.Now()
	for {
		if err := s.checkOnce(ctx, began); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		timer := time.NewTimer(checkInterval)
		if s.Complete() != nil {
			timer.Reset(time.Second) // another daemon may be at it
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.rebuild:
			timer.Stop()
		}
	}
}

// checkOnce looks at the state, and checks if it is time; began is when this daemon did.
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
	if !due {
		return nil
	}
	taken, err := s.claimCheck(ctx, now)
	if err != nil || !taken {
		return err
	}
	s.set(*now)
	if lacking {
		s.rebuildPending.Store(false) // the state says so from here on
	}
	return s.walk(ctx, now)
}

// set makes a state the one that Complete sees.
func (s *Stream) set(now state) { s.state.Store(&now) }

// readState reads the state. If there is none, the catalog is new, or was dropped.
func (s *Stream) readState(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	now := &state{}
	err := s.collection.FindOne(ctx, bson.D{{Key: "_id", Value: ""}}).Decode(now)
	if errors.Is(err, mongo.ErrNoDocuments) {
		if s.state.Load().Complete {
			s.log.Warn("the catalog of sensors was dropped; it is built again")
		}
		s.known.forgetAll()
		s.prepared.Store(false)
		err = s.prepare(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the catalog of sensors: %w", err)
	}
	s.set(*now)
	return now, nil
}

// claimCheck makes this daemon the one that checks; false if another one does.
func (s *Stream) claimCheck(ctx context.Context, now *state) (bool, error) {
	if now.By != s.catalog.cfg.Daemon && time.Now().Before(now.Until) {
		return false, nil
	}
	filter := bson.D{{Key: "_id", Value: ""}}
	if now.By != "" {
		filter = append(filter, bson.E{Key: "by", Value: now.By}, bson.E{Key: "until", Value: now.Until})
	}
	next := *now
	next.By, next.Until = s.catalog.cfg.Daemon, time.Now().Add(lease).Truncate(time.Millisecond)
	if now.Complete {
		next.After = ""
	}
	_, err := s.collection.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: next}}, options.UpdateOne().SetUpsert(now.By == ""))
	if mongo.IsDuplicateKeyError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("begin a check of the catalog of sensors: %w", err)
	}
	*now = next
	return true, nil
}

// save writes the state; false if another daemon has taken the check over, or the catalog
// was dropped.
func (s *Stream) save(ctx context.Context, now *state) (bool, error) {
	now.Until = time.Now().Add(lease).Truncate(time.Millisecond)
	r, err := s.collection.UpdateOne(ctx, bson.D{{Key: "_id", Value: ""}, {Key: "by", Value: now.By}}, bson.D{{Key: "$set", Value: now}})
	if err != nil {
		return false, fmt.Errorf("write the state of the catalog of sensors: %w", err)
	}
	s.set(*now)
	return r.MatchedCount > 0, nil
}

// walk compares all sensors from now.After on.
func (s *Stream) walk(ctx context.Context, now *state) error {
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
		if mine, err := s.save(ctx, now); err != nil || !mine {
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
			return nil //nolint:nilerr // the daemon ends
		}
	}
	now.Complete, now.Checked, now.After = true, time.Now(), ""
	if _, err := s.save(ctx, now); err != nil {
		return err
	}
	if total > 0 {
		s.log.Info("the catalog of sensors is complete", "added", total, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// step compares some sensors behind one, and enters those that the catalog does not have.
// It returns the last one and how many there were.
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
			if err := s.restore(ctx, id); err != nil {
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

// removeEmpty removes sensors without readings between two ids, the second of which may be
// empty; present are those with readings.
func (s *Stream) removeEmpty(ctx context.Context, after, to string, present []string) error {
	between := bson.D{{Key: "$gt", Value: after}}
	if to != "" {
		between = append(between, bson.E{Key: "$lte", Value: to})
	}
	if len(present) > 0 {
		between = append(between, bson.E{Key: "$nin", Value: present})
	}
	_, err := s.collection.DeleteMany(ctx, bson.D{
		{Key: "_id", Value: between},
		{Key: "written", Value: bson.D{{Key: "$lt", Value: bson.NewDateTimeFromTime(time.Now().Add(-removeAfter))}}},
	})
	if err != nil {
		return fmt.Errorf("remove sensors without readings from the catalog: %w", err)
	}
	return nil
}

// describe returns what a sensor's first and newest readings say about it. Tags that it
// had only in between are not found.
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
		first = int64(facts[0].span.from) * minute // since when it has these tags is not known
	}
	add(&newest, first)
	return facts, true, nil
}

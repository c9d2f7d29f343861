package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A summary uses a step of a rollup instead of the readings that it counts, if all of them belong
// to one step of the summary. If some readings are not counted yet, it depends on whether the
// counted ones have expired:
//
//	            all is counted   │ something is not, the rest is there │ something is not, the rest has expired
//	rollup   ███████████████████ │                                     │ ███████████████
//	readings                     │ ███████████████████████████████████ │                ████ of other parts
type rollupOverlay struct {
	sensor string
	every  int64
	left   []*rollupStep          // steps that were not added to the summary yet, in order
	steps  map[int64]*overlayStep // by start
}

// overlayStep is a step that is used from a rollup.
type overlayStep struct {
	*rollupStep

	day   int64
	mixed bool       // parts that it does not count are read in addition
	kept  [][2]int64 // of a mixed step: first and last times of the existing parts that it counts
}

// keeps reports whether a part that the step counts may have a reading at ms.
func (o *overlayStep) keeps(ms int64) bool {
	return slices.ContainsFunc(o.kept, func(part [2]int64) bool { return part[0] <= ms && ms <= part[1] })
}

// hides reports whether readings at ms are replaced by a step. key is their part's; empty: it
// is unknown, or they are not stored.
func (s *rollupOverlay) hides(key string, ms int64) bool {
	if len(s.steps) == 0 {
		return false
	}
	step := s.steps[ms-ms%s.every]
	if step == nil {
		return false
	}
	_, counts := step.sources[key]
	return !step.mixed || counts || key == "" && step.keeps(ms)
}

// coverage returns whether some, and whether all, readings of a part are replaced.
func (s *rollupOverlay) coverage(key string, first, last int64) (some, all bool) {
	if len(s.steps) == 0 {
		return false, false
	}
	all = true
	for at := first - first%s.every; at <= last; at += s.every {
		hidden := s.hides(key, at)
		some, all = some || hidden, all && hidden
	}
	return some, all
}

// add adds the steps that have readings before a time to a summary.
func (s *rollupOverlay) add(to *store.Steps, before int64) {
	for len(s.left) > 0 && s.left[0].first < before {
		to.AddStatistics(s.left[0].first, store.Sums{Count: s.left[0].count, Fields: s.left[0].fields})
		s.left = s.left[1:]
	}
}

// visible yields the readings that are not replaced.
func (s *rollupOverlay) visible(readings iter.Seq2[telemetry.Reading, error]) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		for r, err := range readings {
			if err == nil && s.hides("", r.Time.UnixMilli()) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// newRollupOverlay finds the steps of rollups that a summary can use.
func (s *Store) newRollupOverlay(ctx context.Context, q telemetry.SummaryQuery) (*rollupOverlay, error) {
	out := &rollupOverlay{sensor: q.Sensor, every: s.Rollup.Milliseconds(), steps: make(map[int64]*overlayStep)}
	if s.Rollup == 0 || q.From >= q.To {
		return out, nil
	}
	days, deletions, err := s.rollupDays(ctx, q.Sensor, q.From, q.To)
	if err != nil {
		return nil, err
	}
	steps := store.NewSteps(q)
	for _, day := range days {
		for _, step := range day.steps {
			if day.deletions == deletions && steps.Whole(step.first, step.last) {
				out.steps[step.start] = &overlayStep{rollupStep: step, day: day.start}
			}
		}
	}
	if len(out.steps) == 0 {
		return out, nil
	}
	if err := s.compare(ctx, out, q); err != nil {
		return nil, fmt.Errorf("compare rollups of sensor %q with its readings: %w", q.Sensor, err)
	}
	for _, step := range out.steps {
		out.left = append(out.left, step.rollupStep)
	}
	slices.SortFunc(out.left, func(a, b *rollupStep) int { return cmp.Compare(a.start, b.start) })
	return out, nil
}

// compare drops steps that do not count all readings and can be computed from the readings
// instead.
func (s *Store) compare(ctx context.Context, of *rollupOverlay, q telemetry.SummaryQuery) error {
	open := make(map[int64]bool)
	for _, u := range q.Unstored {
		if at := store.WindowStart(u.Reading.Time.UnixMilli(), s.Rollup); of.steps[at] != nil {
			open[at] = true
		}
	}
	uncounted := bson.E{Key: countedKey, Value: bson.D{{Key: "$ne", Value: true}}}
	err := s.overlapping(ctx, q.Sensor, of.steps, uncounted, func(_ bson.Raw, at int64) { open[at] = true })
	if err != nil || len(open) == 0 {
		return err
	}
	asked, there := make(map[int64]*overlayStep), make(map[int64]map[string]int64)
	for at := range open {
		asked[at], there[at] = of.steps[at], make(map[string]int64)
	}
	err = s.overlapping(ctx, q.Sensor, asked, bson.E{}, func(doc bson.Raw, at int64) {
		key, step := sourceKey(doc), asked[at]
		there[at][key] = firstSealed(doc)
		if _, counts := step.sources[key]; counts {
			first, _ := doc.Lookup("first").DateTimeOK()
			last, _ := doc.Lookup("last").DateTimeOK()
			step.kept = append(step.kept, [2]int64{first, last})
		}
	})
	if err != nil {
		return err
	}
	for at, step := range asked {
		if step.mixed = !step.complete(there[at]); !step.mixed {
			delete(of.steps, at)
		}
	}
	return nil
}

// overlapping calls do for each pair of a part and a step that overlap. If property is given, only
// parts that match it are considered.
func (s *Store) overlapping(ctx context.Context, sensor string, steps map[int64]*overlayStep, property bson.E, do func(doc bson.Raw, at int64)) error {
	q := telemetry.Query{Sensor: sensor}
	for at := range steps {
		if q.To == 0 || at < q.From {
			q.From = at
		}
		q.To = max(q.To, at+s.Rollup.Milliseconds())
	}
	w := walk{store: s, ctx: ctx, query: q}
	filter := append(w.filter(), bson.E{Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}})
	if property.Key != "" {
		filter = append(filter, property)
	}
	find := options.Find().SetProjection(bson.D{{Key: "first", Value: 1}, {Key: "last", Value: 1}, {Key: "sealed", Value: 1}})
	for doc, err := range s.Each(ctx, filter, find, 0) {
		if err != nil {
			return err
		}
		first, _ := doc.Lookup("first").DateTimeOK()
		last, _ := doc.Lookup("last").DateTimeOK()
		for at := store.WindowStart(first, s.Rollup); at <= last; at += s.Rollup.Milliseconds() {
			if steps[at] != nil {
				do(doc, at)
			}
		}
	}
	return nil
}

// expiredSteps yields the steps in a time range that count expired readings.
func (s *Store) expiredSteps(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		if s.Rollup == 0 || q.From >= q.To {
			return
		}
		days, _, err := s.rollupDays(ctx, q.Sensor, q.From, q.To)
		var there map[int64]map[string]int64
		if err == nil && len(days) > 0 {
			there, err = s.sealTimes(ctx, q.Sensor, days[0].start, days[len(days)-1].start+dayMillis)
		}
		if err != nil {
			yield(telemetry.Summary{}, fmt.Errorf("read rollups of sensor %q: %w", q.Sensor, err))
			return
		}
		for _, day := range days {
			for at := day.start; at < day.start+dayMillis; at += s.Rollup.Milliseconds() {
				step := day.steps[at]
				if step == nil || at < q.From || at+s.Rollup.Milliseconds() > q.To || step.complete(there[day.start]) {
					continue
				}
				if !yield(telemetry.Summary{Start: step.start, Count: step.count, First: step.first, Last: step.last, Fields: step.fields}, nil) {
					return
				}
			}
		}
	}
}

// complete reports whether all parts that the step counts still exist, and were not written again.
// there has the existing parts, with the time when each was first sealed.
func (r *rollupStep) complete(there map[string]int64) bool {
	for key := range r.sources {
		if since, ok := there[key]; !ok || since > r.at {
			return false
		}
	}
	return true
}

// sealTimes returns when each of a sensor's parts was first sealed, by day and key.
func (s *Store) sealTimes(ctx context.Context, sensor string, from, to int64) (map[int64]map[string]int64, error) {
	there := make(map[int64]map[string]int64)
	find := options.Find().SetProjection(bson.D{{Key: "sealed", Value: 1}})
	for doc, err := range s.Each(ctx, s.ofSensor(sensor, bson.D{startingIn(sensor, from, to)}), find, 0) {
		if err != nil {
			return nil, err
		}
		start, err := startOf(doc)
		if err != nil {
			return nil, err
		}
		day := store.WindowStart(start, 24*time.Hour)
		if there[day] == nil {
			there[day] = make(map[string]int64)
		}
		there[day][sourceKey(doc)] = firstSealed(doc)
	}
	return there, nil
}

// nextSensorOrRollup is nextSensor for sensors with readings or rollups.
func (s *Store) nextSensorOrRollup(ctx context.Context, from string, exclusive bool) (string, error) {
	id, err := s.nextSensor(ctx, from, exclusive)
	if err != nil {
		return "", err
	}
	key := firstKey(from)
	if exclusive {
		key = lastKey(from)
	}
	doc, err := s.rollups().FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: key}}}, {Key: stepsKey, Value: bson.D{{Key: "$exists", Value: true}}}},
		options.FindOne().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return "", fmt.Errorf("find the next sensor with rollups: %w", err)
	}
	if other, ok := doc.Lookup("_id", "s").StringValueOK(); ok && (id == "" || other < id) {
		id = other
	}
	return id, nil
}

// newestInRollups returns the time of the newest reading that a rollup of the sensor counts.
func (s *Store) newestInRollups(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	doc, err := s.rollups().FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: deletionKey(sensor)}, {Key: "$lt", Value: lastKey(sensor)}}}},
		options.FindOne().SetSort(bson.D{{Key: "_id", Value: -1}}).SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, false, nil
	}
	var days []*rollupDay
	if err == nil {
		start, _ := doc.Lookup("_id", "d").DateTimeOK()
		days, _, err = s.rollupDays(ctx, sensor, start, start+1)
	}
	if err != nil {
		return 0, false, fmt.Errorf("find the newest rollup of sensor %q: %w", sensor, err)
	}
	for _, day := range days {
		for _, step := range day.steps {
			if !found || step.last > ms {
				ms, found = step.last, true
			}
		}
	}
	return ms, found, nil
}
